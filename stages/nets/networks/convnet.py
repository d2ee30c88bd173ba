"""The ConvNet of dataset condensation."""

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
class ConvNet(Network):
    """Blocks of convolution, group norm, ReLU and average pooling, then one linear layer."""

    reference: ClassVar[str] = "FedLAP-DP App. B.1, FedDM App. F"
    initial_weights: ClassVar[InitialWeights] = "layers"

    arch: Literal["convnet"] = hyper("convnet", "convnet: FedLAP-DP App. B.1, FedDM App. F", source="paper")
    width: int = hyper(128, "convnet: channels of each convolution (128, the paper's)", source="paper", unit="channels")
    depth: int = hyper(
        3, "convnet: number of convolutions, each halving the image (3, the paper's)", source="paper", unit="layers"
    )

    def check(self) -> None:
        self.require(self.width >= 1, "width", "at least 1")
        self.require(self.depth >= 1, "depth", "at least 1")

    @staticmethod
    def build(shape: InputShape, *, width: int, depth: int) -> nn.Module:
        from stages.nets.convnet import convnet

        return convnet(shape, width, depth)
