"""VGG for small images (Simonyan and Zisserman 2014, configurations A and B).

Parameters at 3×32×32 and ten classes. `vgg11` is Fedssyn's (Sec. 4): no batch norm, and a classifier of
512-512-C with two dropouts; 9,220,480 in the convolutions, 2·262,656 and 5,130 in the classifier:
9,750,922, the 37.2 MB of its Table A.2. `vgg13` is TOFU's (Sec. 1 and 7.3.1): batch norm and one linear
layer; 9,404,992 in the convolutions, 5,888 in the norms and 5,130 in the classifier: 9,416,010, its «9.4
million».
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from stages.nets.dropout import Dropout
from stages.nets.net import Net, require_size
from stages.nets.params import InputShape

# The channels of each convolution; a pooling follows each group.
_VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))
_VGG13 = ((64, 64), (128, 128), (256, 256), (512, 512), (512, 512))


def vgg11(shape: InputShape) -> Net:
    """Without batch norm; needs a generator for its dropouts in training, see `set_dropout_generator`."""
    units = _units("vgg11", shape, _VGG11)
    trunk = _trunk(shape.channels, _VGG11, batch_norm=False)
    classifier = nn.Sequential(
        OrderedDict[str, nn.Module](
            dropout1=Dropout(),
            fc1=nn.Linear(units, 512),
            relu1=nn.ReLU(),
            dropout2=Dropout(),
            fc2=nn.Linear(512, 512),
            relu2=nn.ReLU(),
            logits=nn.Linear(512, shape.num_classes),
        )
    )
    return Net(trunk, classifier)


def vgg13(shape: InputShape) -> Net:
    """With batch norm, hence without per-example gradients in training."""
    units = _units("vgg13", shape, _VGG13)
    trunk = _trunk(shape.channels, _VGG13, batch_norm=True)
    return Net(trunk, nn.Sequential(OrderedDict(logits=nn.Linear(units, shape.num_classes))))


def _units(net: str, shape: InputShape, groups: Sequence[Sequence[int]]) -> int:
    """The length of the flattened last map: 512 at 32×32, 2048 at 64×64 (Fedssyn's dSprites)."""
    halvings = len(groups)
    require_size(net, shape, 2**halvings)
    return groups[-1][-1] * (shape.height >> halvings) * (shape.width >> halvings)


def _trunk(channels: int, groups: Sequence[Sequence[int]], *, batch_norm: bool) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    i = 0
    for number, group in enumerate(groups, start=1):
        for filters in group:
            i += 1
            layers[f"conv{i}"] = nn.Conv2d(channels, filters, kernel_size=3, padding=1)
            if batch_norm:
                layers[f"norm{i}"] = nn.BatchNorm2d(filters)
            layers[f"relu{i}"] = nn.ReLU()
            channels = filters
        layers[f"pool{number}"] = nn.MaxPool2d(2)
    layers["flatten"] = nn.Flatten()
    return nn.Sequential(layers)
