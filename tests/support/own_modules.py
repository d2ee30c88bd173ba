"""Networks whose `build` is any function of a test."""

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import hyper
from stages.nets.params import InputShape, Network

SHAPE = InputShape(channels=1, height=4, width=4, num_classes=3)


def net(module, **params):
    """A network whose `build` is this function."""

    @dataclass(frozen=True, kw_only=True)
    class Own(Network):
        arch: Literal["own"] = hyper("own", "own")
        build = staticmethod(lambda shape: module())

    return Own(**params)
