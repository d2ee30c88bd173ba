"""Hyper-parameters of `synthesize`. Free of torch: `--help` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stages.hyperparameters import By, HyperParameters, When, hyper
from stages.registry import GENERATORS

Labels = Literal["frequency", "uniform", "learnt", "given"]
Sampler = Literal["ddpm", "ddim", "dpm-solver"]

MOST_IMAGES = 10_000_000


def _samplers(family: str) -> Mapping[str, int]:
    """The ways to draw an image in several steps that a family of generators has, the default one first."""
    declared: Any = GENERATORS.chosen({"family": family})
    samplers: Mapping[str, int] = declared.samplers
    return samplers


def learnt_classes(family: str) -> str | None:
    """The tensor by which a generator says which classes it can make, if its family does."""
    declared: Any = GENERATORS.chosen({"family": family})
    name: str | None = declared.learnt_classes
    return name


class _FirstSampler(By):
    """Each family of generators says how it may be sampled."""

    def __init__(self) -> None:
        super().__init__("family", {})

    def of(self, params: Any) -> Any:
        return next(iter(_samplers(params.family)), None)

    def __str__(self) -> str:
        return "dpm-solver with a ddpm"


class _UsualSteps(By):
    """Each sampler has its usual number of steps."""

    def __init__(self) -> None:
        super().__init__("sampler", {})

    def of(self, params: Any) -> Any:
        return _samplers(params.family).get(params.sampler)

    def __str__(self) -> str:
        return "25 with dpm-solver, 250 with ddpm, 50 with ddim"


_SEVERAL_STEPS = When("a generator that draws in several steps, a ddpm", lambda params: bool(_samplers(params.family)))


@dataclass(frozen=True, kw_only=True)
class Synthesis(HyperParameters):
    """How many images of which classes, and how a diffusion model draws them.

    `family` and `private` are facts about the generator, which its file states: nobody gives them.
    """

    family: str = hyper("ddpm", "The generator's family.", is_fact=True)
    private: bool = hyper(False, "Whether the generator was trained with differential privacy.", is_fact=True)
    count: int | None = hyper(
        None, "Number of images; with --label-list it may be left out.", symbol="ñ", unit="images"
    )
    labels: Labels = hyper(
        By("private", {False: "frequency", True: "uniform"}),
        "frequency: as often as in the generator's training data, which is declared; uniform: over all classes, those "
        "never seen included; learnt: over those that a merf found in its noised sums; given: by --label-list. Without "
        "DP frequency, under DP uniform, as frequency is refused",
        source="paper",
    )
    label_list: str | None = hyper(None, "Classes by number or name, with counts or without: 3,3,5 or 3:10,cat:5.")
    sampler: Sampler | None = hyper(
        _FirstSampler(), "ddpm: the paper's; ddim; dpm-solver: a tenth of the steps.", source="paper", panel="ddpm",
        when=_SEVERAL_STEPS,
    )  # fmt: skip
    sampling_steps: int | None = hyper(
        _UsualSteps(), "Steps from noise to image.", source="paper", panel="ddpm", when=_SEVERAL_STEPS, unit="steps"
    )

    def check(self) -> None:
        self.require(self.count is None or 1 <= self.count <= MOST_IMAGES, "count", f"from 1 to {MOST_IMAGES}")
        given = self.labels == "given"
        self.require((self.label_list is not None) == given, "label_list", "given with --labels given, and only then")
        self.require(self.count is not None or given, "count", "given (only --label-list can stand in for it)")
        self.require(self.sampling_steps is None or self.sampling_steps >= 1, "sampling_steps", "at least 1")
        samplers = _samplers(self.family)
        known = self.sampler is None or self.sampler in samplers
        self.require(known, "sampler", f"one of {', '.join(samplers)} with a {self.family}")
        if self.labels == "learnt" and learnt_classes(self.family) is None:
            raise ValueError(f"--labels learnt goes with --family merf: a {self.family} does not say what it learnt")
        if self.private and self.labels == "frequency":
            # A number taken from private data without noise (privacy contract, 13).
            raise ValueError("--labels frequency is refused: it would tell the class counts of a DP generator's data")
