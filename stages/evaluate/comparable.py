"""Whether runs can be compared: the same data, divided alike, the same network, as many rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SAME = ("partition", "init-model")


def differences(recipes: Mapping[str, Mapping[str, Any]], rounds: Mapping[str, int]) -> list[str]:
    """What differs between runs, by label, beside the method: one sentence for each, with who has what.

    A run that `fedsynth run` did not make has no recipe, and says nothing about itself but its rounds.
    """
    known = {label: recipe for label, recipe in recipes.items() if recipe}
    found: dict[str, dict[str, Any]] = {"rounds": dict(rounds)}
    for section in _SAME:
        sections = {label: recipe.get(section) or {} for label, recipe in known.items()}
        for name in sorted({name for one in sections.values() for name in one}):
            found[f"{section}.{name}"] = {label: one.get(name) for label, one in sections.items()}
    return [f"{what} is {_owners(values)}" for what, values in found.items() if len(set(map(str, values.values()))) > 1]


def _owners(values: Mapping[str, Any]) -> str:
    """`convnet in a and b, lenet5 in c`."""
    by_value: dict[str, list[str]] = {}
    for label, value in values.items():
        by_value.setdefault("not given" if value is None else str(value), []).append(label)
    return ", ".join(f"{value} in {' and '.join(labels)}" for value, labels in by_value.items())
