"""The U-Net of a class-conditional DDPM: diffusers' `UNet2DModel`, with dropout that is handed in.

Fedssyn, Sec. 4, after Ho et al. 2020: 64 channels at full resolution, multipliers 1, 2, 2, 2, three residual blocks,
attention at the lower resolutions. The class is an embedding that is added to that of the time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from stages.nets.generator_params import ImageShape, UNetSize
from stages.nets.torchvision_door import diffusers

_HEAD = 8  # channels of an attention head
_MOST_GROUPS = 32


class GivenDropout(nn.Module):
    """Multiplies by `factor`: 0 where a unit is dropped, 1/(1−p) elsewhere, 1 outside training.

    diffusers draws its masks from global random state. Here they are a buffer, so that `functional_call` takes them
    like weights, and the loss of an example stays a pure function of what was drawn for it.
    """

    factor: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def unet(size: UNetSize, shape: ImageShape) -> nn.Module:
    """The network on the meta device. Raises `ValueError` where its levels do not fit the image."""
    levels = len(size.multipliers)
    step = 2 ** (levels - 1)
    if shape.height % step or shape.width % step:
        fitting = max(k for k in range(1, levels) if shape.height % 2 ** (k - 1) == shape.width % 2 ** (k - 1) == 0)
        shorter = ",".join(map(str, size.multipliers[:fitting]))
        raise ValueError(
            f"a U-Net of {levels} levels takes images whose sides are multiples of {step}, found "
            f"{shape.height}×{shape.width}: give --multipliers {shorter}, or resize the images (partition --image-size)"
        )
    attends = [level >= size.attention_from for level in range(levels)]
    # One group for two channels, as 32 for 64; the concatenated skips are multiples of the base width too.
    groups = math.gcd(_MOST_GROUPS, size.base_width // 2)
    with torch.device("meta"):
        net: nn.Module = diffusers().UNet2DModel(
            sample_size=(shape.height, shape.width),
            in_channels=shape.channels,
            out_channels=shape.channels,
            block_out_channels=tuple(size.base_width * m for m in size.multipliers),
            down_block_types=tuple("AttnDownBlock2D" if a else "DownBlock2D" for a in attends),
            up_block_types=tuple("AttnUpBlock2D" if a else "UpBlock2D" for a in reversed(attends)),
            layers_per_block=size.residual_blocks,
            attention_head_dim=_HEAD,
            norm_num_groups=groups,
            num_class_embeds=shape.num_classes,
            dropout=size.dropout,
        )
        for layer in list(net.modules()):
            for name, child in layer.named_children():
                if isinstance(child, nn.Dropout):
                    setattr(layer, name, GivenDropout() if child.p else nn.Identity())
            attention = diffusers().models.attention_processor
            if isinstance(layer, attention.Attention):
                # In plain products: the fused kernel has no rule for per-example gradients.
                layer.set_processor(attention.AttnProcessor())
    return net


def dropout_shapes(net: nn.Module, shape: ImageShape) -> dict[str, tuple[int, ...]]:
    """The name of each dropout's factor and its shape for one image, found by sending one through without memory."""
    found: dict[str, tuple[int, ...]] = {}

    def note(name: str) -> torch.utils.hooks.RemovableHandle:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found[f"{name}.factor"] = tuple(inputs[0].shape[1:])

        return net.get_submodule(name).register_forward_pre_hook(hook)

    handles = [note(name) for name, layer in net.named_modules() if isinstance(layer, GivenDropout)]
    if handles:
        with torch.no_grad():
            image = torch.empty(1, shape.channels, shape.height, shape.width, device="meta")
            number = torch.zeros(1, dtype=torch.long, device="meta")
            net(image, number, class_labels=number)
    for handle in handles:
        handle.remove()
    return found
