"""Loss, accuracy and confusion against scikit-learn, whatever the batch size."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss
from torch import nn

from stages.methods.scores import score


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_scores_equal_scikit_learns(batch_size):
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(50, 4)).astype(np.float32)
    labels = rng.integers(0, 3, size=50)  # class 3 never occurs
    scores = score(
        nn.Identity(),
        torch.from_numpy(logits),
        torch.from_numpy(labels),
        num_classes=4,
        batch_size=batch_size,
        report=lambda done, total, text: None,
    )
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(axis=1, keepdims=True)
    predicted = logits.argmax(axis=1)
    assert scores.loss == pytest.approx(log_loss(labels, p, labels=range(4)), rel=1e-6)
    assert scores.accuracy == accuracy_score(labels, predicted)
    assert (scores.confusion == confusion_matrix(labels, predicted, labels=range(4))).all()
    recall = {c: (predicted[labels == c] == c).mean() for c in range(3)}
    assert scores.by_class() == pytest.approx(recall)
