"""Random draws as data: what an example needs is declared, and the training decides where it comes from.

An ordinary training draws from a torch generator seeded for the step; a differentially private one must draw from the
client's secret stream (privacy contract, 7). The loss sees the numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stages.privacy.streams import SecretStream

Draws = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One draw for one example: standard normal numbers, a whole number below `below`, or what dropout keeps.

    `step` is no draw but the number of the step, from 1, for a loss that changes while it is trained.
    """

    law: Literal["normal", "integer", "keep", "step"]
    shape: tuple[int, ...] = ()
    below: int = 0
    probability: float = 1.0


def drawn(declared: Mapping[str, Draw], count: int, generator: torch.Generator, *, step: int = 0) -> dict[str, Tensor]:
    """The draws of `count` examples, stacked, in the order of the declaration. They live where the generator does."""
    return {name: _drawn(draw, (count, *draw.shape), generator, step) for name, draw in declared.items()}


def secretly_drawn(
    declared: Mapping[str, Draw], count: int, times: int, stream: SecretStream, *, step: int = 0
) -> dict[str, Tensor]:
    """The same from a secret stream, on the CPU, `times` draws for each example: [count, times, …]."""
    return {name: _secretly_drawn(draw, (count, times, *draw.shape), stream, step) for name, draw in declared.items()}


def _secretly_drawn(draw: Draw, shape: tuple[int, ...], stream: SecretStream, step: int) -> Tensor:
    if draw.law == "step":
        return torch.full(shape, float(step))
    if draw.law == "normal":
        return torch.from_numpy(stream.gaussian(shape, 1.0)).float()
    if draw.law == "integer":
        return torch.from_numpy(stream.randint(draw.below, shape))
    return torch.from_numpy(stream.bernoulli(draw.probability, math.prod(shape))).reshape(shape)


def _drawn(draw: Draw, shape: tuple[int, ...], generator: torch.Generator, step: int) -> Tensor:
    if draw.law == "step":
        return torch.full(shape, float(step), device=generator.device)
    if draw.law == "normal":
        return torch.randn(shape, generator=generator, device=generator.device)
    if draw.law == "integer":
        return torch.randint(draw.below, shape, generator=generator, device=generator.device)
    return torch.rand(shape, generator=generator, device=generator.device) < draw.probability
