"""A small conditional GAN: DCGAN's generator (Radford et al. 2016) and a projection discriminator (Miyato and Koyama
2018), for images of any size.

No batch norm: the loss of an example must not depend on the others in its batch.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from stages.nets.generator_params import ImageShape
from stages.nets.vae_net import beside, halvings

_SLOPE = 0.2


class GanGenerator(nn.Module):
    """Codes [n, latent] and labels → images [n, c, h, w] in [−1, 1]."""

    def __init__(self, shape: ImageShape, *, filters: int, latent: int) -> None:
        super().__init__()
        self._classes = shape.num_classes
        depth = halvings(shape)
        widths = [filters * 2**i for i in reversed(range(depth + 1))]
        self._map = (widths[0], shape.height >> depth, shape.width >> depth)
        self.fc1 = nn.Linear(latent + shape.num_classes, 4 * filters)
        self.fc2 = nn.Linear(4 * filters, self._map[0] * self._map[1] * self._map[2])
        self.convs = nn.ModuleList(
            nn.ConvTranspose2d(before, after, kernel_size=4, stride=2, padding=1) for before, after in pairwise(widths)
        )
        self.pixels = nn.Conv2d(widths[-1], shape.channels, kernel_size=3, padding=1)

    def forward(self, codes: Tensor, labels: Tensor) -> Tensor:
        h = F.leaky_relu(self.fc1(beside(codes, labels, self._classes)), _SLOPE)
        h = F.leaky_relu(self.fc2(h), _SLOPE).reshape(-1, *self._map)
        for conv in self.convs:
            h = F.leaky_relu(conv(h), _SLOPE)
        images: Tensor = self.pixels(h).tanh()
        return images


class Discriminator(nn.Module):
    """Images and labels → one logit each: how real the image is, and how much it is of its class."""

    def __init__(self, shape: ImageShape, *, filters: int) -> None:
        super().__init__()
        depth = halvings(shape)
        widths = [filters * 2**i for i in range(depth + 1)]
        self.conv = nn.Conv2d(shape.channels, widths[0], kernel_size=3, padding=1)
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, kernel_size=4, stride=2, padding=1) for before, after in pairwise(widths)
        )
        units = widths[-1] * (shape.height >> depth) * (shape.width >> depth)
        self.features = nn.Linear(units, 4 * filters)
        self.real = nn.Linear(4 * filters, 1)
        self.of_class = nn.Linear(4 * filters, shape.num_classes, bias=False)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        h = F.leaky_relu(self.conv(images), _SLOPE)
        for conv in self.convs:
            h = F.leaky_relu(conv(h), _SLOPE)
        h = F.leaky_relu(self.features(h.flatten(1)), _SLOPE)
        logit: Tensor = self.real(h)[:, 0] + self.of_class(h).gather(1, labels[:, None])[:, 0]
        return logit
