"""VGG-11 and VGG-13 for small images."""

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
class Vgg11(Network):
    """Configuration A without batch norm: by torch's default rule it does not start to learn."""

    reference: ClassVar[str] = "Fedssyn Sec. 4"
    initial_weights: ClassVar[InitialWeights] = "he-normal"

    arch: Literal["vgg11"] = hyper("vgg11", "vgg11: Fedssyn Sec. 4", source="paper")

    @staticmethod
    def build(shape: InputShape) -> nn.Module:
        from stages.nets.vgg import vgg11

        return vgg11(shape)


@NETWORKS.register
@dataclass(frozen=True, kw_only=True)
class Vgg13(Network):
    """Configuration B with batch norm."""

    reference: ClassVar[str] = "TOFU Sec. 1 and 7.3.1"
    initial_weights: ClassVar[InitialWeights] = "he-normal"

    arch: Literal["vgg13"] = hyper("vgg13", "vgg13: TOFU Sec. 1 and 7.3.1", source="paper")

    @staticmethod
    def build(shape: InputShape) -> nn.Module:
        from stages.nets.vgg import vgg13

        return vgg13(shape)
