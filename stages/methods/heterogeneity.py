"""How different clients are: gradient dissimilarity ζ², stochastic noise σ², distribution shift δ².

Fedssyn (Li et al. 2023), Assumptions 1, 2 and 4, and Lemma 1: what shuffling a fraction p of the data does to them.
All are measured at one and the same server model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from stages.methods.image_rows import ImageRows
from stages.nets.called import called
from stages.nets.state import trained

_MOST_NUMBERS = 1 << 25  # of per-example gradients at a time: 128 MB as float32


@dataclass(frozen=True)
class GradientMoments:
    """Of the per-example gradients of one dataset, flat over all parameters: the mean, and E‖∇F(x, ξ)‖²."""

    mean: Tensor
    second: float

    @property
    def variance(self) -> float:
        """E‖∇F − ∇f‖², the σ² of this dataset; never below zero, whatever rounding does."""
        return max(0.0, self.second - float(self.mean.square().sum()))


@dataclass(frozen=True)
class Heterogeneity:
    """Averages over clients. `noise_max` is the largest σ² of one client, which Assumption 2 bounds."""

    dissimilarity: float
    noise: float
    noise_max: float


def gradient_moments(module: nn.Module, images: ImageRows, labels: Tensor, *, chunk: int = 64) -> GradientMoments:
    """One pass over the examples; sums in float64, memory bounded by `chunk` gradients, fewer of a large network.

    The sums stay where the labels are, and come to the host once, at the end (a device without float64: each chunk).
    """
    module.eval()
    weights = {name: tensor.detach() for name, tensor in trained(module).items()}
    buffers = dict(module.named_buffers())

    def loss(values: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        logits = called(module, {**values, **buffers}, image[None])
        return nn.functional.cross_entropy(logits, label[None])

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))
    home = torch.device("cpu") if labels.device.type == "mps" else labels.device
    total = torch.zeros(sum(w.numel() for w in weights.values()), dtype=torch.float64, device=home)
    chunk = max(1, min(chunk, _MOST_NUMBERS // len(total)))
    second = torch.zeros((), dtype=torch.float64, device=home)
    for first in range(0, len(labels), chunk):
        rows = slice(first, first + chunk)
        found = per_example(weights, images[rows], labels[rows])
        start = 0
        for name in weights:
            flat = found.pop(name).flatten(1).to(home).double()
            total[start : start + flat.shape[1]] += flat.sum(dim=0)
            second += flat.square().sum()
            start += flat.shape[1]
    return GradientMoments(total.cpu() / len(labels), float(second) / len(labels))


def heterogeneity(clients: Sequence[GradientMoments]) -> Heterogeneity:
    """ζ² = (1/N)Σ‖∇f_i − ∇f‖² with ∇f the clients' mean (Assumption 1), σ² as in Assumption 2."""
    centre = torch.stack([client.mean for client in clients]).mean(dim=0)
    noises = [client.variance for client in clients]
    return Heterogeneity(
        dissimilarity=sum(float((client.mean - centre).square().sum()) for client in clients) / len(clients),
        noise=sum(noises) / len(noises),
        noise_max=max(noises),
    )


def shift(clients: Sequence[GradientMoments], shared: GradientMoments) -> float:
    """δ² = ‖∇f(x, D) − ∇f(x, D̃)‖² (Assumption 4); `shared` is of the synthetic data of all clients."""
    centre = torch.stack([client.mean for client in clients]).mean(dim=0)
    return float((centre - shared.mean).square().sum())


def mixed(own: GradientMoments, other: GradientMoments, share: float) -> GradientMoments:
    """The moments of (1−p)·D_i + p·D̃ (Eq. A.1)."""
    mean = (1 - share) * own.mean + share * other.mean
    return GradientMoments(mean, (1 - share) * own.second + share * other.second)


def pooled(parts: Sequence[GradientMoments], counts: Sequence[int]) -> GradientMoments:
    """The moments of several datasets joined, by the number of examples of each."""
    total = sum(counts)
    mean = torch.stack([part.mean * (count / total) for part, count in zip(parts, counts, strict=True)]).sum(dim=0)
    return GradientMoments(mean, sum(p.second * (count / total) for p, count in zip(parts, counts, strict=True)))


def lemma_bounds(before: Heterogeneity, *, shared_noise: float, shift: float, share: float) -> tuple[float, float]:
    """Lemma 1: (bound on ζ̂²_p, bound on σ̂²_p) = ((1−p)²ζ², (1−p)σ² + pσ̃² + p(1−p)ζ² + p(1−p)δ²)."""
    p, zeta2 = share, before.dissimilarity
    return (1 - p) ** 2 * zeta2, (1 - p) * before.noise + p * shared_noise + p * (1 - p) * (zeta2 + shift)
