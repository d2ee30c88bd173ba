"""What every network is: a trunk that turns images into vectors, and a classifier of fully connected layers.

FedDM (Sec. 2.2, Eq. 9) matches the embedding h_w, which is `features`, and the logits z_w, which are
`forward`. FedPVR (Li et al. 2022, used by Fedssyn Sec. 4) corrects the classifier layers only: those
whose parameters are named `classifier.…`. For VGG-11 these are all three fully connected layers, as in
Fedssyn's code, which starts the correction after the sixteen tensors of the convolutions.
"""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from stages.nets.params import InputShape


class Net(nn.Module):
    """`classifier` ends with the linear layer that gives the logits; what comes before it is the embedding."""

    def __init__(self, trunk: nn.Module, classifier: nn.Sequential) -> None:
        super().__init__()
        self.trunk = trunk
        self.classifier = classifier

    def features(self, x: Tensor) -> Tensor:
        """The embedding [n, d] of a batch of images [n, c, h, w]: the input of the last linear layer."""
        h: Tensor = self.trunk(x)
        for layer in itertools.islice(self.classifier, len(self.classifier) - 1):  # `[:-1]` builds a module each time
            h = layer(h)
        return h

    def head(self, h: Tensor) -> Tensor:
        """The logits [n, classes] of embeddings [n, d]."""
        logits: Tensor = self.classifier[-1](h)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def require_size(net: str, shape: InputShape, least: int) -> None:
    """Raise `ValueError` where the poolings of `net` would leave nothing of the image."""
    if min(shape.height, shape.width) < least:
        found = f"{shape.height}x{shape.width}"
        raise ValueError(f"{net} takes images of at least {least}x{least} pixels, found {found}")
