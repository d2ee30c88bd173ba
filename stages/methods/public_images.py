"""TOFU with a public basis: images that everybody draws from the model's digest, and residuals found by least squares.

The gradient of the images is Jᵀr, linear in the residuals r (`residuals`). With images that client and server hold, r
alone is sent, n × classes numbers, and there is no search: r is a problem of least squares. Because J is the same for
all clients of a round, messages add up: the sum of the residuals decodes to the sum of the updates. No layer is scaled,
which would undo that.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stages.methods.params.public_images import PublicImages
from stages.methods.row_cosines import flat
from stages.methods.tofu import Proxy, decode, linear, traced
from stages.nets.state import trained


def draw(params: PublicImages, shape: tuple[int, int, int], seed: int) -> Tensor:
    """Smooth noise [n, c, h, w]: on networks for pictures worth more than noise that differs from pixel to pixel."""
    channels, height, width = shape
    random = torch.Generator().manual_seed(seed)
    coarse = torch.randn((params.images, channels, params.coarse, params.coarse), generator=random)
    return nn.functional.interpolate(coarse, size=(height, width), mode="bilinear")


def solve(module: nn.Module, update: Mapping[str, Tensor], images: Tensor, params: PublicImages) -> Tensor:
    """The residuals whose gradient is nearest to the update."""
    target = flat([update[name] for name in trained(module)])
    with torch.no_grad():
        nothing = torch.zeros_like(traced(module, images)[0])
    system = linear(module, images, params.micro_batch)
    return system.solve(nothing, target, torch.ones_like(target), params.iterations).detach()


def gradient(module: nn.Module, images: Tensor, residuals: Tensor) -> dict[str, Tensor]:
    """Jᵀr, by parameter."""
    scales = torch.ones(len(trained(module)), device=images.device)
    return decode(module, Proxy(images, residuals, scales))
