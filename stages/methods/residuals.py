"""What soft labels and spanning ratios can do for given images, and how to find the best of them.

The gradient of Σ αᵢ L(θ(xᵢ), yᵢ) is Jᵀr, where J is how the logits z change with the weights and the residuals are
rᵢ = αᵢ(softmax(zᵢ) − yᵢ): labels and ratios act through these n × classes numbers alone, and linearly. In exact
arithmetic every r whose rows sum to zero can be had, up to a factor; lengths are restored by the scales. So the best r
is a problem of least squares, solved here by conjugate gradients without ever forming J.

Residuals are what is sent. Written as soft labels they would be lost on trained networks: where the softmax is
saturated, a residual lies below the last bit of the label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from stages.methods.row_cosines import flat, shaped


class Residuals:
    """r ↦ Jᵀr and v ↦ Jv at fixed images: one graph serves all products."""

    def __init__(self, logits: Tensor, leaves: Sequence[Tensor]) -> None:
        self._logits, self._leaves = logits, leaves
        self._any = torch.zeros_like(logits, requires_grad=True)
        self._linear = torch.autograd.grad(logits, leaves, self._any, create_graph=True)

    def gradient(self, residuals: Tensor) -> Tensor:
        return flat(torch.autograd.grad(self._logits, self._leaves, residuals, retain_graph=True))

    def answer(self, direction: Tensor) -> Tensor:
        """Jv, less the mean of each row: what residuals can use of it."""
        parts = shaped(direction, self._leaves)
        (found,) = torch.autograd.grad(self._linear, self._any, parts, retain_graph=True)
        return centred(found)

    def solve(self, first: Tensor, target: Tensor, weights: Tensor, steps: int) -> Tensor:
        """Towards the least ‖target − weights·Jᵀr‖, from `first`, by CG on the normal equations."""
        residuals, left = first, target - weights * self.gradient(first)
        slope = self.answer(weights * left)
        way, size = slope, slope.square().sum()
        for _ in range(steps):
            image = weights * self.gradient(way)
            length = image.square().sum()
            if not (size > 0 and length > 0):
                break
            residuals, left = residuals + size / length * way, left - size / length * image
            slope = self.answer(weights * left)
            before, size = size, slope.square().sum()
            way = slope + size / before * way
        return residuals


class ResidualsInPieces(Residuals):
    """The same with the graph of one piece of the images in memory at a time: each product goes over all of them.

    `trace` gives the logits of some rows and the parameters that they were computed from.
    """

    def __init__(self, trace: Callable[[slice], tuple[Tensor, Sequence[Tensor]]], pieces: Sequence[slice]) -> None:
        self._trace, self._pieces = trace, pieces

    def gradient(self, residuals: Tensor) -> Tensor:
        found = [flat(torch.autograd.grad(*self._trace(rows), residuals[rows])) for rows in self._pieces]
        return torch.stack(found).sum(0)

    def answer(self, direction: Tensor) -> Tensor:
        return torch.cat([Residuals(*self._trace(rows)).answer(direction) for rows in self._pieces])


def centred(residuals: Tensor) -> Tensor:
    return residuals - residuals.mean(1, keepdim=True)


def of_labels(logits: Tensor, labels: Tensor, ratios: Tensor) -> Tensor:
    """α(softmax(z) − y): what soft labels, given by their own logits, and spanning ratios amount to."""
    return ratios[:, None] * (torch.softmax(logits, 1) - torch.softmax(labels, 1))
