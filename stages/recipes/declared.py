"""The parameters of a recipe's section, by the declaration of its command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from artifacts.errors import UsageError
from stages.catalogue import DECLARED
from stages.families import Variants
from stages.recipes.step import Step

BESIDE = {"source", "root", "download"}
"""What a recipe's section `partition` says beside the hyper-parameters."""


def parameters(step: Step, facts: Mapping[str, Any] | None = None) -> Any:
    """What the step says, as its command's own class, which checks it; `facts` are what its inputs say."""
    try:
        return DECLARED[step.section].from_mapping(step.params, facts)
    except ValueError as error:
        raise UsageError(f"{step.section}: {error}.") from error


def declaration(section: str, values: Mapping[str, Any]) -> Any:
    """The algorithm, method or rule that a section chooses, with its facts."""
    family = DECLARED[section]
    assert isinstance(family, Variants)
    try:
        return family.chosen(values)
    except ValueError as error:
        raise UsageError(f"{section}: {error}.") from error
