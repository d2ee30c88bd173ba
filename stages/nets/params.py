"""Which network, how wide, how deep, for which images. Free of torch: `--help` reads it.

The networks and their sources: `convnet` FedLAP-DP App. B.1 and FedDM App. F; `lenet5` and `vgg13` TOFU
Sec. 4.1 and 7.3.1; `vgg11` Fedssyn Sec. 4; `resnet18` and `emnist-cnn` DP-FedSAM Sec. 6.1. `softmax` and
`mlp` are ours, small enough for client-level noise on a few hundred clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from stages.hyperparameters import HyperParameters, hyper
from stages.nets.generator_params import ImageShape

# (width, depth) where none is given. The convnet's are those of FedLAP-DP App. B.1, the mlp's are ours.
_DEFAULT_SIZES: dict[str, tuple[int, int]] = {"convnet": (128, 3), "mlp": (64, 1)}


@dataclass(frozen=True, kw_only=True)
class NetParams(HyperParameters):
    """A network. `width` and `depth` belong to the networks that come in sizes, convnet and mlp."""

    arch: Literal["softmax", "mlp", "convnet", "lenet5", "vgg11", "vgg13", "resnet18", "emnist-cnn"] = hyper(
        "convnet", "network (convnet: FedLAP-DP App. B.1, FedDM App. F)", source="paper"
    )
    width: int | None = hyper(
        None,
        "convnet: channels of each convolution (128, the paper's); mlp: units of each hidden layer (64, ours)",
        source="paper",
    )
    depth: int | None = hyper(
        None,
        "convnet: number of convolutions, each halving the image (3, the paper's); mlp: hidden layers (1, ours)",
        source="paper",
    )

    def check(self) -> None:
        for name in ("width", "depth"):
            value = getattr(self, name)
            if value is None:
                continue
            if self.arch not in _DEFAULT_SIZES:
                sized = " and ".join(sorted(_DEFAULT_SIZES))
                raise ValueError(f"--{name} is for {sized} only; {self.arch} has one size, found {value!r}")
            self.require(value >= 1, name, "at least 1")

    def size(self) -> tuple[int, int]:
        """Width and depth, with the defaults of the architecture filled in."""
        if self.arch not in _DEFAULT_SIZES:
            raise ValueError(f"{self.arch} has neither a width nor a depth to choose")
        width, depth = _DEFAULT_SIZES[self.arch]
        return self.width or width, self.depth or depth

    def to_json(self) -> dict[str, Any]:
        """With the size spelt out: a model file must stay readable if a later version changes its defaults."""
        if self.arch not in _DEFAULT_SIZES:
            return super().to_json()
        width, depth = self.size()
        return {**super().to_json(), "width": width, "depth": depth}


@dataclass(frozen=True, kw_only=True)
class InputShape(ImageShape):
    """The images a network sees, and the number of classes it tells apart: one would be nothing to tell."""

    least_classes: ClassVar[int] = 2
