"""Hyper-parameters of FedLAP and FedLAP-DP: the client's in `encode --method fedlap`, the server's in `aggregate`.

Defaults are the paper's for training without DP, except the images' step size: 100 suits natural images of 32×32 and a
net of width 128, 10 digits and one of width 32; 1 is slow and safe. What the paper leaves open, and what its code has
instead, stands in docs/deviations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import hyper
from stages.methods.params.schedule import RateSchedule
from stages.methods.params.surrogates import SurrogateSet

_MATCHING = "fedlap: how gradients are matched"
_MSE_WEIGHT = 0.1
AUGMENTATIONS = ("colour", "crop", "cutout", "flip", "scale", "rotate")


@dataclass(frozen=True, kw_only=True)
class FedLapEncoding(SurrogateSet, RateSchedule):
    """Algorithm 1, and with noise Algorithm 2."""

    method: Literal["fedlap"] = hyper("fedlap", "fedlap: a synthetic set whose gradients are those of the data.")
    radius: float = hyper(
        10.0, "Trajectories end beyond this distance from the model; the calibrated radius is at most this.",
        symbol="r", source="paper", panel=_MATCHING,
    )  # fmt: skip
    trajectories: int = hyper(1, "Walks away from the model.", symbol="R_i", source="paper", panel=_MATCHING)
    points: int = hyper(5, "Most points of a walk at which gradients are matched.", source="paper", panel=_MATCHING)
    batches: int = hyper(40, "Real batches at each point.", symbol="N", source="paper", panel=_MATCHING)
    image_steps: int = hyper(
        5, "Steps of the images for each real batch.", symbol="R_b", source="paper", panel=_MATCHING
    )
    model_steps: int = hyper(
        0, "Steps of the model on the images between two points; 0 stays at the start.", symbol="R_l", source="paper",
        panel=_MATCHING,
    )  # fmt: skip
    distance: Literal["cosine", "cosine+mse", "mse"] = hyper(
        "cosine+mse",
        "Between gradients, row by row of each layer: angle alone, angle and squared difference (Eq. 16), or the "
        "difference alone (Eq. 19).",
        source="paper",
        panel=_MATCHING,
    )
    mse_weight: float | None = hyper(
        None, "Weight of the squared difference in cosine+mse (0.1).", symbol="λ", source="paper", panel=_MATCHING
    )
    rows: Literal["mean", "sum"] = hyper(
        "mean", "Over the rows of a layer (Eq. 17): the sum as printed, or the mean, as the figures were made.",
        panel=_MATCHING,
    )  # fmt: skip
    match: Literal["all", "class"] = hyper(
        "all", "Match one gradient of all classes together, or class by class, as DSC does.", source="paper",
        panel=_MATCHING,
    )  # fmt: skip
    calibrate: bool = hyper(
        False, "Send the norms of the real gradient's layers for Eq. 18. They are declared.", panel=_MATCHING
    )
    augment: str | None = hyper(
        None, f"Differentiable augmentation, one or more of {','.join(AUGMENTATIONS)}; flips hurt digits.",
        panel=_MATCHING,
    )  # fmt: skip
    radius_steps: int = hyper(
        100, "Most steps of the model on the images alone when the radius is calibrated.", source="paper",
        panel=_MATCHING,
    )  # fmt: skip
    radius_examples: int = hyper(
        512, "Real images, drawn once, on which the loss is measured for that.", panel=_MATCHING
    )

    @property
    def accesses(self) -> int:
        return self.trajectories * self.points * self.batches

    @property
    def squared_weight(self) -> float:
        """λ of Eq. 16, or what stands in its place."""
        if self.distance == "cosine+mse":
            return _MSE_WEIGHT if self.mse_weight is None else self.mse_weight
        return 1.0 if self.distance == "mse" else 0.0

    @property
    def augmentations(self) -> tuple[str, ...]:
        return tuple(word.strip() for word in self.augment.split(",")) if self.augment else ()

    def check(self) -> None:
        super().check()
        self.require(self.radius > 0, "radius", "above 0")
        for name in ("trajectories", "points", "batches", "image_steps", "radius_steps", "radius_examples"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        self.require(self.model_steps >= 0, "model_steps", "0 or more")
        weighted = self.distance == "cosine+mse"
        self.require(self.mse_weight is None or weighted, "mse_weight", "given with --distance cosine+mse only")
        self.require(self.mse_weight is None or self.mse_weight >= 0, "mse_weight", "0 or more")
        known = all(word in AUGMENTATIONS for word in self.augmentations)
        self.require(known, "augment", f"a list of {', '.join(AUGMENTATIONS)}")
        if self.is_private and self.match == "class":
            raise ValueError("--match class takes one release for each class; under differential privacy match all")
        if self.is_private and self.calibrate:
            raise ValueError("--calibrate would send norms of real gradients without noise")


@dataclass(frozen=True, kw_only=True)
class FedLapOptimisation(RateSchedule):
    """The server's side: Eq. 11, gradient descent on the union of the sets, inside the region where they are good."""

    rule: Literal["fedlap"] = hyper("fedlap", "fedlap: descend on the clients' synthetic sets, within their radius.")
    weights: Literal["uniform", "examples"] = hyper(
        "uniform", "Weigh clients equally, or by the number of examples that they declare.", symbol="N_k/N"
    )
    strategy: Literal["min", "max", "median", "fixed"] = hyper(
        "min", "Which of the clients' radii bounds the walk; fixed: --server-steps steps, wherever they lead.",
        source="paper", panel="Surrogates",
    )  # fmt: skip
    radius: float | None = hyper(
        None, "No farther than this; needed where the sets bring no radius (DP).", symbol="r", panel="Surrogates"
    )
    server_steps: int = hyper(100, "Most steps of a round.", source="paper", panel="Surrogates")
    calibrated: bool = hyper(
        False, "Give each layer of a set's gradient the norm that its client measured (Eq. 18).", panel="Surrogates"
    )
    images_per_class: int | None = hyper(
        None, "The number that was agreed on; a client that sends more is refused.", symbol="ipc", panel="Surrogates"
    )

    def check(self) -> None:
        super().check()
        self.require(self.radius is None or self.radius > 0, "radius", "above 0")
        self.require(self.server_steps >= 1, "server_steps", "at least 1")
        self.require(self.images_per_class is None or self.images_per_class >= 1, "images_per_class", "at least 1")
        if self.strategy == "fixed" and self.radius is not None:
            raise ValueError("--strategy fixed has no radius: leave out --radius")
