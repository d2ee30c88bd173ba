"""`make test-versions`: the checks, a core of the tests and an exchange of files, beside the versions that we allow.

For each Python that is here, three environments: the lowest versions of what pyproject.toml names, those pinned in
constraints.txt, and the newest that resolve. What cannot be installed on this machine is named and left out. uv makes
the environments and obeys its own settings: UV_TORCH_BACKEND=cpu or UV_FIND_LINKS spare the gigabytes of CUDA, and a
cache on the same disk (UV_CACHE_DIR) is shared by links.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXCHANGE = Path(__file__).parent / "exchange.py"
UV = Path(sys.executable).parent / "uv"
# Every library is used by some of these.
CORE = [
    "artifacts/test_dataset_round_trip.py", "artifacts/test_tensors_round_trip.py", "artifacts/test_metadata.py",
    "artifacts/test_keys.py", "cli", "data/test_conform.py", "data/test_png.py", "data/test_folder_source.py",
    "data/test_parquet_source.py", "generators/test_ddpm.py", "methods/test_averaging.py",
    "methods/test_local_training.py", "nets/test_build.py", "nets/test_counts.py", "nets/test_door.py",
    "privacy/test_accountant.py", "privacy/test_events.py", "privacy/test_example_gradients.py",
    "privacy/test_mechanism.py", "privacy/test_streams.py", "recipes/test_run.py::test_every_recipe_learns",
    "report/test_page.py", "secagg/test_commands.py", "secagg/test_ring.py", "signing/test_sign.py", "versions",
]  # fmt: skip
# How uv resolves. Without wheels alone the lowest versions would be compiled from source on a newer Python.
LIBRARIES = {
    "lowest": ["--extra", "check", "--resolution", "lowest-direct", "--only-binary", ":all:"],
    "pinned": ["--extra", "dev", "--constraint", "constraints.txt"],
    "newest": ["--extra", "check", "--resolution", "highest", "--only-binary", ":all:"],
}
SHOWN = ("torch", "numpy", "pyarrow", "safetensors", "pillow")


@dataclass
class Environment:
    """One Python with one choice of versions, and what came of it: of each step, whether it passed and its seconds."""

    python: str
    libraries: str
    folder: Path
    versions: dict[str, str] = field(default_factory=dict)
    steps: dict[str, tuple[bool, float]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    missing: str = ""

    @property
    def name(self) -> str:
        return f"{self.python} {self.libraries}"

    @property
    def bin(self) -> Path:
        return self.folder / "env/bin"

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def step(self, name: str, *command: str | Path, **variables: str) -> str:
        """Run one step, from the root of the project; what it says is kept in a log. Returns its stdout."""
        began = time.monotonic()
        done = subprocess.run(
            [str(word) for word in command], cwd=ROOT, env=os.environ | variables, capture_output=True, text=True
        )
        self.steps[name] = (done.returncode == 0, time.monotonic() - began)
        (self.folder / f"{name}.log").write_text(done.stdout + done.stderr)
        print(f"{self.name}: {name} {self.stated(name)}", flush=True)
        if done.returncode < 0:
            print(f"it was killed by signal {-done.returncode}, which says nothing of the versions", flush=True)
        if done.returncode:
            print("\n".join((done.stdout + done.stderr).rstrip().splitlines()[-15:]), flush=True)
        return done.stdout

    def stated(self, name: str) -> str:
        if name not in self.steps:
            return "–"
        passed, seconds = self.steps[name]
        return f"{'ok' if passed else 'FAILED'} {seconds:.0f} s"

    def passed(self, name: str) -> bool:
        return self.steps.get(name, (False, 0.0))[0]


def find_python(version: str) -> Path | None:
    """The interpreter: on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    for candidate in [*([Path(on_path)] if on_path else []), *sorted(pyenv.glob(f"{version}.*/bin/python"))]:
        asked = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([str(candidate), "-c", asked], capture_output=True, text=True)
        if done.stdout.strip() == version:
            return candidate
    return None


