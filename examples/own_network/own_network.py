"""A network, an algorithm with state and an encoder of one's own: one file, or installed by the pyproject.toml."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from artifacts.formats import any_file
from stages.hyperparameters import hyper
from stages.methods.params.encoding import Encoder
from stages.methods.params.local_training import BatchTraining
from stages.nets.params import Network
from stages.registry import ALGORITHMS, ENCODERS, NETWORKS


@NETWORKS.register
@dataclass(frozen=True, kw_only=True)
class Patches(Network):
    reference: ClassVar[str] = "after Trockman and Kolter 2022, Patches Are All You Need?"

    arch: Literal["patches"] = hyper("patches", "patches: convolutions on patches of the image")
    channels: int = hyper(16, "patches: numbers that describe a patch")

    @staticmethod
    def build(shape, *, channels):
        from torch import nn

        return nn.Sequential(
            nn.Conv2d(shape.channels, channels, kernel_size=2, stride=2),
            nn.GELU(),
            nn.GroupNorm(1, channels),
            nn.Conv2d(channels, channels, kernel_size=3, groups=channels, padding=1),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(channels * (shape.height // 2) * (shape.width // 2), shape.num_classes),
        )


@ALGORITHMS.register
@dataclass(frozen=True, kw_only=True)
class HeavyBall(BatchTraining):
    keeps_state: ClassVar[bool] = True  # each client keeps its velocity, which never leaves

    algorithm: Literal["heavy-ball"] = hyper("heavy-ball", "heavy-ball: a client goes on in its last round's direction")
    inertia: float = hyper(0.3, "heavy-ball: share of that direction in each gradient")

    def client(self, named, own, server):
        return _Velocity(named, own, self.inertia)


class _Velocity:
    def __init__(self, named, own, inertia):
        self.start = {name: weight.detach().clone() for name, weight in named.items()}
        self.own, self.inertia = own, inertia

    def correct(self, named):
        for name, velocity in self.own.items():
            named[name].grad.add_(velocity, alpha=self.inertia)

    def finish(self, named, num_steps, rate):
        return {name: (start - named[name].detach()) / (num_steps * rate) for name, start in self.start.items()}


@ENCODERS.register
@dataclass(frozen=True, kw_only=True)
class Rounded(Encoder):
    performed_by: ClassVar[str] = f"{__name__}:encode_rounded"
    kind: ClassVar[str] = "message"
    reads: ClassVar[tuple[str, ...]] = ("update",)
    additive: ClassVar[bool] = True

    method: Literal["rounded"] = hyper("rounded", "rounded: every number of the update to a multiple of a step")
    step: float = hyper(0.001, "rounded: the step")


def encode_rounded(model, update, out, *, params, key=None, client=None, force=False):
    from stages.updates.client import Outgoing

    made = Outgoing.read(model, update, out, kind="update", custody="outbound", key=key, client=client)
    metadata = made.described(params, disclosed=[])
    any_file.refuse_other(out, metadata, force=force)
    rounded = {n: (np.round(t / params.step) * params.step).astype(np.float32) for n, t in made.change.tensors.items()}
    return made.write(rounded, metadata, force=force)
