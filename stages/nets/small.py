"""Softmax regression and the multi-layer perceptron: ours, for images of any size.

The squared norm of client-level noise grows with the number of parameters (DP-FedSAM Theorem 3:
σ²C²d/m²), so a federation of a few hundred clients needs at most about 10,000: for 8×8 digits softmax has
650, the mlp 4,810.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from stages.nets.net import Net
from stages.nets.params import InputShape


def softmax(shape: InputShape) -> Net:
    """One linear layer on the pixels; the embedding is the pixels themselves."""
    pixels = shape.channels * shape.height * shape.width
    return Net(nn.Flatten(), nn.Sequential(OrderedDict(logits=nn.Linear(pixels, shape.num_classes))))


def mlp(shape: InputShape, width: int, depth: int) -> Net:
    """`depth` hidden layers of `width` ReLU units."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    units = shape.channels * shape.height * shape.width
    for i in range(1, depth + 1):
        layers[f"fc{i}"] = nn.Linear(units, width)
        layers[f"relu{i}"] = nn.ReLU()
        units = width
    return Net(nn.Sequential(layers), nn.Sequential(OrderedDict(logits=nn.Linear(units, shape.num_classes))))
