"""Inverting Gradients (Geiping et al. 2020): images whose gradient points where an update points, and how near they
come to the true ones.

The cost is 1 − cos of the two gradients, over all weights as one vector, plus total variation. Adam of 0.1 takes the
sign of the slope, its rate falls to a tenth after 3/8, 5/8 and 7/8 of the steps, and pixels stay in −1…1. The attacker
knows the model, how many images there were, and takes the update for one gradient of their mean loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor, nn

from stages.methods.row_cosines import RowCosines, flat, shaped
from stages.methods.tofu import traced
from stages.nets.state import trained

_LEAST = 1e-30
_RATE = 0.1
_WINDOW = 7  # of SSIM, where the images are as large
_STABLE = (0.01**2, 0.03**2)  # its constants, for pixels in 0…1 (Wang et al. 2004)

Pixels = NDArray[np.float64]
Images = NDArray[np.floating[Any]]


class WeightChange(Protocol):
    """What images with their labels, as probabilities, do to the weights: start minus end."""

    def __call__(self, module: nn.Module, images: Tensor, labels: Tensor, *, graph: bool) -> list[Tensor]: ...


@dataclass(frozen=True)
class Attack:
    steps: int
    total_variation: float
    restarts: int


@dataclass(frozen=True, eq=False)
class Inverted:
    """`images` [n, c, h, w] in −1…1 with their `labels` [n], and the cosine of their gradient with the update."""

    images: Tensor
    labels: Tensor
    cosine: float


def inverted(
    module: nn.Module,
    update: Mapping[str, Tensor],
    labels: Tensor | None,
    size: tuple[int, int, int, int],
    *,
    attack: Attack,
    generator: torch.Generator,
    report: Callable[[int, int, float], None],
    change: WeightChange | None = None,
    prior: Callable[[Tensor], Tensor] | None = None,
) -> Inverted:
    """Images of `size` [n, c, h, w], the best of some restarts by the cost, which sees no true image.

    `change` is what images do to the weights, one gradient unless given; `prior` is added to the cost of images.
    `labels` [n] are given, or found as soft labels along with the images. Raises `ValueError` where the update points
    nowhere.
    """
    named = trained(module)
    target = flat([update[name] for name in named])
    if not bool(torch.isfinite(target).all()) or not bool(target.any()):
        raise ValueError("the update is zero, or not finite: it points nowhere")
    angle = RowCosines(target, [len(target)], [1.0], least=_LEAST)
    classes = last_bias(module)[1].numel()
    best: tuple[float, Inverted] | None = None
    for restart in range(attack.restarts):
        images = torch.randn(size, generator=generator).to(target.device).requires_grad_()
        free = torch.randn((size[0], classes), generator=generator).to(target.device).requires_grad_()
        variables = [images, *([free] if labels is None else [])]
        optimiser = torch.optim.Adam(variables, lr=_RATE)
        for step in range(attack.steps):
            wanted = torch.softmax(free, 1) if labels is None else one_hot(labels, classes)
            cost, slopes = cost_and_slopes(
                module, angle, images, wanted, variables, attack.total_variation, change=change, prior=prior
            )
            images.grad = slopes[0].sign()
            if labels is None:
                free.grad = slopes[1]
            for group in optimiser.param_groups:
                group["lr"] = _RATE * 0.1 ** sum(step >= share * attack.steps for share in (0.375, 0.625, 0.875))
            optimiser.step()
            with torch.no_grad():
                images.clamp_(-1, 1)
            report(restart * attack.steps + step + 1, attack.restarts * attack.steps, cost)
        wanted = torch.softmax(free.detach(), 1) if labels is None else one_hot(labels, classes)
        parts = (change or gradient)(module, images.detach(), wanted, graph=False)
        cosine = 1 - float(angle.distance(flat(parts))[0])
        cost = 1 - cosine + attack.total_variation * float(total_variation(images.detach()))
        cost += 0.0 if prior is None else float(prior(images.detach()))
        if best is None or cost < best[0]:
            best = cost, Inverted(images.detach().clone(), wanted.argmax(1), cosine)
    assert best is not None  # there is at least one restart
    return best[1]


def cost_and_slopes(
    module: nn.Module,
    angle: RowCosines,
    images: Tensor,
    labels: Tensor,
    variables: list[Tensor],
    weight: float,
    *,
    change: WeightChange | None = None,
    prior: Callable[[Tensor], Tensor] | None = None,
) -> tuple[float, list[Tensor]]:
    """1 − cos + weight · TV + prior, and how it changes with each of `variables`, the images first."""
    parts = (change or gradient)(module, images, labels, graph=True)
    distance, slope = angle.distance(flat(parts))
    slopes = list(torch.autograd.grad(parts, variables, shaped(slope, parts)))
    beside = weight * total_variation(images) + (0.0 if prior is None else prior(images))
    slopes[0] = slopes[0] + torch.autograd.grad(beside, images)[0]
    return float(distance) + float(beside.detach()), slopes


def gradient(module: nn.Module, images: Tensor, labels: Tensor, *, graph: bool) -> list[Tensor]:
    """Of the mean loss, `labels` being probabilities. As a client trains, but with dropout off."""
    logits, leaves = traced(module, images)
    return list(torch.autograd.grad(nn.functional.cross_entropy(logits, labels), leaves, create_graph=graph))


def total_variation(images: Tensor) -> Tensor:
    """The mean step from a pixel to the next, across and down."""
    sides = [images.diff(dim=axis).abs() for axis in (2, 3)]
    return torch.stack([side.mean() if side.numel() else side.sum() for side in sides]).sum()


def one_hot(labels: Tensor, classes: int) -> Tensor:
    return nn.functional.one_hot(labels, classes).to(torch.float32)


def last_bias(module: nn.Module) -> tuple[str, Tensor]:
    """That of the logits: the last parameter of every network here."""
    name, bias = list(trained(module).items())[-1]
    if bias.dim() != 1:
        raise ValueError("the network's last layer has no bias")
    return name, bias


def inferred_labels(bias: Tensor, count: int) -> Tensor:
    """From the update of the last bias, mean(p) − (how often each class occurs)/n, but for a factor.

    With one image the one negative number is its class (iDLG, Zhao et al. 2020). With more, the lowest is taken, lifted
    by what one image pulls it down, and so on: exact where p is even, as in a network that was hardly trained. Sorted;
    `count` is less than the number of classes.
    """
    left = bias.detach().double().clone()
    above, below = left[left > 0], left[left < 0]
    # An absent class is at p, 1/classes of what n images pull; all pull is at least what is below zero.
    even = float(above.mean()) * len(left) if len(above) else 0.0
    one = max(even, -float(below.sum())) / count
    found = []
    for _ in range(count):
        lowest = int(left.argmin())
        found.append(lowest)
        left[lowest] += one
    return torch.tensor(sorted(found), dtype=torch.int64, device=bias.device)


@dataclass(frozen=True, eq=False)
class Likeness:
    """Of the pairs that were made: which image, which true one, and how alike they are. Pixels count as 0…1."""

    rows: NDArray[np.int64]
    true_rows: NDArray[np.int64]
    mse: Pixels
    psnr: Pixels
    ssim: Pixels


def likeness(images: Images, true: Images) -> Likeness:
    """Each image [n, c, h, w] beside a true one of its own, such that the squared distances are smallest in sum.

    Where there are fewer true images than images, or more, some stay alone.
    """
    squares = mean_squares(images, true)
    rows, true_rows = linear_sum_assignment(squares)
    mse = squares[rows, true_rows]
    pairs = zip(rows, true_rows, strict=True)
    alike = np.array([ssim((images[a] + 1) / 2, (true[b] + 1) / 2) for a, b in pairs])
    return Likeness(rows, true_rows, mse, psnr(mse), alike)


def mean_squares(images: Images, others: Images) -> Pixels:
    """[n, m]: between each image and each of the others, of pixels in 0…1."""
    ours, theirs = (side.reshape(len(side), -1).astype(np.float64) / 2 for side in (images, others))
    found: Pixels = cdist(ours, theirs, "sqeuclidean") / ours.shape[1]
    return found


def psnr(mse: Pixels) -> Pixels:
    """Decibels, for pixels in 0…1. An exact copy has 100, not ∞, which JSON cannot say."""
    decibels: Pixels = -10 * np.log10(np.maximum(mse, 1e-10))
    return decibels


def ssim(a: Images, b: Images) -> float:
    """Structural similarity of two images [c, h, w] in 0…1 (Wang et al. 2004).

    The mean over channels and over all places of an even window of 7×7, smaller where the images are, with sample
    variances.
    """
    side = min(_WINDOW, *a.shape[1:])
    windows = np.lib.stride_tricks.sliding_window_view
    x, y = (windows(windows(image.astype(np.float64), side, axis=1), side, axis=2) for image in (a, b))
    axes, sample = (-2, -1), side**2 / max(1, side**2 - 1)
    mean_x, mean_y = x.mean(axes), y.mean(axes)
    var_x, var_y = x.var(axes) * sample, y.var(axes) * sample
    together = ((x * y).mean(axes) - mean_x * mean_y) * sample
    c1, c2 = _STABLE
    found = (2 * mean_x * mean_y + c1) * (2 * together + c2)
    return float((found / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))).mean())
