"""Make a network, and give it its first weights from a generator.

Torch's own constructors draw the weights from global random state. Here a network is built on the meta
device, which draws nothing, and `initialise` then applies the same schemes (`reset_parameters` of torch's
layers: He et al. 2015 with a=√5) from the generator that it is given.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import nn

from stages.nets.convnet import convnet
from stages.nets.emnist_cnn import emnist_cnn
from stages.nets.lenet5 import lenet5
from stages.nets.net import Net
from stages.nets.params import InputShape, NetParams
from stages.nets.resnet18 import resnet18
from stages.nets.small import mlp, softmax
from stages.nets.vgg import vgg11, vgg13

_ONE_SIZE: dict[str, Callable[[InputShape], Net]] = {
    "softmax": softmax,
    "lenet5": lenet5,
    "vgg11": vgg11,
    "vgg13": vgg13,
    "resnet18": resnet18,
    "emnist-cnn": emnist_cnn,
}
_SIZED: dict[str, Callable[[InputShape, int, int], Net]] = {"mlp": mlp, "convnet": convnet}


def skeleton(params: NetParams, shape: InputShape) -> Net:
    """The network without memory for its weights (on the meta device), to hold a file's shapes against.

    Raises `ValueError` where the network cannot take images of this size.
    """
    with torch.device("meta"):
        sized = _SIZED.get(params.arch)
        return sized(shape, *params.size()) if sized else _ONE_SIZE[params.arch](shape)


def build(params: NetParams, shape: InputShape) -> Net:
    """The network on the CPU, its weights NaN until `initialise` or `load_state_dict` fills them."""
    net = skeleton(params, shape)
    net.to_empty(device="cpu")
    # Left as it is, the memory holds whatever was there before: plausible numbers, other ones each time.
    for tensor in itertools.chain(net.parameters(), net.buffers()):
        tensor.detach().fill_(math.nan if tensor.is_floating_point() else 0)
    return net


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Fill all weights and buffers of `module`, drawing in the order in which its layers were registered.

    `generator` must live on the module's device.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
            if layer.bias is not None:
                bound = 1 / math.sqrt(layer.weight[0].numel())
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
        elif isinstance(layer, nn.GroupNorm | nn.BatchNorm2d):
            layer.reset_parameters()  # ones, zeros and empty statistics: nothing is drawn
        elif any(True for _ in itertools.chain(layer.parameters(recurse=False), layer.buffers(recurse=False))):
            raise TypeError(f"no initial weights are known for a layer of type {type(layer).__name__}")