def install(env: Environment) -> None:
    """Resolve and install; `missing` says why not. Versions that do not resolve are a failure of ours."""
    python = find_python(env.python)
    if python is None:
        env.missing = f"there is no Python {env.python} here"
        return
    env.folder.mkdir(parents=True, exist_ok=True)
    wanted = env.folder / "requirements.txt"
    wanted.unlink(missing_ok=True)  # uv would keep to what is in it
    quiet = ["--quiet", "--no-annotate", "--no-header", "-o", wanted]
    options = ["--python-version", env.python, *LIBRARIES[env.libraries]]
    env.step("resolve", UV, "pip", "compile", "pyproject.toml", *options, *quiet)
    if not env.passed("resolve"):
        return
    pins = (line.split("==") for line in wanted.read_text().splitlines() if "==" in line)
    env.versions = {name: version.split(" ")[0] for name, version in pins if name in SHOWN}
    target = ["--quiet", "--python", env.bin / "python"]
    if not (env.bin / "python").exists():
        env.step("venv", UV, "venv", "--quiet", "--python", python, env.folder / "env")
    env.step("install", UV, "pip", "sync", *target, wanted)
    if not env.passed("install"):
        env.missing = f"it cannot be installed here; {env.folder / 'install.log'} says why"
        return
    env.step("package", UV, "pip", "install", *target, "--no-deps", "--editable", ".")


def exchange(environments: list[Environment]) -> None:
    """Each environment writes its files and reads those of all others."""
    for env in environments:
        shutil.rmtree(env.files, ignore_errors=True)
        said = env.step("write", env.bin / "python", EXCHANGE, "write", env.files)
        env.digests = json.loads(said.splitlines()[-1]) if env.passed("write") else {}
    written = [env.files for env in environments if env.digests]
    for env in environments:
        if others := [files for files in written if files != env.files]:
            env.step("read", env.bin / "python", EXCHANGE, "read", *others)


def examine(env: Environment) -> None:
    """`make check` and the core of the tests in this environment."""
    caches = {"MYPY_CACHE_DIR": str(env.folder / "mypy"), "RUFF_NO_CACHE": "true"}
    env.step("check", "make", "--old-file=setup", "check", f"BIN={env.bin}", **caches)
    options = ["-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    env.step("core", env.bin / "python", "-m", "pytest", *(f"tests/{name}" for name in CORE), *options)


def same_bytes(environments: list[Environment]) -> list[str]:
    """Of each file of the exchange, whose libraries gave the same bytes."""
    lines = []
    for name in dict.fromkeys(itertools.chain.from_iterable(env.digests for env in environments)):
        groups: dict[str, list[str]] = {}
        for env in environments:
            if name in env.digests:
                groups.setdefault(env.digests[name], []).append(env.name)
        stated = "the same bytes everywhere" if len(groups) == 1 else " | ".join(map(", ".join, groups.values()))
        lines.append(f"  {name}: {stated}")
    return lines


def table(environments: list[Environment]) -> str:
    steps = ("install", "write", "read", "check", "core")
    rows = [["Python", "libraries", *SHOWN, *steps]]
    for env in environments:
        shown = [env.versions.get(name, "–") for name in SHOWN]
        rows.append([env.python, env.libraries, *shown, *(env.stated(step) for step in steps)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="+", default=["3.11", "3.12", "3.13"])
    parser.add_argument("--libraries", nargs="+", default=list(LIBRARIES), choices=list(LIBRARIES))
    parser.add_argument("--into", type=Path, default=ROOT / "runs/versions", help="where the environments are made")
    given = parser.parse_args()
    environments = [
        Environment(python, libraries, given.into.absolute() / f"{python}-{libraries}")
        for python in given.python
        for libraries in given.libraries
    ]
    for env in environments:
        install(env)
    made = [env for env in environments if env.passed("package")]
    exchange(made)
    for env in made:
        examine(env)
    print(f"\n{table(environments)}\n\nBytes of the same content:")
    print("\n".join(same_bytes(made)))
    for env in environments:
        if env.missing:
            print(f"{env.name} was left out: {env.missing}.")
    failed = [f"{env.name}: {step}" for env in environments for step, (ok, _) in env.steps.items() if not ok]
    failed = [what for what in failed if not what.endswith(": install")]
    print(f"failed: {', '.join(failed)}" if failed else f"{len(made)} environments, nothing failed")
    return 1 if failed or not made else 0


if __name__ == "__main__":
    sys.exit(main())
