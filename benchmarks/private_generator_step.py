"""A step of a differentially private generator against the same step without privacy and against Opacus' hooks.

One step is the gradient of the batch; noise is a row of its own, the optimiser is left out. All three see the same
images, times and noise. The goal is at most 2.5 times the plain step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from measuring import Row, Setting, compared, take_turns
from torch import Tensor, nn

from stages.execution.torch_setup import set_up
from stages.methods.ddpm import Ddpm, noise_schedule, noised
from stages.methods.draws import drawn
from stages.methods.params.ddpm import DdpmTraining
from stages.methods.private_gradients import example_loss
from stages.nets.generator_params import ImageShape
from stages.nets.unet import unet
from stages.privacy.clipping import clipped_sum
from stages.privacy.mechanism import GaussianMechanism, noisy_mean
from stages.privacy.streams import SecretStream

TITLE = "A step of a private generator"
_GOAL = 2.5
_CASES = {"digits 8×8": (8, "1,2"), "FashionMNIST 28×28": (28, "1,2,2")}
_MECHANISM = GaussianMechanism(clip_norm=1.0, noise_multiplier=1.0, expected_size=64)
_CONTEXT = dict.fromkeys(
    ("inputs", "params", "seed", "stage", "client", "round", "versions", "device", "arithmetic"), "bench"
)


def measure(setting: Setting) -> Iterator[Row]:
    set_up("cpu")
    turns, batch = (1, 4) if setting.smoke else (9, 64)
    cases = dict(list(_CASES.items())[: 1 if setting.smoke else None])
    for name, (size, multipliers) in cases.items():
        step = _Step(size, multipliers, batch)
        ours, noise = step.private, step.noise
        taken = take_turns({"ours": ours, "plain": step.plain, "opacus": step.opacus(), "noise": noise}, turns)
        what = f"{name}, {step.parameters:,} weights, batch {batch}"
        both = [a + b for a, b in zip(taken["ours"], taken["noise"], strict=True)]
        yield compared(f"{what}: clipped sum", "plain gradient", taken["ours"], taken["plain"], goal=_GOAL)
        yield compared(f"{what}: with its noise", "plain gradient", both, taken["plain"], goal=_GOAL)
        yield compared(f"{what}: clipped sum", "Opacus' hooks", taken["ours"], taken["opacus"])


class _Step:
    def __init__(self, size: int, multipliers: str, batch: int) -> None:
        self._shape = ImageShape(channels=1, height=size, width=size, num_classes=10)
        self._params = DdpmTraining(multipliers=multipliers)
        self._family = Ddpm(self._params, self._shape)
        generator = torch.Generator().manual_seed(0)
        self._weights = self._family.initial(generator)
        self._images = torch.randn((batch, 1, size, size), generator=generator)
        self._labels = torch.randint(10, (batch,), generator=generator)
        self._draws = drawn(self._family.draws, batch, generator)
        self._stream = SecretStream(bytes(32), _CONTEXT, "noise")
        self.parameters = sum(tensor.numel() for tensor in self._weights.values())

    def plain(self) -> None:
        weights = {name: tensor.detach().requires_grad_(True) for name, tensor in self._weights.items()}
        loss = self._family.losses(weights, self._images, self._labels, self._draws).mean()
        torch.autograd.grad(loss, list(weights.values()))

    def private(self) -> None:
        once = {name: tensor[:, None] for name, tensor in self._draws.items()}

        def loss(weights: Any, image: Tensor, label: Tensor, draws: Any) -> Tensor:
            return example_loss(self._family.losses, weights, image, label, draws)

        self._sum = clipped_sum(loss, self._weights, (self._images, self._labels, once), clip_norm=1.0)

    def noise(self) -> None:
        noisy_mean({name: tensor.numpy() for name, tensor in self._sum.items()}, _MECHANISM, self._stream)

    def opacus(self) -> Callable[[], None]:
        """Hooks that keep each example's gradient, which is then clipped and summed as Opacus' optimiser does."""
        from opacus.grad_sample import GradSampleModule

        class Predict(nn.Module):
            def __init__(self, net: nn.Module) -> None:
                super().__init__()
                self.net = net

            def forward(self, noisy: Tensor, times: Tensor, labels: Tensor) -> Tensor:
                predicted: Tensor = self.net(noisy, times, class_labels=labels, return_dict=False)[0]
                return predicted

        net = unet(self._params.unet(), self._shape).to_empty(device="cpu")
        net.load_state_dict({name.removeprefix("unet."): tensor for name, tensor in self._weights.items()})
        module = GradSampleModule(Predict(net.train()))
        alpha_bar = noise_schedule(1000)
        noise, times = self._draws["noise"], self._draws["time"]

        def step() -> None:
            module.zero_grad()
            noisy = noised(self._images, noise, alpha_bar[times])
            predicted = module(noisy, times, self._labels)
            (predicted - noise).square().flatten(1).mean(dim=1).mean().backward()
            samples = [parameter.grad_sample.flatten(1) for parameter in module.parameters()]
            norms = torch.stack([sample.norm(dim=1) for sample in samples]).norm(dim=0)
            factors = (1.0 / (norms + 1e-6)).clamp(max=1.0)
            for sample in samples:
                torch.einsum("i,ij->j", factors, sample)

        return step
