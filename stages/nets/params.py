"""What every network declares, and the images that it is for. Free of torch: `--help` reads it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stages.hyperparameters import HyperParameters, hyper
from stages.nets.generator_params import ImageShape

if TYPE_CHECKING:
    from torch import nn

# How a new network gets its weights. `layers`: each layer by torch's own rule, uniform within ±1/√fan-in (He et al.
# 2015 with a=√5). `he-normal`: normal with variance 2/fan-in, biases zero (He et al. 2015, Eq. 10). `module`: as the
# module's constructor draws them.
InitialWeights = Literal["layers", "he-normal", "module"]
SHAPE = ("channels", "height", "width", "num_classes")


@dataclass(frozen=True, kw_only=True)
class InputShape(ImageShape):
    """The images a network sees, and the number of classes it tells apart: one would be nothing to tell."""

    least_classes: ClassVar[int] = 2


@dataclass(frozen=True, kw_only=True)
class Network(HyperParameters):
    """A network: its fields are its parameters, `arch` the name by which it is asked for.

    `build` receives the shape of the images and every field but `arch`; it may import torch. It raises `ValueError`
    where the network cannot take images of this size.
    """

    build: ClassVar[Callable[..., Any]]
    reference: ClassVar[str] = ""  # where the network is described
    initial_weights: ClassVar[InitialWeights] = "module"

    arch: str = hyper("", "network")
    freeze: str | None = hyper(
        None,
        "Tensors that are neither trained nor sent, by name: patterns separated by commas, such as 'trunk.*'",
    )

    def made_for(self, shape: InputShape) -> nn.Module:
        """The module, as its constructor leaves it."""
        params = {name: getattr(self, name) for name in sorted(self.names() - Network.names())}
        module: nn.Module = type(self).build(shape, **params)
        return module


def matches(name: str, patterns: str | None) -> bool:
    """Whether one of the patterns, separated by commas, fits the name of a tensor: `trunk.*,*.bias`."""
    return patterns is not None and any(fnmatch.fnmatchcase(name, one.strip()) for one in patterns.split(","))


def network_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a model's parameters that describe its network; the others say how the model was made."""
    return {name: value for name, value in params.items() if name in SHAPE or name.startswith("net_")}
