"""LeNet-5 as TOFU has it."""

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
class LeNet5(Network):
    """Two convolutions, the second one twice, and two fully connected layers."""

    reference: ClassVar[str] = "TOFU Sec. 4.1 and 7.3.1"
    initial_weights: ClassVar[InitialWeights] = "layers"

    arch: Literal["lenet5"] = hyper("lenet5", "lenet5: TOFU Sec. 4.1 and 7.3.1", source="paper")

    @staticmethod
    def build(shape: InputShape) -> nn.Module:
        from stages.nets.lenet5 import lenet5

        return lenet5(shape)
