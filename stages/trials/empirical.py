"""`audit --empirical`: canaries in a recipe, each there by the toss of a coin, and how many of them an attacker finds.

A canary of the records is a record of the client's data whose gradient is one coordinate, far beyond the clip; a canary
of the clients is a client whose update is. Everything else is the recipe's own: secret sampling, clipping, noise, steps
and rounds. The attacker sees every noised release and decides, by its likelihood, whether each canary was there. No two
canaries share a coordinate, so their noise is independent, and each is a trial of its own.

Three figures, beside the ε that is claimed:
- right guesses of all canaries against the most that the claim allows, (1 + δ(0))/2 of them, by an exact binomial test.
  Its power is that against a sensitivity √2 too large, by a simulation of the same attacker;
- a lower bound of ε by Steinke, Nasr and Jagielski (2023, Theorem 5.2), which assumes no independence, from the
  guesses that the attacker is surest of;
- an estimate as Andrew et al. (2024) make it: the ε of two Gaussians with the mean and the spread of the scores.
Results tell about private data, and are shown to nobody else; keys must be a simulation's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import UsageError, VerificationError
from artifacts.writing import scratch
from stages.account import check_delta
from stages.execution.progress import Report, silent
from stages.privacy.accountant import epsilon
from stages.privacy.events import PrivacyEvent
from stages.recipes.recipe import Recipe, assigned
from stages.trials.attacker import Attacker, Scores, likelihood
from stages.trials.canary_clients import run_with_clients
from stages.trials.canary_records import run_with_records
from stages.trials.runs import prepared

_CONFIDENCE = 0.95
_SHARES = (1.0, 0.5, 0.25, 0.1, 0.05)  # of the canaries that are guessed; each pays for the choice among them
_SIMULATED = 40_000
_TOSS = 12345  # which canaries are there; the attacker's to guess, so any draw that the program does not see will do


@dataclass(frozen=True, kw_only=True)
class EmpiricalReport:
    """`p_value`: the chance of so many right guesses or more, if the claim holds. Refuted below 1 − confidence."""

    recipe: str
    unit: str
    canaries: int
    releases: int
    delta: float
    claimed: float
    right: int
    most_right: float
    p_value: float
    power: float
    lower_bound: float
    estimate: float

    @property
    def refuted(self) -> bool:
        return self.p_value < 1 - _CONFIDENCE or self.lower_bound > self.claimed

    def to_json(self) -> dict[str, Any]:
        found = dataclasses.asdict(self) | {"confidence": _CONFIDENCE, "refuted": self.refuted, "custody": "private"}
        return {name: "inf" if value == math.inf else value for name, value in found.items()}

    @property
    def error(self) -> VerificationError | None:
        return VerificationError(f"{self.recipe}: canaries refute the ε that it claims.") if self.refuted else None


def audit_empirically(
    recipe: Recipe, *, delta: float, canaries: int = 1000, seed: int = 0, report: Report = silent
) -> EmpiricalReport:
    """Run the shrunk recipe with canaries in one client's data, and attack what is released."""
    check_delta(delta)
    if canaries < 2:
        raise UsageError(f"--canaries must be at least 2, found {canaries}.")
    if "train-generator" in recipe.stages:
        # No amplification is claimed for a share of the images: a canary that is left out would only hide the others.
        recipe = assigned(recipe, {"train-generator.data_fraction": 1.0})
    with scratch.scratch(scratch.cache_folder(), "empirical") as folder:
        trial = prepared(recipe, folder, seed)
        unit = next((unit for unit in ("record", "client") if unit in trial.units), None)
        if unit is None:
            raise UsageError(
                f"recipe {recipe.name} has an ε for a {trial.units[0]}: canaries are records or clients. "
                "audit --neighbours compares this one."
            )
        there = np.random.default_rng([_TOSS, seed]).random(canaries) < 0.5
        attacker = Attacker(canaries)
        run = run_with_records if unit == "record" else run_with_clients
        events = run(trial, attacker, there, report)
    return judged(recipe.name, unit, there, attacker, events, delta)


