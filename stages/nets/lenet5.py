"""LeNet-5 as TOFU has it (Sec. 4.1 and 7.3.1): ReLU, max-pooling, the second convolution twice.

The paper says that the outputs of the two parallel convolutions are summed, not where. Summed before the
ReLU, two convolutions are one: here the sum comes after each branch's ReLU and pooling. Parameters with
one channel and ten classes: 156 + 2·2,416 + 48,120 + 10,164 + 850 = 64,122.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from stages.nets.net import Net
from stages.nets.params import InputShape

# LeCun et al. 1998: at 32×32 the third convolution sees exactly a 5×5 map.
_SIDE = 32


class _Twin(nn.Module):
    """Two branches of the same shape, summed."""

    def __init__(self, a: nn.Module, b: nn.Module) -> None:
        super().__init__()
        self.a = a
        self.b = b

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.a(x) + self.b(x)
        return total


def lenet5(shape: InputShape) -> Net:
    """Smaller images are zero-padded to 32×32 (28×28 by 2 on each side); larger ones leave a larger last map."""
    top, bottom = _padding(shape.height)
    left, right = _padding(shape.width)
    trunk = nn.Sequential(
        OrderedDict[str, nn.Module](
            pad=nn.ZeroPad2d((left, right, top, bottom)),
            block1=_block(shape.channels, 6),
            block2=_Twin(_block(6, 16), _block(6, 16)),
            conv3=nn.Conv2d(16, 120, kernel_size=5),
            relu3=nn.ReLU(),
            flatten=nn.Flatten(),
        )
    )
    units = 120 * _last_map(shape.height) * _last_map(shape.width)
    classifier = nn.Sequential(
        OrderedDict[str, nn.Module](
            fc1=nn.Linear(units, 84),
            relu1=nn.ReLU(),
            logits=nn.Linear(84, shape.num_classes),
        )
    )
    return Net(trunk, classifier)


def _block(channels: int, filters: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            conv=nn.Conv2d(channels, filters, kernel_size=5),
            relu=nn.ReLU(),
            pool=nn.MaxPool2d(2),
        )
    )


def _padding(pixels: int) -> tuple[int, int]:
    """Zeros before and after; an odd remainder goes after."""
    missing = max(0, _SIDE - pixels)
    return missing // 2, missing - missing // 2


def _last_map(pixels: int) -> int:
    """The side of the third convolution's map: 1 up to 35 pixels."""
    side = max(pixels, _SIDE)
    for _ in range(2):
        side = (side - 4) // 2
    return side - 4
