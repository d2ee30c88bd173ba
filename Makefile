# fedsynth: set-up, demo, tests. `make` alone lists the targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow check bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | awk -F '|' '{ printf "  make %-10s %s\n", $$1, $$2 }'

setup: $(STAMP) ## make the virtual environment in .venv and install everything, pinned

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedsynth needs Python 3.11 or newer: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: setup ## synthetic images shuffled among clients, against none and their own; then the audit (under three minutes)
	$(BIN)/fedsynth run fedssyn-comparison --preset demo -o runs/demo
	$(BIN)/fedsynth audit runs/demo/synthetic=shuffled,seed=0

test: setup ## run the tests (under ten minutes on two cores)
	$(BIN)/python -m pytest -n 3 --dist loadfile

test-slow: setup ## run the slow tests (minutes; some need ../shared/data)
	$(BIN)/python -m pytest -n 3 --dist loadfile -m slow

check: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## print ratios measured side by side in one run
	$(BIN)/python benchmarks/run.py --out runs/bench.json

clean: ## remove the virtual environment, caches and runs
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