def judged(
    recipe: str, unit: str, there: NDArray[np.bool_], attacker: Attacker, events: Sequence[PrivacyEvent], delta: float
) -> EmpiricalReport:
    """What the releases say of the events that were claimed for them."""
    if not attacker.seen:
        raise UsageError(
            f"recipe {recipe} releases nothing that canaries are in. audit --neighbours compares this one."
        )
    rates = [event.sampling_rate for event in events for _ in range(event.steps)]
    if len(attacker.seen) > len(rates):
        raise VerificationError(
            f"{recipe}: {len(attacker.seen)} releases were made, and {len(rates)} are in its events."
        )
    scores = attacker.scores(rates[: len(attacker.seen)])  # a loop may end early, and is charged in full
    right = (scores > 0) == there
    count = len(there)
    most = most_right(events)
    return EmpiricalReport(
        recipe=recipe, unit=unit, canaries=count, releases=len(attacker.seen), delta=delta,
        claimed=epsilon(events, delta=delta).pld, right=int(right.sum()), most_right=most,
        p_value=at_least(int(right.sum()), count, most), power=power(events, count, length=attacker.length),
        lower_bound=one_run_bound(scores, there, delta), estimate=estimated(scores, there, delta),
    )  # fmt: skip


def most_right(events: Sequence[PrivacyEvent]) -> float:
    """The share of coins that anybody can guess who sees what these events released: (1 + δ(0))/2."""
    low, high = 1e-9, 1 - 1e-9
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon(events, delta=middle).pld <= 1e-9 else (middle, high)
    return (1 + high) / 2


def at_least(right: int, count: int, share: float) -> float:
    from scipy.stats import binom

    return float(binom.sf(right - 1, count, share))


def power(events: Sequence[PrivacyEvent], canaries: int, *, length: float = 1.0, factor: float = math.sqrt(2)) -> float:
    """The chance that contributions longer by this factor are refuted by right guesses alone.

    How many this attacker guesses right is simulated, with forty thousand canaries.
    """
    from scipy.stats import binom

    rng = np.random.default_rng(0)
    there = np.arange(_SIMULATED) % 2 == 0
    scores = np.zeros(_SIMULATED)
    for event in events:
        for _ in range(event.steps):
            drawn = there & (rng.random(_SIMULATED) < event.sampling_rate)
            values = drawn * factor * length + event.noise_multiplier * rng.normal(size=_SIMULATED)
            scores += likelihood(values, event.noise_multiplier, event.sampling_rate, length)
    critical = int(binom.isf(1 - _CONFIDENCE, canaries, most_right(events))) + 1
    return float(binom.sf(critical - 1, canaries, float(((scores > 0) == there).mean())))


def one_run_bound(scores: Scores, there: NDArray[np.bool_], delta: float) -> float:
    """ε at least, at the confidence, by Theorem 5.2: of the r guesses that the attacker is surest of, v are right."""
    order = np.argsort(-np.abs(scores - np.median(scores)), kind="stable")
    right = ((scores > np.median(scores)) == there)[order]
    best, error = 0.0, (1 - _CONFIDENCE) / len(_SHARES)
    for share in _SHARES:
        guesses = max(1, int(share * len(there)))
        found = _bound(len(there), guesses, int(right[:guesses].sum()), delta, error)
        best = max(best, found)
    return best


def _bound(canaries: int, guesses: int, right: int, delta: float, error: float) -> float:
    """The largest ε that so many right guesses refute."""
    low, high = 0.0, 50.0
    if _chance(canaries, guesses, right, 0.0, delta) > error:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _chance(canaries, guesses, right, middle, delta) <= error else (low, middle)
    return low


def _chance(canaries: int, guesses: int, right: int, eps: float, delta: float) -> float:
    """Of `right` guesses or more under (ε, δ): β + 2mδ·max_i P[v > W ≥ v − i]/i, W binomial with e^ε/(1 + e^ε)."""
    from scipy.stats import binom

    q = 1 / (1 + math.exp(-eps))
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, q))
    worst = float(np.max(below / np.arange(1, right + 1))) if right else 0.0
    return min(1.0, float(binom.sf(right - 1, guesses, q)) + 2 * canaries * delta * worst)


def estimated(scores: Scores, there: NDArray[np.bool_], delta: float) -> float:
    """ε of two Gaussians of equal spread, as far apart as the scores of canaries that were and were not there."""
    inside, outside = scores[there], scores[~there]
    if min(len(inside), len(outside)) < 2:
        return 0.0
    spread = math.sqrt((inside.var(ddof=1) + outside.var(ddof=1)) / 2)
    apart = float(inside.mean() - outside.mean()) / spread if spread else math.inf
    if apart <= 1e-6:
        return 0.0
    event = PrivacyEvent.planned(
        unit="record", sampling_rate=1.0, noise_multiplier=min(1e6, max(1e-3, 1 / apart)), clip_norm=1.0, steps=1,
        trust="nobody",
    )  # fmt: skip
    return epsilon([event], delta=delta).pld
