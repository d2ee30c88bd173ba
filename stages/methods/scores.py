"""How good a classifier is: loss, accuracy, accuracy by class, confusion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stages.methods.image_rows import ImageRows


@dataclass(frozen=True)
class Scores:
    """`confusion[i, j]`: examples of class i taken for class j. `loss` is the mean cross-entropy."""

    loss: float
    confusion: NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        return float(np.trace(self.confusion) / self.confusion.sum())

    def by_class(self) -> dict[int, float]:
        """Accuracy within each class that occurs."""
        totals: NDArray[Any] = self.confusion.sum(axis=1)
        return {int(c): float(self.confusion[c, c] / totals[c]) for c in np.flatnonzero(totals)}


@torch.no_grad()
def score(
    module: nn.Module,
    images: ImageRows,
    labels: Tensor,
    *,
    num_classes: int,
    batch_size: int,
    report: Callable[[int, int, str], None],
) -> Scores:
    """Evaluate in eval mode; sums in float64, so that the batch size does not show in the loss."""
    module.eval()
    total_loss = 0.0
    confusion = torch.zeros(num_classes * num_classes, dtype=torch.int64)
    for first in range(0, len(labels), batch_size):
        rows = slice(first, first + batch_size)
        logits = module(images[rows])
        total_loss += float(nn.functional.cross_entropy(logits.double(), labels[rows], reduction="sum"))
        pairs = labels[rows] * num_classes + logits.argmax(dim=1)
        confusion += torch.bincount(pairs.cpu(), minlength=num_classes * num_classes)
        report(min(first + batch_size, len(labels)), len(labels), "")
    return Scores(total_loss / len(labels), confusion.reshape(num_classes, num_classes).numpy())
