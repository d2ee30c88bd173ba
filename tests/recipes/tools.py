"""What the tests of other people's tools share: a small recipe, a way to call a tool, the digests of a run."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
SETTINGS = [
    "partition.clients=2", "partition.scheme=dirichlet", "partition.alpha=0.5", "init-model.arch=softmax",
    "init-model.width=null", "init-model.depth=null", "train-client.local_epochs=1", "encode.tell_examples=true",
]  # fmt: skip
SMALL = ["--rounds", "1", "--seed", "5", "--workers", "1", *(word for s in SETTINGS for word in ("--set", s))]


def found(name):
    """The tool beside this Python, or on the path; None where it is not installed."""
    return shutil.which(name, path=str(BIN)) or shutil.which(name)


def call(words, cwd, path, **environment):
    """Run a tool that must succeed; returns all that it said."""
    done = subprocess.run(words, cwd=cwd, env=os.environ | {"PATH": path} | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def digests(folder):
    """Every file of a run by its SHA-256, but for the record of the recipe, which only `run` writes."""
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    files.pop("simulation/recipe.yaml", None)
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(files.items())}
