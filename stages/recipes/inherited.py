"""Inherited parameters that have no effect any more, because something above them chose another family or scheme.

`extends: fedssyn` with `family: gan` inherits `sampler: ddpm`, which a GAN has no use for. A parameter is left out if
its declaration says that it has no effect beside the others, and a layer above its own changed the section (or, for
`synthesize`, the generator). In the same layer it is a mistake, and stays one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.catalogue import DECLARED
from stages.families import Variants
from stages.hyperparameters import By
from stages.recipes.declared import BESIDE

if TYPE_CHECKING:
    from stages.recipes.recipe import Origin

_ALSO_DECIDES = {"synthesize": "train-generator"}


def idle(stages: Mapping[str, Mapping[str, Any]], origins: Mapping[str, Origin]) -> dict[str, str]:
    """By target, why it is left out."""
    found: dict[str, str] = {}
    for command, section in stages.items():
        if command not in DECLARED or not isinstance(section, Mapping):
            continue
        deciding = (command, _ALSO_DECIDES.get(command))
        highest = max((o.rank for t, o in origins.items() if t.rpartition(".")[0] in deciding), default=0)
        made = _made(command, stages)
        if made is None:
            continue
        for key, value in section.items():
            target = f"{command}.{key}"
            inherited = target in origins and origins[target].rank < highest
            if inherited and key not in BESIDE:
                why = _why_idle(command, made, key, value)
                if why is not None:
                    found[target] = why
    return found


def _why_idle(command: str, made: Any, key: str, value: Any) -> str | None:
    """Why the parameter has no effect beside the others; None if it has, or if nobody knows it at all."""
    declared = DECLARED[command]
    fields = {f.name: f for f in dataclasses.fields(made) if f.name in made.names()}
    if key in fields:
        when = fields[key].metadata["when"]
        if value is None or when is None or _holds(when, made):
            return None
        return f"it goes with {when.words}"
    if isinstance(declared, Variants):
        owners = [word for word in declared.words if key in declared.chosen({declared.key: word}).names()]
        if owners:
            chosen = getattr(made, declared.key)
            return f"it goes with --{declared.key} {' or '.join(owners)}, and now it is {chosen}"
    return None


def _holds(when: Any, made: Any) -> bool:
    try:
        return bool(when.holds(made))
    except (TypeError, ValueError, AttributeError):  # values of a wrong type: the check of the whole will say which
        return True


def _made(command: str, stages: Mapping[str, Mapping[str, Any]]) -> Any:
    """The section as its declared class, unchecked: what is wrong with it is said when the whole is checked."""
    values = {key: value for key, value in stages.get(command, {}).items() if key not in BESIDE}
    declared = DECLARED[command]
    if command == "aggregate" and "rule" not in values:
        return None  # the method of `encode` chooses it
    if isinstance(declared, Variants):
        try:
            declared = declared.chosen(values)
        except ValueError:
            return None
    made = object.__new__(declared)
    for field in dataclasses.fields(made):
        given = values.get(field.name)
        object.__setattr__(made, field.name, field.default if given is None else given)
    if command == "synthesize":
        training = _made("train-generator", stages)
        if training is None:
            return None
        object.__setattr__(made, "family", training.family)
        object.__setattr__(made, "private", training.is_private)
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if isinstance(value, By):
            object.__setattr__(made, field.name, value.of(made))
    return made
