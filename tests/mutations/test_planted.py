"""Planted errors: each is put into a copy of the tree, and the test that is named for it must fail there.

`planted/*.toml` are the lists. An entry has five fields:

    what   what is wrong, in a sentence
    file   the file that is changed, from the root of the tree
    old    text that occurs there exactly once
    new    what it becomes
    test   the test that must fail, as pytest names it
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PLANTED = [
    pytest.param(entry, id=f"{path.stem}-{number}")
    for path in sorted((Path(__file__).parent / "planted").glob("*.toml"))
    for number, entry in enumerate(tomllib.loads(path.read_text())["planted"], start=1)
]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "runs", "site", "*.egg-info"
)


def started(command, folder):
    there = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=there, capture_output=True, text=True, check=False)


def outcome(folder, *tests):
    """pytest on some tests of the tree in `folder`: its exit code (0: passed, 1: some failed) and what it prints."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rf", "-p", "no:cacheprovider", "-m", "", *tests]
    done = started(command, folder)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree whose packages are the ones that are imported in it."""
    folder = tmp_path_factory.mktemp("planted") / "tree"
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT)
    code = "import artifacts, fedsynth_cli, stages; print(artifacts.__path__, fedsynth_cli.__path__, stages.__path__)"
    said = started([sys.executable, "-c", code], folder).stdout
    assert said.count(str(folder)) == 3, said
    return folder


@pytest.mark.parametrize("entry", PLANTED)
def test_each_entry_fits_the_tree(entry):
    assert entry.keys() == {"what", "file", "old", "new", "test"}
    assert (ROOT / entry["file"]).read_text().count(entry["old"]) == 1, entry["what"]
    assert entry["old"] != entry["new"]
    path, *names = entry["test"].split("::")
    # Members of a family inherit their tests from its contract; what is in brackets are its parameters.
    assert f"def {names[-1].split('[')[0]}(" in (ROOT / path).read_text(), entry["test"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_without_a_planted_error_they_all_pass(tree):
    code, said = outcome(tree, *sorted({parameters.values[0]["test"] for parameters in PLANTED}))
    assert code == 0, said


@pytest.mark.slow
@pytest.mark.parametrize("entry", PLANTED)
def test_each_is_caught(tree, entry):
    file = tree / entry["file"]
    before = file.read_text()
    try:
        file.write_text(before.replace(entry["old"], entry["new"]))
        code, said = outcome(tree, entry["test"])
    finally:
        file.write_text(before)
    assert (code, "FAILED " in said) == (1, True), f"{entry['what']}\n{said}"
