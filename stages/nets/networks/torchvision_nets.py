"""torchvision's classifiers, by their names there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from stages.hyperparameters import When, hyper
from stages.nets.params import InputShape, Network
from stages.registry import NETWORKS

if TYPE_CHECKING:
    from torch import nn

Norm = Literal["batch", "group"]
# They have layer norm.
_WITHOUT_BATCH_NORM = ("torchvision:vit_b_16", "torchvision:convnext_tiny")


@NETWORKS.register
@dataclass(frozen=True, kw_only=True)
class TorchvisionNet(Network):
    """A network of torchvision.models, its last linear layer for the classes at hand."""

    reference: ClassVar[str] = "torchvision.models"

    arch: Literal[
        "torchvision:resnet18",
        "torchvision:resnet34",
        "torchvision:resnet50",
        "torchvision:resnet101",
        "torchvision:wide_resnet50_2",
        "torchvision:resnext50_32x4d",
        "torchvision:mobilenet_v2",
        "torchvision:mobilenet_v3_small",
        "torchvision:mobilenet_v3_large",
        "torchvision:efficientnet_b0",
        "torchvision:efficientnet_b1",
        "torchvision:densenet121",
        "torchvision:shufflenet_v2_x1_0",
        "torchvision:regnet_y_400mf",
        "torchvision:vgg11_bn",
        "torchvision:convnext_tiny",
        "torchvision:vit_b_16",
    ] = hyper("torchvision:resnet18", "torchvision:…: that classifier of torchvision, grey images as three channels")
    norm: Norm = hyper(
        "batch",
        "torchvision: batch norm as the network has it, or group norm in its place, which differential privacy allows",
        when=When("a torchvision network that has batch norm", lambda p: p.arch not in _WITHOUT_BATCH_NORM),
    )

    def made_for(self, shape: InputShape) -> nn.Module:
        from stages.nets.torchvision_nets import torchvision_net

        return torchvision_net(self.arch.partition(":")[2], shape, norm=self.norm)
