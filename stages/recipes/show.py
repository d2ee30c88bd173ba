"""`recipe show`: every parameter of a recipe, its value, and where that is from."""

from __future__ import annotations

import dataclasses
from typing import Any

from stages.hyperparameters import By
from stages.recipes.expressions import is_expression
from stages.recipes.plan import check
from stages.recipes.recipe import Recipe
from stages.recipes.sweep import points

# With the unit of each; what a stage declares says its own.
_ABOVE_STAGES = {
    "rounds": "rounds", "participation": "share", "synthetic": "", "switch1": "rounds", "switch2": "rounds",
    "secure": "", "receipts": "", "target": "accuracy",
}  # fmt: skip


def shown(recipe: Recipe) -> dict[str, Any]:
    """By the recipe's own keys: `{"value": …, "source": …}`, with unit, symbol and expression where there is one.

    All parameters that have an effect are there. One that nobody gave is a default, the paper's or ours; one that the
    plan fills in says so. Of a recipe with a sweep it is the first point that is checked.
    """
    first = points(recipe, 0)[0].recipe if recipe.sweep else recipe
    found: dict[str, Any] = {}
    for name, unit in _ABOVE_STAGES.items():
        value = getattr(recipe, name)
        if value is not None:
            found[name] = _entry(value, recipe, name) | ({"unit": unit} if unit else {})
    for target, values in recipe.sweep.items():
        source = recipe.origins["sweep"].source if "sweep" in recipe.origins else "--sweep"
        found.setdefault("sweep", {})[target] = {"value": values, "source": source}
    for command, params in check(first).items():
        found[command] = _section(recipe, command, params)
    return found


def _section(recipe: Recipe, command: str, params: Any) -> dict[str, Any]:
    given = recipe.stages.get(command, {})
    section: dict[str, Any] = {}
    for name in ("source", "root", "download"):
        if name in given:
            section[name] = _entry(given[name], recipe, f"{command}.{name}")
    about = {field.name: field.metadata for field in dataclasses.fields(params)}
    for name, value in params.to_json().items():
        target = f"{command}.{name}"
        if target in recipe.sweep:
            entry: dict[str, Any] = {"value": value, "source": "sweep, its first point"}
        elif given.get(name) is not None:
            entry = _entry(value, recipe, target)
            if is_expression(given[name]):
                entry["expression"] = given[name]
        else:
            entry = {"value": value, "source": _default(params, name)}
        entry |= {fact: about[name][fact] for fact in ("symbol", "unit") if about[name][fact]}
        section[name] = entry
    return section


def _default(params: Any, name: str) -> str:
    """A default of the declaration; or what the plan says to a stage because another one says it."""
    field = next(field for field in dataclasses.fields(params) if field.name == name)
    default: Any = field.default
    if isinstance(default, By):
        default = default.of(params)
    if default != getattr(params, name):
        return "follows from the rest of the recipe"
    return "default, the paper's" if field.metadata["source"] == "paper" else "default, ours"


def _entry(value: Any, recipe: Recipe, target: str) -> dict[str, Any]:
    origin = recipe.origins.get(target)
    return {"value": value, "source": origin.source if origin is not None else "default"}


def lines(recipe: Recipe) -> list[list[str]]:
    """The same as rows of a table: parameter, value, unit, source."""
    rows: list[list[str]] = []
    for key, entry in shown(recipe).items():
        nested = entry if "value" not in entry else {"": entry}
        for name, one in nested.items():
            words = ", ".join(map(_worded, one["value"])) if isinstance(one["value"], list) else _worded(one["value"])
            more = f" ({one['expression'].removeprefix('=').strip()})" if "expression" in one else ""
            rows.append([f"{key}.{name}" if name else key, words + more, one.get("unit", ""), one["source"]])
    return rows


def _worded(value: Any) -> str:
    """As a recipe spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_worded(one)}" for name, one in value.items())
    return str(value)
