"""ResNet-18 with group norm: DP-FedSAM Sec. 6.1 (He et al. 2016; Wu and He 2018), also FedDM Fig. 3.

The stem is the one for 32×32 images: a 3×3 convolution of stride 1 and no max-pooling, where ImageNet's
(7×7 with stride 2, pooling) would shrink them to 8×8 before the first stage. 32 groups in every norm. At
three channels and ten classes: stem 1,856, stages 147,968 + 525,568 + 2,099,712 + 8,393,728, classifier
5,130; together 11,173,962.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn
from torch.nn import functional as F

from stages.nets.net import Net
from stages.nets.params import InputShape

_GROUPS = 32


class _Block(nn.Module):
    """Two 3×3 convolutions around a shortcut, which is projected (1×1) where the shape changes."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        # No biases: the norm that follows has its own.
        self.conv1 = nn.Conv2d(channels, filters, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(_GROUPS, filters)
        self.conv2 = nn.Conv2d(filters, filters, kernel_size=3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(_GROUPS, filters)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != filters:
            self.shortcut = nn.Sequential(
                OrderedDict[str, nn.Module](
                    conv=nn.Conv2d(channels, filters, kernel_size=1, stride=stride, bias=False),
                    norm=nn.GroupNorm(_GROUPS, filters),
                )
            )

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.shortcut(x))


def resnet18(shape: InputShape) -> Net:
    """Takes any size: the strided convolutions are padded and the last map is averaged."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(shape.channels, 64, kernel_size=3, padding=1, bias=False),
        norm=nn.GroupNorm(_GROUPS, 64),
        relu=nn.ReLU(),
    )
    channels = 64
    for number, filters in enumerate((64, 128, 256, 512), start=1):
        stride = 1 if number == 1 else 2
        layers[f"stage{number}"] = nn.Sequential(
            _Block(channels, filters, stride),
            _Block(filters, filters, stride=1),
        )
        channels = filters
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    return Net(nn.Sequential(layers), nn.Sequential(OrderedDict(logits=nn.Linear(channels, shape.num_classes))))
