"""Where TOFU's phases change, if not in rounds that the recipe names: where the public accuracy stops rising.

A phase has reached its plateau when the best of its last `patience` rounds is not at least `gain` above the best before
them; the next one begins in the round after. All of it follows from the metrics of the public test set, so a run that
was interrupted decides again as it did before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from artifacts.errors import UsageError
from stages.hyperparameters import HyperParameters, hyper

if TYPE_CHECKING:
    from stages.recipes.recipe import Recipe

PLATEAU = "plateau"


@dataclass(frozen=True, kw_only=True)
class Plateau(HyperParameters):
    """The rule; the recipe's section `plateau`."""

    patience: int = hyper(3, "Rounds that may pass without a gain.", unit="rounds")
    gain: float = hyper(
        0.005, "How much better the best of them must be than the best before, in accuracy.", unit="accuracy"
    )
    full_rounds: int | None = hyper(
        None, "End so many rounds after switch2 (else after the recipe's rounds).", unit="rounds"
    )

    def check(self) -> None:
        super().check()
        self.require(self.patience >= 1, "patience", "at least 1")
        self.require(self.gain >= 0, "gain", "at least 0")
        self.require(self.full_rounds is None or self.full_rounds >= 1, "full_rounds", "at least 1")

    def reached(self, accuracy: Mapping[int, float], first: int, last: int) -> bool:
        """Whether the phase that began with round `first` is on its plateau after round `last`."""
        since = range(first - 1, last + 1)
        late, early = since[-self.patience :], since[: -self.patience]
        return bool(early) and max(accuracy[r] for r in late) < max(accuracy[r] for r in early) + self.gain


def waits(recipe: Recipe) -> bool:
    """Whether a round of change is yet to be found."""
    return PLATEAU in (recipe.switch1, recipe.switch2)


def resolved(recipe: Recipe, accuracy: Mapping[int, float]) -> Recipe:
    """The recipe with rounds for its switches, as far as the accuracies after rounds 0, 1, … decide them.

    A switch that is not decided yet lies beyond the end: the round after the last one known can be planned.
    """
    rule = plateau_of(recipe)
    first = _round(recipe, recipe.switch1, rule, accuracy, 1)
    second = _round(recipe, recipe.switch2, rule, accuracy, first or 1)
    rounds = recipe.rounds
    if recipe.switch2 == PLATEAU and second is not None and rule.full_rounds is not None:
        rounds = min(rounds, second + rule.full_rounds - 1)
    return replace(recipe, switch1=first, switch2=second, rounds=rounds)


def plateau_of(recipe: Recipe) -> Plateau:
    try:
        return Plateau.from_mapping(recipe.section("plateau"))
    except ValueError as error:
        raise UsageError(f"recipe {recipe.name}: plateau: {error}.") from error


def _round(
    recipe: Recipe, switch: int | str | None, rule: Plateau, accuracy: Mapping[int, float], first: int
) -> int | None:
    """Where the phase that begins with round `first` gives way to the next."""
    if not isinstance(switch, str):
        return switch
    done = range(first, max(accuracy, default=0) + 1)
    return next((round + 1 for round in done if rule.reached(accuracy, first, round)), recipe.rounds + 1)
