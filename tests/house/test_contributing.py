"""CONTRIBUTING names rooms and functions that exist."""

import importlib
import re
from pathlib import Path

import pytest
from loading import load

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
TREE = re.search(r"\n    fedsynth_cli/.*?\n\n", TEXT, re.DOTALL).group(0)
NAMED = sorted(set(re.findall(r"`((?:stages|artifacts)\.[a-zA-Z_.]+)`", TEXT)))
_TOP = {"fedsynth_cli", "stages", "artifacts", "reproduce", "tests"}


def rooms():
    """The paths of the tree, each below the room that it is indented under."""
    top, inner = "", ""
    for line in TREE.strip("\n").splitlines():
        indent = len(line) - len(line.lstrip())
        names = [word for word in re.split(r"\s{2,}", line.strip())[0].split() if word.endswith(("/", ".py"))]
        for name in names:
            if name.rstrip("/") in _TOP:
                top, inner = name, ""
                yield name
            elif indent <= 6:
                inner = name
                yield top + name
            else:
                yield top + inner + name


@pytest.mark.parametrize("path", list(rooms()))
def test_a_room_of_the_tree_is_there(path):
    assert (ROOT / path).exists()


def test_every_room_is_in_the_tree():
    named = {path.rstrip("/") for path in rooms()}
    for top in ("stages", "artifacts"):
        for folder in (ROOT / top).iterdir():
            if folder.is_dir() and folder.name != "__pycache__":
                assert f"{top}/{folder.name}" in named


@pytest.mark.parametrize("name", NAMED)
def test_a_function_of_the_walks_is_there(name):
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
            break
        except ModuleNotFoundError:
            continue
    for attribute in parts[length:]:
        found = getattr(found, attribute)
    assert found is not None


def test_the_counts_of_files_are_those_that_are_added_for_real():
    few, worked = load("house/test_files_touched.py"), load("house/test_worked_additions.py")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")
    ]
    assert {row[0]: int(row[2]) for row in rows if len(row) == 3 and row[2].isdigit()} == {
        "federated algorithm": len(few.ALGORITHM), "`encode` method": len(few.METHOD),
        "kind of file": len(worked.KIND), "generator family": len(worked.GENERATOR),
        "measurement of `evaluate`": len(worked.MEASUREMENT), "field of the egress ledger": len(worked.LEDGER_FIELD),
    }  # fmt: skip
