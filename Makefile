# fedsynth: set-up, demo, tests. `make` alone lists the targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
FUZZ := .venv-fuzz
DOCS := .venv-docs
EXPORTS := .venv-exports
SACRO := .venv-sacro
CRATES := .venv-crates
# The Five Safes profile is in no release of rocrate-validator yet, but in a branch of it: its newest state, of April 2026.
SHAPES := https://github.com/crs4/rocrate-validator/archive/95ecd302c1f9a1621bd781ae62f86f2b9b3d45a0.tar.gz
CONTEXT := https://w3id.org/ro/crate/1.2/context
TRACKERS := .venv-trackers
EXECUTIONS ?= 1000000
# Errors alone; a machine with several package indexes has hundreds of warnings. See them with QUIET=-q.
QUIET ?= -qq
PIP = PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install $(QUIET) --disable-pip-version-check
FAILED = { echo "The installation failed. To see pip's warnings too: make $(MAKECMDGOALS) QUIET=-q" >&2; exit 1; }
# The demo needs the package alone; the tests, and whoever develops, DVC, Snakemake, Flower and the checkers too.
PACKAGE := $(VENV)/.package
EVERYTHING := $(VENV)/.everything
# The folder in which the last installation came to its end.
FINISHED := $(VENV)/.finished

.DEFAULT_GOAL := help
.PHONY: help setup demo docs test test-slow test-anywhere test-faults test-versions test-exports test-crates test-trackers fuzz check bench reproduce clean FORCE

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | awk -F '|' '{ printf "  make %-14s %s\n", $$1, $$2 }'

setup: $(EVERYTHING) ## make the virtual environment in .venv and install everything, pinned

# An environment whose last installation was interrupted, or that was moved, is made anew.
ifneq ($(shell cat $(FINISHED) 2>/dev/null),$(CURDIR))
$(PACKAGE) $(EVERYTHING): FORCE
endif

$(PACKAGE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedsynth needs Python 3.11 or newer: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test "$$(cat $(FINISHED) 2>/dev/null)" = '$(CURDIR)' && $(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@rm -f $(FINISHED)
	$(PIP) -e . || $(FAILED)
	@echo '$(CURDIR)' > $(FINISHED)
	@touch $@

$(EVERYTHING): pyproject.toml constraints.txt | $(PACKAGE)
	@rm -f $(FINISHED)
	$(PIP) -e '.[dev]' || $(FAILED)
	@echo '$(CURDIR)' > $(FINISHED)
	@touch $@

demo: $(PACKAGE) ## synthetic images shuffled among clients, against none and their own; then the audit (under three minutes)
	$(BIN)/fedsynth run fedssyn-comparison --preset demo -o runs/demo
	$(BIN)/fedsynth audit runs/demo/synthetic=shuffled,seed=0

test: setup ## run the tests (under ten minutes on two cores)
	$(BIN)/python -m pytest -n 3 --dist loadfile

test-slow: setup ## run the slow tests (minutes; some need ../shared/data)
	$(BIN)/python -m pytest -n 3 --dist loadfile -m slow

test-anywhere: setup ## run the tests as other machines would: instructions, keys, workers, order (hours; it goes on)
	$(BIN)/python tests/anywhere/run.py

fuzz: $(FUZZ)/.installed ## all readers of files under atheris (EXECUTIONS=1000000: an hour on two cores)
	$(FUZZ)/bin/python tests/hostile/fuzz.py --executions $(EXECUTIONS)

# atheris alone; everything else is that of $(VENV).
$(FUZZ)/.installed: $(EVERYTHING)
	$(BIN)/python -m venv --clear $(FUZZ)
	$(FUZZ)/bin/python -m pip install $(QUIET) --disable-pip-version-check -c constraints.txt atheris
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > "$$($(FUZZ)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
	@touch $@

test-exports: $(EXPORTS)/.installed $(SACRO)/.installed ## documents of `export` under the validators of their formats
	$(BIN)/python -m pytest tests/export -m slow

test-crates: $(CRATES)/.installed ## crates under the published shapes of the Five Safes profile, which it downloads
	$(BIN)/python -m pytest tests/export/test_validators.py -m slow -k crate

# Validators have environments of their own: what they pin has nothing to do with what we pin.
$(EXPORTS)/.installed: $(EVERYTHING)
	$(BIN)/python -m venv --clear $(EXPORTS)
	$(EXPORTS)/bin/python -m pip install $(QUIET) --disable-pip-version-check \
	  'mlcroissant[image,parquet]==1.1.1' rocrate==0.16.0 model-signing==1.1.1 pyopenssl acro==1.0.2
	@touch $@

$(SACRO)/.installed: $(EVERYTHING)
	$(BIN)/python -m venv --clear $(SACRO)
	$(SACRO)/bin/python -m pip install $(QUIET) --disable-pip-version-check sacroml==2.0.1
	@touch $@

$(CRATES)/.installed: $(EVERYTHING)
	$(BIN)/python -m venv --clear $(CRATES)
	$(CRATES)/bin/python -m pip install $(QUIET) --disable-pip-version-check roc-validator==0.13.0
	mkdir $(CRATES)/profiles
	curl -fsSL $(SHAPES) | tar -xz -C $(CRATES)/profiles --strip-components=3 --wildcards '*/profiles/five-safes-crate/*'
	curl -fsSL -H 'Accept: application/ld+json' $(CONTEXT) -o $(CRATES)/context.jsonld
	@touch $@

test-trackers: $(TRACKERS)/.installed ## --log against MLflow, TensorBoard and Weights & Biases, each with a local store
	$(BIN)/python -m pytest tests/tracking -m slow

# The trackers alone; everything else is that of $(VENV).
$(TRACKERS)/.installed: $(EVERYTHING)
	$(BIN)/python -m venv --clear $(TRACKERS)
	$(TRACKERS)/bin/python -m pip install $(QUIET) --disable-pip-version-check -c constraints.txt \
	  mlflow-skinny sqlalchemy alembic sqlparse tensorboard wandb
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > "$$($(TRACKERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
	@touch $@

test-faults: setup ## each disk operation fails once, power is cut, `run` is killed KILLS times (1000); hours
	KILLS=$(or $(KILLS),1000) $(BIN)/python -m pytest tests/faults -n 2 -m faults

test-versions: setup ## check and a core of the tests beside the lowest, pinned and newest libraries, each Python (hours, 30 GB)
	$(BIN)/python tests/versions/run.py

check: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(DOCS)/.installed ## build the documents as a site in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet

$(DOCS)/.installed: pyproject.toml
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install $(QUIET) --disable-pip-version-check 'mkdocs-material==9.8.1' 'mkdocs==1.6.1'
	@touch $@

bench: setup ## measure against peers and write docs/benchmarks.md (within the hour; goes on where it stopped; ONLY=name)
	$(BIN)/python benchmarks/run.py $(if $(ONLY),--only $(ONLY))

reproduce: setup ## run what shows the papers' claims, write docs/results.md (hours; goes on where it stopped; ONLY=paper/entry)
	$(BIN)/python reproduce/run.py $(if $(ONLY),--only $(ONLY))

clean: ## remove the virtual environment, caches and runs
	rm -rf $(VENV) $(FUZZ) $(DOCS) $(EXPORTS) $(SACRO) $(CRATES) $(TRACKERS) build/site runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
