"""Hyper-parameters of `synthesize`. Free of torch: `--help` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import HyperParameters, hyper

Labels = Literal["frequency", "uniform", "given"]
Sampler = Literal["ddpm", "ddim", "dpm-solver"]

MOST_IMAGES = 10_000_000
_STEPS: dict[str, int] = {"ddpm": 250, "ddim": 50, "dpm-solver": 25}


@dataclass(frozen=True, kw_only=True)
class Synthesis(HyperParameters):
    """How many images of which classes, and how a diffusion model draws them."""

    count: int | None = hyper(None, "Number of images; with --label-list it may be left out.", symbol="ñ")
    labels: Labels | None = hyper(
        None,
        "frequency: as often as in the generator's training data, which is declared (what is done if nothing is said; "
        "refused under DP); uniform: over all classes, those never seen included (what is done under DP); given: by "
        "--label-list.",
        source="paper",
    )
    label_list: str | None = hyper(None, "Classes by number or name, with counts or without: 3,3,5 or 3:10,cat:5.")
    sampler: Sampler | None = hyper(
        None, "ddpm: the paper's; ddim; dpm-solver, if not given: a tenth of the steps.", source="paper", panel="ddpm"
    )
    sampling_steps: int | None = hyper(
        None, "Steps from noise to image (ddpm 250, the paper's; ddim 50, dpm-solver 25).", source="paper", panel="ddpm"
    )

    def check(self) -> None:
        self.require(self.count is None or 1 <= self.count <= MOST_IMAGES, "count", f"from 1 to {MOST_IMAGES}")
        given = self.labels == "given"
        self.require((self.label_list is not None) == given, "label_list", "given with --labels given, and only then")
        self.require(self.count is not None or given, "count", "given (only --label-list can stand in for it)")
        self.require(self.sampling_steps is None or self.sampling_steps >= 1, "sampling_steps", "at least 1")

    def sampling(self) -> tuple[Sampler, int]:
        """Sampler and steps, with the defaults filled in."""
        sampler = self.sampler or "dpm-solver"
        return sampler, self.sampling_steps or _STEPS[sampler]

    def chosen_labels(self, *, private: bool) -> Labels:
        """Where the labels come from. Raises `ValueError` where differential privacy forbids it.

        The frequency of the classes is a number taken from private data without noise (privacy contract, 13).
        """
        if private and self.labels == "frequency":
            raise ValueError("--labels frequency is refused: it would tell the class counts of a DP generator's data")
        return self.labels or ("uniform" if private else "frequency")
