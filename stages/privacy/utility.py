"""What noise leaves of a signal, from public constants alone: before anything is trained, and without an ε of its own.

A step releases (Σ of contributions clipped to C + N(0, σ²C²·I)) / B in d dimensions, B = qN the number expected in it.
Its noise has the root mean square length σC√d/B. The mean of clipped contributions is at most C long, if all point one
way. Over T steps the noise grows as √T, and the signal at most as T. Both are proportional to C, so C is in no ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Limit = Literal["clip", "noise", "rounds"]

_WORTH_IT = 0.9  # twice the rounds help if they leave less than this of the ratio


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Public constants of a run; `steps` are those of all rounds together."""

    dimension: int
    clip_norm: float
    noise_multiplier: float
    batch_size: float
    steps: int

    def __post_init__(self) -> None:
        for name in ("dimension", "clip_norm", "batch_size"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"--{name.replace('_', '-')} must be above 0, found {value!r}")

    @property
    def ratio(self) -> float:
        """The noise of a step by the longest signal that it can have: σ√d/B."""
        return self.noise_multiplier * math.sqrt(self.dimension) / self.batch_size

    @property
    def ratio_of_run(self) -> float:
        """The same for all steps together: σ√d/(B√T)."""
        return self.ratio / math.sqrt(self.steps)


def utility(setting: Setting, noise_for: Callable[[int], float]) -> dict[str, Any]:
    """The lengths, their ratios, and what limits the run. `noise_for` so many steps is the σ that keeps the same ε."""
    noise = setting.ratio * setting.clip_norm
    return {
        "dimension": setting.dimension,
        "clip_norm": setting.clip_norm,
        "batch_size": setting.batch_size,
        "noise_of_a_step": noise,
        "longest_signal_of_a_step": setting.clip_norm,
        "ratio_of_a_step": setting.ratio,
        "noise_of_the_run": noise * math.sqrt(setting.steps),
        "longest_signal_of_the_run": setting.clip_norm * setting.steps,
        "ratio_of_the_run": setting.ratio_of_run,
        # With which the noise of the run is no longer than its longest signal, all else being equal.
        "batch_size_needed": math.ceil(setting.batch_size * setting.ratio_of_run),
        "limit": _limit(setting, noise_for),
    }


def _limit(setting: Setting, noise_for: Callable[[int], float]) -> Limit:
    """Noise shorter than the longest signal: how far clipped steps can go. Else noise, or rounds if more would help."""
    if setting.ratio_of_run < 1:
        return "clip"
    steps = 2 * setting.steps
    longer = noise_for(steps) / setting.noise_multiplier / math.sqrt(2)
    return "rounds" if longer < _WORTH_IT else "noise"
