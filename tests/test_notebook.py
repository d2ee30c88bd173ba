"""The notebook runs, cell by cell; and the documented functions are there."""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINE = re.compile(r"^\| `([\w.]+):(\w+)` \| (.+) \|$", re.MULTILINE)


def test_the_notebook_runs_cell_by_cell(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    notebook = json.loads((ROOT / "examples/one_round.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "kept without outputs"
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    assert names["before"] < 0.3 < 0.6 < names["after"], "one round of FedAvg on iid digits learns"
    assert names["sent"]["disclosures"] == ["update"]
    assert [row["client"] for row in names["cost"]["clients"]] == ["00", "01", "02"]
    assert all(row["events"] == 0 for row in names["cost"]["clients"]), "a plain update has no ε"


@pytest.mark.parametrize(("module", "function", "_about"), LINE.findall((ROOT / "docs/api.md").read_text()))
def test_what_the_page_lists_is_there(module, function, _about):
    found = getattr(importlib.import_module(module), function)
    assert callable(found) and found.__doc__


def test_the_page_lists_the_stages_of_recipes():
    from stages.catalogue import COMMANDS

    listed = {f"{module}:{function}" for module, function, _ in LINE.findall((ROOT / "docs/api.md").read_text())}
    alone = {c.performed_by for c in COMMANDS.values() if " " not in c.name} - {"stages.sign:sign"}
    assert alone <= listed | {"stages.identity:identity", "stages.identity:roster"}
