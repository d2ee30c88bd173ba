"""ResNet-18 with group norm."""

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
class ResNet18(Network):
    """Eighteen layers with shortcuts (He et al. 2016), group norm in place of batch norm."""

    reference: ClassVar[str] = "DP-FedSAM Sec. 6.1"
    initial_weights: ClassVar[InitialWeights] = "he-normal"

    arch: Literal["resnet18"] = hyper("resnet18", "resnet18: DP-FedSAM Sec. 6.1", source="paper")

    @staticmethod
    def build(shape: InputShape) -> nn.Module:
        from stages.nets.resnet18 import resnet18

        return resnet18(shape)
