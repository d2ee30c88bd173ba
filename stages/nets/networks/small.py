"""Softmax regression and the multi-layer perceptron: small enough for client-level noise on a few hundred clients."""

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
class Softmax(Network):
    """One linear layer on the pixels."""

    reference: ClassVar[str] = "ours"
    initial_weights: ClassVar[InitialWeights] = "layers"

    arch: Literal["softmax"] = hyper("softmax", "softmax: one linear layer")

    @staticmethod
    def build(shape: InputShape) -> nn.Module:
        from stages.nets.small import softmax

        return softmax(shape)


@NETWORKS.register
@dataclass(frozen=True, kw_only=True)
class Mlp(Network):
    """Hidden layers of ReLU units."""

    reference: ClassVar[str] = "ours"
    initial_weights: ClassVar[InitialWeights] = "layers"

    arch: Literal["mlp"] = hyper("mlp", "mlp: hidden layers of ReLU units")
    width: int = hyper(64, "mlp: units of each hidden layer (64)", unit="units")
    depth: int = hyper(1, "mlp: hidden layers (1)", unit="layers")

    def check(self) -> None:
        self.require(self.width >= 1, "width", "at least 1")
        self.require(self.depth >= 1, "depth", "at least 1")

    @staticmethod
    def build(shape: InputShape, *, width: int, depth: int) -> nn.Module:
        from stages.nets.small import mlp

        return mlp(shape, width, depth)
