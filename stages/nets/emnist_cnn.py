"""The «simple CNN» of DP-FedSAM Sec. 6.1 for EMNIST, as McMahan et al. 2017 (Sec. 3) describe it.

Two 5×5 convolutions of 32 and 64 channels, each with ReLU and 2×2 max-pooling, a layer of 512 and the
logits. Padded so that the size stays, with 28×28 pixels and ten classes, it has 832 + 51,264 + 1,606,144
+ 5,130 = 1,663,370 parameters, McMahan's number. DP-FedSAM's code differs: no padding, on EMNIST cropped
with a border to 32×32, hence 1,600 inputs to the layer of 512 where these are 3,136.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from stages.nets.net import Net, require_size
from stages.nets.params import InputShape


def emnist_cnn(shape: InputShape) -> Net:
    """Two poolings: any image of at least 4×4."""
    require_size("emnist-cnn", shape, 4)
    trunk = nn.Sequential(
        OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(shape.channels, 32, kernel_size=5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 64, kernel_size=5, padding=2),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
        )
    )
    classifier = nn.Sequential(
        OrderedDict[str, nn.Module](
            fc1=nn.Linear(64 * (shape.height // 4) * (shape.width // 4), 512),
            relu1=nn.ReLU(),
            logits=nn.Linear(512, shape.num_classes),
        )
    )
    return Net(trunk, classifier)
