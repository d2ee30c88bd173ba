"""Who was in the training set? Scores of membership, and how well they tell members from others.

`likelihood_ratios` is LiRA (Carlini et al. 2022): shadow models, each trained on a half of all candidates, say how sure
a model is of a record that it saw and of one that it did not; the target's own confidence is held against both.
True positives at a very small rate of false ones are what counts: an attack that names few people, but those surely,
is a breach, whatever its mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta, norm, rankdata
from torch import Tensor, nn

Scores = NDArray[np.float64]
FALSE_RATE = 0.001
_LEVEL = 0.95
_LEAST_SPREAD = 1e-3


@dataclass(frozen=True)
class Found:
    """How well scores tell members from others. `interval` is that of the true rate (Clopper and Pearson, 95%).

    `false_rate` is what the threshold really has: with fewer than 1,000 others 0.1% cannot be had, and it is 0.
    """

    auc: float
    true_rate: float
    interval: tuple[float, float]
    false_rate: float
    identified: int


def measured(members: Scores, others: Scores, *, most: float = FALSE_RATE) -> Found:
    """The threshold is the lowest with at most `most` of the others above it."""
    ranks = rankdata(np.concatenate([members, others]))[: len(members)].sum()
    auc = (ranks - len(members) * (len(members) + 1) / 2) / (len(members) * len(others))
    allowed = int(np.floor(most * len(others)))
    threshold = np.sort(others)[::-1][allowed]
    hits = int((members > threshold).sum())
    return Found(float(auc), hits / len(members), proportion(hits, len(members)),
                 float((others > threshold).mean()), hits)  # fmt: skip


def proportion(hits: int, trials: int) -> tuple[float, float]:
    """The interval of a proportion after Clopper and Pearson: never too narrow."""
    tail = (1 - _LEVEL) / 2
    low = float(beta.ppf(tail, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return low, high


@torch.no_grad()
def confidence(module: nn.Module, images: Tensor, labels: Tensor, batch_size: int = 500) -> Scores:
    """log(p/(1 − p)) of the true class, which over models is nearly normal."""
    module.eval()
    parts = []
    for first in range(0, len(labels), batch_size):
        rows = slice(first, first + batch_size)
        logits, own = module(images[rows]).double(), labels[rows, None]
        mine = logits.gather(1, own)[:, 0]
        parts.append(mine - torch.logsumexp(logits.scatter(1, own, -torch.inf), 1))
    return torch.cat(parts).cpu().numpy()


def likelihood_ratios(target: Scores, shadows: Scores, inside: NDArray[np.bool_]) -> Scores:
    """LiRA's score of each record [n]. `shadows` [k, n] are confidences, `inside` [k, n] who was in which training set.

    Means are of each record; the spread is one for all records, as the authors advise for few shadow models.
    """

    def side(rows: NDArray[np.bool_]) -> tuple[Scores, float]:
        count = rows.sum(0)
        mean = (shadows * rows).sum(0) / np.maximum(count, 1)
        free = max(1, int(rows.sum() - (count > 0).sum()))
        spread = float(np.sqrt((np.square(shadows - mean) * rows).sum() / free))
        return np.where(count > 0, mean, mean[count > 0].mean()), max(spread, _LEAST_SPREAD)

    (mean_in, spread_in), (mean_out, spread_out) = side(inside), side(~inside)
    ratio: Scores = norm.logpdf(target, mean_in, spread_in) - norm.logpdf(target, mean_out, spread_out)
    return ratio


def halves(count: int, models: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """[models, count]: each record is in the training set of half of the models, in one of each two in turn."""
    inside = np.zeros((models, count), bool)
    for pair in range(0, models, 2):
        inside[pair] = rng.permutation(count) < count // 2
        if pair + 1 < models:
            inside[pair + 1] = ~inside[pair]
    return inside


def fit(
    module: nn.Module, images: Tensor, labels: Tensor, *, steps: int, batch_size: int, rate: float,
    generator: torch.Generator,
) -> None:  # fmt: skip
    """Train a shadow model, as plainly as clients do: SGD over batches in a new order each epoch."""
    module.train()
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)
    for rows in _batches(len(labels), batch_size, steps, generator):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(images[rows]), labels[rows]).backward()
        optimiser.step()


def _batches(count: int, size: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    left = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(left) < min(size, count):
            left = torch.randperm(count, generator=generator)
        yield left[:size]
        left = left[size:]


def distances(images: NDArray[np.floating], published: NDArray[np.floating]) -> Scores:
    """Score by nearness to the nearest published image: what a synthetic set repeats is near to it."""
    from scipy.spatial import cKDTree

    flat = [side.reshape(len(side), -1).astype(np.float64) for side in (images, published)]
    nearest: Scores = cKDTree(flat[1]).query(flat[0])[0]
    return -nearest
