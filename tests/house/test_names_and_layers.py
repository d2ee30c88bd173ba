"""One name for one thing, and no room that the import contracts forgot."""

import ast
import collections
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("stages", "artifacts", "fedsynth_cli")


def test_no_two_classes_have_one_name():
    where = collections.defaultdict(list)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    where[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


def test_every_stage_and_room_is_in_the_contracts():
    """Forbidden to the maths, and forbidden to know recipes: a new module must be in both lists."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    maths = next(one for one in contracts if one["name"].startswith("the maths"))
    recipes = next(one for one in contracts if one["name"].startswith("recipes"))
    there = {f"stages.{path.stem}" for path in (ROOT / "stages").iterdir() if path.suffix == ".py" or path.is_dir()}
    there -= {"stages.__init__", "stages.__pycache__"}
    known = {"stages.registry", "stages.families", "stages.hyperparameters"}  # what the maths declares itself by
    assert set(maths["forbidden_modules"]) >= there - known - set(maths["source_modules"])
    assert set(recipes["source_modules"]) == there - {"stages.recipes", "stages.federate", "stages.trials"}
