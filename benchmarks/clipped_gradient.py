"""The clipped sum of per-example gradients in DP-SGD, against a plain gradient and against Opacus, twice.

All four see the same images and weights. Opacus' hooks keep each example's gradient, which is then clipped and summed
as its optimiser does, in float32; its ghost clipping computes the norms alone and goes back a second time. Ours sums
in float64, as the floating-point rule of the privacy contract asks, and gives each record the same bits wherever it
is. Dropout is off: Opacus would draw it for each example. Goals: at most 1.2 times the plain gradient, at most
half of the hooks. Small networks pay for calls in Python whatever the batch, large ones for the float64 sums; where
the hooks are as fast as the plain gradient, half of them cannot be reached.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from measuring import Row, Setting, compared, take_turns
from torch import Tensor, nn
from torch.func import functional_call

from stages.execution.torch_setup import set_up
from stages.nets.build import build, initialise
from stages.nets.dropout import Dropout
from stages.nets.params import InputShape
from stages.privacy.clipping import clipped_sum
from stages.privacy.mechanism import GaussianMechanism, noisy_mean
from stages.privacy.streams import CONTEXT, SecretStream
from stages.registry import NETWORKS

TITLE = "Clipped sums of per-example gradients"
_GOAL = 1.2
_GOAL_BY_HOOKS = 0.5
_CLIP = 1.0
# Channels and size of the images, the batches, the network.
_CASES: dict[str, tuple[int, int, tuple[int, ...], dict[str, Any]]] = {
    "LeNet-5, 28×28": (1, 28, (64, 256), {"arch": "lenet5"}),
    "ConvNet 32×3, 28×28": (1, 28, (64, 256), {"arch": "convnet", "width": 32, "depth": 3}),
    "ConvNet 128×3, 28×28": (1, 28, (64, 256), {"arch": "convnet", "width": 128, "depth": 3}),
    "VGG-11, 32×32": (3, 32, (16, 64), {"arch": "vgg11"}),
}


def measure(setting: Setting) -> Iterator[Row]:
    set_up("cpu")
    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # Opacus' own
    turns = 1 if setting.smoke else 5 if setting.full else 3
    cases = dict(list(_CASES.items())[: 1 if setting.smoke else None])
    for name, (channels, size, batches, net) in cases.items():
        shape = InputShape(channels=channels, height=size, width=size, num_classes=10)
        for batch in batches[: 1 if setting.smoke else None]:
            step = _Step(shape, net, batch)
            sides = {"ours": step.ours, "plain": step.plain(), "hooks": step.hooks(), "ghost": step.ghost()}
            taken = take_turns({**sides, "noise": step.noise}, turns)
            what = f"{name}, {step.parameters:,} weights, batch {batch}"
            both = [a + b for a, b in zip(taken["ours"], taken["noise"], strict=True)]
            yield compared(what, "plain gradient", taken["ours"], taken["plain"], goal=_GOAL)
            yield compared(f"{what}, noised", "plain gradient", both, taken["plain"])
            yield compared(f"{what}, the noise alone", "plain gradient", taken["noise"], taken["plain"])
            yield compared(what, "Opacus' hooks", taken["ours"], taken["hooks"], goal=_GOAL_BY_HOOKS)
            yield compared(what, "Opacus' ghost clipping", taken["ours"], taken["ghost"])


class _Step:
    def __init__(self, shape: InputShape, net: dict[str, Any], batch: int) -> None:
        self._shape, self._net = shape, net
        generator = torch.Generator().manual_seed(0)
        self._images = torch.rand((batch, shape.channels, shape.height, shape.width), generator=generator) * 2 - 1
        self._labels = torch.randint(shape.num_classes, (batch,), generator=generator)
        self._module = self._fresh()
        self._weights = {name: weight.detach() for name, weight in self._module.named_parameters()}
        self._mechanism = GaussianMechanism(clip_norm=_CLIP, noise_multiplier=1.0, expected_size=batch)
        self._stream = SecretStream(bytes(32), dict.fromkeys(CONTEXT, "bench"), "noise")
        self._sum: dict[str, Tensor] = {}
        self.parameters = sum(weight.numel() for weight in self._weights.values())

    def _fresh(self) -> nn.Module:
        """The same network each time, in training but for its dropout."""
        module = build(NETWORKS.from_mapping(self._net), self._shape)
        initialise(module, torch.Generator().manual_seed(0))
        module.train()
        for layer in module.modules():
            if isinstance(layer, Dropout):
                layer.eval()
        return module

    def ours(self) -> None:
        def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
            logits = functional_call(self._module, weights, (image[None],))
            return nn.functional.cross_entropy(logits, label[None])

        self._sum = clipped_sum(loss, self._weights, (self._images, self._labels), clip_norm=_CLIP)

    def noise(self) -> None:
        noisy_mean({name: tensor.numpy() for name, tensor in self._sum.items()}, self._mechanism, self._stream)

    def plain(self) -> Callable[[], None]:
        module = self._fresh()

        def step() -> None:
            module.zero_grad()
            nn.functional.cross_entropy(module(self._images), self._labels).backward()  # type: ignore[no-untyped-call]

        return step

    def hooks(self) -> Callable[[], None]:
        from opacus.grad_sample import GradSampleModule

        module = GradSampleModule(self._fresh(), loss_reduction="sum")

        def step() -> None:
            module.zero_grad()
            loss: Any = nn.functional.cross_entropy(module(self._images), self._labels, reduction="sum")
            loss.backward()
            samples = [parameter.grad_sample.flatten(1) for parameter in module.parameters()]
            norms = torch.stack([sample.norm(dim=1) for sample in samples]).norm(dim=0)
            factors = (_CLIP / (norms + 1e-6)).clamp(max=1.0)
            for sample in samples:
                torch.einsum("i,ij->j", factors, sample)

        return step

    def ghost(self) -> Callable[[], None]:
        """As Opacus' own loss does it: back for the norms, then back again with the examples weighed."""
        from opacus.grad_sample import GradSampleModuleFastGradientClipping

        module = GradSampleModuleFastGradientClipping(
            self._fresh(), loss_reduction="sum", max_grad_norm=_CLIP, use_ghost_clipping=True
        )

        def step() -> None:
            module.zero_grad()
            losses: Any = nn.functional.cross_entropy(module(self._images), self._labels, reduction="none")
            losses.sum().backward(retain_graph=True)
            module.zero_grad()
            factors = module.get_clipping_coef()
            module.disable_hooks()
            (factors * losses).sum().backward()
            module.enable_hooks()

        return step
