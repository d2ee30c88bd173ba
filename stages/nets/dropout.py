"""Dropout whose masks come from a generator that is handed to it, never from global random state.

`nn.Dropout` draws from torch's global generator: what it drops would depend on everything that ran before
it in the process, and a stage could not be replayed. Design, «Randomness»: randomness comes in as an
argument.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """In training, zero each unit with probability `p` and scale the others by 1/(1−p); in evaluation, nothing.

    With `leading` the draw is one for each index of so many leading dimensions: 2 drops whole channels, 1 whole
    examples. Under `torch.func.vmap` the masks differ from example to example if `randomness="different"`.
    """

    def __init__(self, p: float = 0.5, *, leading: int | None = None) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"a dropout probability must be at least 0 and less than 1, found {p!r}")
        self.p = p
        self.leading = leading
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        generator = self.generator
        if generator is None:
            raise RuntimeError("dropout in training needs a generator: call set_dropout_generator, or eval()")
        # Drawn where the generator lives and always in float32: the mask is the same on every device and precision.
        count = x.dim() if self.leading is None else self.leading
        drawn = (*x.shape[:count], *(1 for _ in x.shape[count:]))
        draw = torch.rand(drawn, generator=generator, device=generator.device, dtype=torch.float32)
        keep = (draw >= self.p).to(device=x.device, dtype=x.dtype)
        return x * keep / (1 - self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no generator: two networks that share a stream, or its state, would drop in step."""
        return {**self.__dict__, "generator": None}


def set_dropout_generator(module: nn.Module, generator: torch.Generator | None) -> None:
    """Let every dropout in `module` draw from `generator`, in the order in which they are called."""
    for layer in module.modules():
        if isinstance(layer, Dropout):
            layer.generator = generator
