"""Hyper-parameters of FedLAP and FedLAP-DP: the client's in `encode --method fedlap`, the server's in `aggregate`.

Defaults are the paper's for training without DP, except the images' step size: 100 suits natural images of 32×32 and a
net of width 128, 10 digits and one of width 32; 1 is slow and safe. What the paper leaves open, and what its code has
instead, is in docs/deviations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from stages.hyperparameters import By, HyperParameters, When, hyper
from stages.methods.params.schedule import RateSchedule
from stages.methods.params.surrogates import SurrogateDescent, SurrogateSet
from stages.registry import ENCODERS, RULES

_MATCHING = "fedlap: how gradients are matched"
_WITHOUT_DP = When("--begin model and without DP", lambda params: params.begin == "model" and not params.is_private)
_WITH_ROWS = When("--distance cosine or cosine+mse", lambda params: params.distance != "mse")
_WITH_BOTH = When("--distance cosine+mse", lambda params: params.distance == "cosine+mse")
AUGMENTATIONS = ("colour", "crop", "cutout", "flip", "scale", "rotate")
Begin = Literal["model", "fresh"]


@dataclass(frozen=True, kw_only=True)
class Descent(HyperParameters):
    """What client and server do alike when a network descends on synthetic images."""

    augment: str | None = hyper(
        None,
        f"Differentiable augmentation, one or more of {','.join(AUGMENTATIONS)}: of both sides of the matching, and of "
        "the images wherever a network descends on them. Flips hurt digits.",
        panel="fedlap: the descent on synthetic images",
    )
    begin: Begin = hyper(
        "model",
        "Where a network begins: at the model's weights, or at weights drawn anew for each walk, as init-model draws "
        "them (DSC, PSG).",
        panel="fedlap: the descent on synthetic images",
    )

    @property
    def augmentations(self) -> tuple[str, ...]:
        return tuple(word.strip() for word in self.augment.split(",")) if self.augment else ()

    def check(self) -> None:
        super().check()
        known = all(word in AUGMENTATIONS for word in self.augmentations)
        self.require(known, "augment", f"a list of {', '.join(AUGMENTATIONS)}")


@ENCODERS.register
@dataclass(frozen=True, kw_only=True)
class FedLapEncoding(SurrogateSet, Descent, RateSchedule):
    """Algorithm 1, and with noise Algorithm 2."""

    rule: ClassVar[str] = "fedlap"

    method: Literal["fedlap"] = hyper("fedlap", "fedlap: a synthetic set whose gradients are those of the data.")
    radius: float = hyper(
        10.0, "Trajectories end beyond this distance from the model; the calibrated radius is at most this.",
        symbol="r", source="paper", panel=_MATCHING, unit="L2 distance",
    )  # fmt: skip
    trajectories: int = hyper(
        1, "Walks away from the model.", symbol="R_i", source="paper", panel=_MATCHING, unit="walks"
    )
    points: int = hyper(
        5, "Most points of a walk at which gradients are matched.", source="paper", panel=_MATCHING, unit="points"
    )
    batches: int = hyper(40, "Real batches at each point.", symbol="N", source="paper", panel=_MATCHING, unit="batches")
    image_steps: int = hyper(
        5, "Steps of the images for each real batch.", symbol="R_b", source="paper", panel=_MATCHING, unit="steps"
    )
    model_steps: int = hyper(
        0, "Steps of the model on the images between two points; 0 stays at the start.", symbol="R_l", source="paper",
        panel=_MATCHING, unit="steps",
    )  # fmt: skip
    network: str | None = hyper(
        None,
        "A network of the client's own, in place of the model's: an --arch of init-model, with its parameters after a "
        "colon, as convnet:width=16,depth=2. The set is then for any network.",
        panel=_MATCHING,
        when=When("--begin fresh", lambda params: params.begin == "fresh"),
    )
    targets: Literal["each", "mean"] = hyper(
        "each",
        "Match each real batch's gradient in turn, or the mean of all that were taken at the same weights; under DP "
        "that mean has less noise and costs no more.",
        panel=_MATCHING,
    )
    distance: Literal["cosine", "cosine+mse", "mse"] = hyper(
        "cosine+mse",
        "Between gradients, row by row of each layer: angle alone, angle and squared difference (Eq. 16), or the "
        "difference alone (Eq. 19).",
        source="paper",
        panel=_MATCHING,
    )
    mse_weight: float | None = hyper(
        By("distance", {"cosine+mse": 0.1}), "Weight of the squared difference beside the angle.", symbol="λ",
        source="paper", panel=_MATCHING, when=_WITH_BOTH,
    )  # fmt: skip
    rows: Literal["mean", "sum"] = hyper(
        "mean", "Over the rows of a layer (Eq. 17): the sum as printed, or the mean, as the figures were made.",
        panel=_MATCHING, when=_WITH_ROWS,
    )  # fmt: skip
    match: Literal["all", "class"] = hyper(
        "all", "Match one gradient of all classes together, or class by class, as DSC does.", source="paper",
        panel=_MATCHING,
    )  # fmt: skip
    last_layers: int | None = hyper(
        None,
        "Match the gradients of so many of the network's last layers, and look at no others: under DP noise is on "
        "fewer coordinates. Without it, of all.",
        panel=_MATCHING,
    )
    calibrate: bool = hyper(
        False, "Send the norms of the real gradient's layers for Eq. 18. They are declared.", panel=_MATCHING
    )
    radius_steps: int = hyper(
        100, "Most steps of the model on the images alone when the radius is calibrated.", source="paper",
        panel=_MATCHING, when=_WITHOUT_DP, unit="steps",
    )  # fmt: skip
    radius_examples: int = hyper(
        512,
        "Real images, drawn once, on which the loss is measured for that.",
        panel=_MATCHING,
        when=_WITHOUT_DP,
        unit="images",
    )

    @property
    def accesses(self) -> int:
        return self.trajectories * self.points * self.batches

    def check(self) -> None:
        super().check()
        self.require(self.radius > 0, "radius", "above 0")
        if self.begin == "fresh" and self.calibrate:
            raise ValueError("--calibrate measures norms at the model's weights: leave out --begin fresh")
        for name in ("trajectories", "points", "batches", "image_steps", "radius_steps", "radius_examples"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        self.require(self.last_layers is None or self.last_layers >= 1, "last_layers", "at least 1")
        if self.last_layers is not None and self.calibrate:
            raise ValueError("--calibrate gives norms of all layers back: leave out --last-layers")
        self.require(self.model_steps >= 0, "model_steps", "0 or more")
        weighted = self.distance == "cosine+mse"
        self.require(not weighted or self.mse_weight is not None, "mse_weight", "given with --distance cosine+mse")
        self.require(self.mse_weight is None or self.mse_weight >= 0, "mse_weight", "0 or more")
        if self.is_private and self.match == "class":
            raise ValueError("--match class takes one release for each class; under differential privacy match all")
        if self.is_private and self.calibrate:
            raise ValueError("--calibrate would send norms of real gradients without noise")


@RULES.register
@dataclass(frozen=True, kw_only=True)
class FedLapOptimisation(SurrogateDescent, Descent, RateSchedule):
    """The server's side: Eq. 11, gradient descent on the union of the sets, inside the region where they are good."""

    agrees: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "encode": (
            "images_per_class",
            "radius",
            "learning_rate",
            "lr_schedule",
            "lr_decay",
            "lr_steps",
            "schedule_rounds",
            "augment",
            "begin",
        )
    }

    rule: Literal["fedlap"] = hyper("fedlap", "fedlap: descend on the clients' synthetic sets, within their radius.")
    weights: Literal["uniform", "examples"] = hyper(
        "uniform", "Weigh clients equally, or by the number of examples that they declare.", symbol="N_k/N"
    )
    strategy: Literal["min", "max", "median", "fixed"] = hyper(
        "min", "Which of the clients' radii bounds the walk; fixed: --server-steps steps, wherever they lead.",
        source="paper", panel="Surrogates",
    )  # fmt: skip
    radius: float | None = hyper(
        None, "No farther than this; needed where the sets bring no radius (DP).", symbol="r", panel="Surrogates",
        when=When("--strategy min, max or median", lambda params: params.strategy != "fixed"), unit="L2 distance",
    )  # fmt: skip
    server_steps: int = hyper(100, "Most steps of a round.", source="paper", panel="Surrogates", unit="steps")
    calibrated: bool = hyper(
        False, "Give each layer of a set's gradient the norm that its client measured (Eq. 18).", panel="Surrogates"
    )
    images_per_class: int | None = hyper(
        None,
        "The number that was agreed on; a client that sends more is refused.",
        symbol="ipc",
        panel="Surrogates",
        unit="images",
    )

    def check(self) -> None:
        super().check()
        self.require(self.radius is None or self.radius > 0, "radius", "above 0")
        self.require(self.server_steps >= 1, "server_steps", "at least 1")
        if self.begin == "fresh" and self.strategy != "fixed":
            raise ValueError("--begin fresh leaves the model, which radii are measured from: give --strategy fixed")
        self.require(self.images_per_class is None or self.images_per_class >= 1, "images_per_class", "at least 1")

    @classmethod
    def agreed(cls, recipe: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        shared = super().agreed(recipe)
        if recipe.get("aggregate", {}).get("strategy") == "fixed":
            shared.pop("radius", None)
        if recipe.get("encode", {}).get("calibrate"):
            shared["calibrated"] = True
        return shared
