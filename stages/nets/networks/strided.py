"""A convolutional network that is small and quick: for many clients, and for noise that grows with the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from stages.hyperparameters import hyper
from stages.nets.params import InitialWeights, InputShape, Network
from stages.registry import NETWORKS

if TYPE_CHECKING:
    from torch import nn


@NETWORKS.register
@dataclass(frozen=True, kw_only=True)
class Strided(Network):
    """Two 5×5 convolutions of stride 2 in place of poolings, and one linear layer."""

    reference: ClassVar[str] = "ours"
    initial_weights: ClassVar[InitialWeights] = "layers"

    arch: Literal["strided"] = hyper("strided", "strided: two convolutions of stride 2, a linear layer")
    width: int = hyper(
        8, "strided: channels of the first convolution (8); the second has twice as many", unit="channels"
    )

    def check(self) -> None:
        self.require(self.width >= 1, "width", "at least 1")

    @staticmethod
    def build(shape: InputShape, *, width: int) -> nn.Module:
        from stages.nets.strided import strided

        return strided(shape, width)
