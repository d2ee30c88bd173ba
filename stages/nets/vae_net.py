"""Encoder and decoder of the β-VAE: Burgess et al. 2018, App. A.1, which Fedssyn takes for dSprites (App. A.4).

4×4 convolutions with stride 2 down to a map of about 4×4 (four of them for 64×64 pixels), two fully connected layers
of 256, a Gaussian code; the decoder is its mirror image. Where encoder and decoder see the class, it is a one-hot
vector beside the first fully connected layer's input.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stages.nets.generator_params import ImageShape

_SMALLEST = 4


def halvings(shape: ImageShape) -> int:
    """How often both sides can be halved and stay whole, down to about 4 pixels. Any image has some such number."""
    count, height, width = 0, shape.height, shape.width
    while height % 2 == width % 2 == 0 and min(height, width) > _SMALLEST:
        count, height, width = count + 1, height // 2, width // 2
    return count


class VaeEncoder(nn.Module):
    """Images [n, c, h, w] in [0, 1] and labels → mean and log-variance of the code, [n, latent] each."""

    def __init__(self, shape: ImageShape, *, filters: int, hidden: int, latent: int, sees_class: bool) -> None:
        super().__init__()
        self._classes = shape.num_classes if sees_class else 0
        depth = halvings(shape)
        channels = [shape.channels, *[filters] * depth]
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, kernel_size=4, stride=2, padding=1) for before, after in pairwise(channels)
        )
        units = channels[-1] * (shape.height >> depth) * (shape.width >> depth)
        self.fc1 = nn.Linear(units + self._classes, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.code = nn.Linear(hidden, 2 * latent)

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        h = images
        for conv in self.convs:
            h = F.relu(conv(h))
        h = F.relu(self.fc1(beside(h.flatten(1), labels, self._classes)))
        mean, log_variance = self.code(F.relu(self.fc2(h))).chunk(2, dim=1)
        return mean, log_variance


class VaeDecoder(nn.Module):
    """Codes [n, latent] and labels → logits [n, c, h, w] of the pixels' brightness."""

    def __init__(self, shape: ImageShape, *, filters: int, hidden: int, latent: int, sees_class: bool) -> None:
        super().__init__()
        self._classes = shape.num_classes if sees_class else 0
        depth = halvings(shape)
        channels = [*[filters] * depth, shape.channels]
        self._map = (channels[0], shape.height >> depth, shape.width >> depth)
        self.fc1 = nn.Linear(latent + self._classes, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, self._map[0] * self._map[1] * self._map[2])
        self.convs = nn.ModuleList(
            nn.ConvTranspose2d(before, after, kernel_size=4, stride=2, padding=1)
            for before, after in pairwise(channels)
        )

    def forward(self, codes: Tensor, labels: Tensor) -> Tensor:
        h: Tensor = F.relu(self.fc1(beside(codes, labels, self._classes)))
        h = self.fc3(F.relu(self.fc2(h))).reshape(-1, *self._map)
        for conv in self.convs:
            h = conv(F.relu(h))
        return h


def beside(vectors: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The vectors [n, d] with the one-hot label beside each; as they are if there is nothing to tell."""
    if not num_classes:
        return vectors
    numbers = torch.arange(num_classes, device=labels.device)
    return torch.cat([vectors, (labels[:, None] == numbers).to(vectors.dtype)], dim=1)
