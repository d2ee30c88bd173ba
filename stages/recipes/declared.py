"""The parameters of a step, by the declaration of its command; so that a recipe is found wrong before it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from artifacts.errors import UsageError
from stages.data.params import PartitionParams
from stages.hyperparameters import HyperParameters, Variants
from stages.methods.params.generator import GeneratorTraining
from stages.methods.params.local_training import LocalTraining
from stages.methods.params.synthesis import Synthesis
from stages.methods.params.variants import AGGREGATIONS, ENCODINGS
from stages.nets.params import NetParams
from stages.recipes.phases import resolved
from stages.recipes.plan import partition_step, plan
from stages.recipes.recipe import Recipe
from stages.recipes.step import Step
from stages.secagg.terms import Terms

_DECLARED: dict[str, type[HyperParameters] | Variants] = {
    "partition": PartitionParams,
    "train-generator": GeneratorTraining,
    "synthesize": Synthesis,
    "init-model": NetParams,
    "train-client": LocalTraining,
    "encode": ENCODINGS,
    "aggregate": AGGREGATIONS,
    "secagg": Terms,
}


def parameters(step: Step) -> Any:
    """What the step says, as its command's own class, which checks it."""
    try:
        return _DECLARED[step.section].from_mapping(step.params)
    except ValueError as error:
        raise UsageError(f"{step.section}: {error}.") from error


def check(recipe: Recipe, *, divides: bool = True) -> None:
    """Refuse a recipe whose parameters are wrong: those of one round with one client are those of all.

    Where the clients have data of their own there is nothing to divide.
    """
    steps = [partition_step(recipe, 0)] if divides else []
    steps += plan(replace(resolved(recipe, {}), rounds=1), ["00"], 0)
    for step in steps:
        if step.section in _DECLARED:
            parameters(step)
