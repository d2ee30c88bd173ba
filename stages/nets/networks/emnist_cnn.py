"""The «simple CNN» of DP-FedSAM."""

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
class EmnistCnn(Network):
    """Two convolutions and two fully connected layers (McMahan et al. 2017, Sec. 3)."""

    reference: ClassVar[str] = "DP-FedSAM Sec. 6.1"
    initial_weights: ClassVar[InitialWeights] = "layers"

    arch: Literal["emnist-cnn"] = hyper("emnist-cnn", "emnist-cnn: DP-FedSAM Sec. 6.1", source="paper")

    @staticmethod
    def build(shape: InputShape) -> nn.Module:
        from stages.nets.emnist_cnn import emnist_cnn

        return emnist_cnn(shape)
