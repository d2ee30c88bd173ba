"""torchvision's classifiers as networks of ours: a trunk, and the linear layer that gives the logits.

The names of the tensors are torchvision's after `trunk.`; its last linear layer is `classifier.logits`. Public weights
of torchvision therefore fit, and FedDM and FedPVR find what they need.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import Tensor, nn

from stages.nets.net import Net
from stages.nets.networks.torchvision_nets import Norm
from stages.nets.params import InputShape
from stages.nets.torchvision_door import torchvision

_CHANNELS = 3
_MOST_GROUPS = 32


class TorchvisionModule(Net):
    """Grey images are seen as three equal channels."""

    def __init__(self, trunk: nn.Module, head: nn.Linear, head_name: str) -> None:
        super().__init__(trunk, nn.Sequential(OrderedDict[str, nn.Module](logits=head)))
        self._head_name = head_name

    def features(self, x: Tensor) -> Tensor:
        return super().features(x.expand(-1, _CHANNELS, -1, -1))

    def name_here(self, name: str) -> str:
        """What a tensor of torchvision's own network is called here."""
        own, _, rest = name.rpartition(".")
        return f"classifier.logits.{rest}" if own == self._head_name else f"trunk.{name}"


def torchvision_net(name: str, shape: InputShape, *, norm: Norm) -> nn.Module:
    """Raises `ValueError` where torchvision's network does not take such images."""
    if shape.channels not in (1, _CHANNELS):
        raise ValueError(f"torchvision's networks take images of 1 or 3 channels, found {shape.channels}")
    options = {}
    if name.startswith("vit"):
        if shape.height != shape.width:
            raise ValueError(f"{name} takes square images, found {shape.height}×{shape.width}")
        options["image_size"] = shape.height
    try:
        module = torchvision().models.get_model(name, weights=None, num_classes=shape.num_classes, **options)
    except AssertionError as error:
        raise ValueError(f"{name} does not take images of {shape.height}×{shape.width}: {error}") from error
    if norm == "group":
        _replace_batch_norm(module)
    linear = {found: layer for found, layer in module.named_modules() if isinstance(layer, nn.Linear)}
    head_name, head = list(linear.items())[-1]
    parent, _, own = head_name.rpartition(".")
    setattr(module.get_submodule(parent), own, nn.Identity())
    return TorchvisionModule(module, head, head_name)


def _replace_batch_norm(module: nn.Module) -> None:
    """By group norm of up to 32 groups, as many as divide the channels (Wu and He 2018)."""
    for layer in list(module.modules()):
        for name, child in layer.named_children():
            if isinstance(child, nn.BatchNorm2d):
                groups = math.gcd(_MOST_GROUPS, child.num_features)
                setattr(layer, name, nn.GroupNorm(groups, child.num_features, eps=child.eps))
