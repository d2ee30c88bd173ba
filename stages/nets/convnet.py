"""The ConvNet of dataset condensation: FedLAP-DP App. B.1, FedDM App. E and F.

Blocks of 3×3 convolution, normalisation, ReLU and 2×2 average pooling, then one linear layer on the
flattened map. FedLAP-DP's text speaks of two fully connected layers and of global average pooling; its
listing has one linear layer on 2048 inputs, and only that gives its 317,706 parameters, for one channel
although the listing shows three (FedDM's Table 2, divided by its ten clients: 317,706 for MNIST, 320,010
for CIFAR-10, 504,420 for CIFAR-100).
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from stages.nets.net import Net, require_size
from stages.nets.params import InputShape


def convnet(shape: InputShape, width: int, depth: int) -> Net:
    """`depth` blocks of `width` channels; each block halves the map."""
    require_size(f"convnet of depth {depth}", shape, 2**depth)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    channels = shape.channels
    padding = (_first_padding(shape.height), _first_padding(shape.width))
    for i in range(1, depth + 1):
        layers[f"conv{i}"] = nn.Conv2d(channels, width, kernel_size=3, padding=padding)
        # One group a channel: the paper says group norm, its listing GroupNorm(128, 128), which is instance norm.
        layers[f"norm{i}"] = nn.GroupNorm(width, width)
        layers[f"relu{i}"] = nn.ReLU()
        layers[f"pool{i}"] = nn.AvgPool2d(2)
        channels, padding = width, (1, 1)
    layers["flatten"] = nn.Flatten()
    units = width * (_first_map(shape.height) >> depth) * (_first_map(shape.width) >> depth)
    return Net(nn.Sequential(layers), nn.Sequential(OrderedDict(logits=nn.Linear(units, shape.num_classes))))


def _first_padding(pixels: int) -> int:
    """28 pixels are padded by 3, which makes a map of 32: it halves three times without losing an edge."""
    return 3 if pixels == 28 else 1


def _first_map(pixels: int) -> int:
    """A 3×3 convolution takes one pixel from each side and the padding gives it back."""
    return pixels + 2 * (_first_padding(pixels) - 1)
