"""Two strided convolutions: ours.

DP-FedSAM's «simple CNN» without its poolings and its layer of 512: for 28×28 pixels, ten classes and a width of 8 it
has 208 + 3,216 + 2,570 = 5,994 parameters where that one has 1.66 million.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from stages.nets.net import Net, require_size
from stages.nets.params import InputShape

_KERNEL, _STRIDE = 5, 2


def strided(shape: InputShape, width: int) -> Net:
    """No padding: any image of at least 13×13."""
    require_size("strided", shape, 13)
    trunk = nn.Sequential(
        OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(shape.channels, width, _KERNEL, _STRIDE),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(width, 2 * width, _KERNEL, _STRIDE),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),
        )
    )
    height, across = (_after(_after(side)) for side in (shape.height, shape.width))
    return Net(trunk, nn.Sequential(OrderedDict(logits=nn.Linear(2 * width * height * across, shape.num_classes))))


def _after(side: int) -> int:
    """The side of a map after one of the convolutions."""
    return (side - _KERNEL) // _STRIDE + 1
