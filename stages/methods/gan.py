"""A conditional GAN: Goodfellow et al. 2014, non-saturating losses; Mirza and Osindero 2014 for the class.

Fedssyn compares its DDPM with GANs (Fig. 4c) and prints none of their numbers, so the sizes are ours. In each step the
discriminator comes first, then the generator against the new discriminator. `r1` is the penalty of Mescheder et al.
2018, γ/2·‖∇_x D(x)‖² on real images, without which a few hundred images are learnt by heart at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stages.methods.draws import Draw, Draws
from stages.methods.generator_training import Part, Weights
from stages.methods.image_rows import ImageRows
from stages.methods.params.gan import GanTraining
from stages.nets.gan_net import Discriminator, GanGenerator
from stages.nets.generator_params import ImageShape
from stages.nets.stateless import call, initial_parts, part_of

# With momentum 0.9 the two chase each other in circles; 0 is what the R1 penalty's authors use.
_BETAS = (0.0, 0.99)


class Gan:
    """The family `gan`."""

    def __init__(self, params: GanTraining, shape: ImageShape) -> None:
        self._latent: int = params.latent_size
        self._penalty: float = params.r1
        filters: int = params.filters
        with torch.device("meta"):
            self._generator: nn.Module = GanGenerator(shape, filters=filters, latent=self._latent)
            self._discriminator: nn.Module = Discriminator(shape, filters=filters)
        self.parts = (
            Part(name="discriminator", losses=self.discriminator_losses, betas=_BETAS),
            Part(name="generator", losses=self.generator_losses, betas=_BETAS, sees_images=False),
        )
        self.kept = {f"generator.{name}": tensor for name, tensor in self._generator.named_parameters()}
        code = Draw(law="normal", shape=(self._latent,))
        self.draws: Mapping[str, Draw] = {"code of the fake": code, "code": code}

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        return initial_parts({"generator": self._generator, "discriminator": self._discriminator}, generator)

    def discriminator_losses(self, weights: Weights, images: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        """−log D(x) − log(1 − D(G(z))) of each example, D the sigmoid of the logit, and the penalty."""
        fakes = self._make(weights, draws["code of the fake"], labels).detach()
        real, slopes = self._judge_with_slope(weights, images, labels)
        fake = self._judge(weights, fakes, labels)
        return F.softplus(-real) + F.softplus(fake) + self._penalty / 2 * slopes

    def generator_losses(self, weights: Weights, _images: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        """−log D(G(z)) of each example. It sees the labels of the batch and none of its images."""
        return F.softplus(-self._judge(weights, self._make(weights, draws["code"], labels), labels))

    def finished(self, weights: Weights, _images: ImageRows, _labels: Tensor) -> dict[str, Tensor]:
        return {name: weights[name] for name in self.kept}

    @torch.no_grad()
    def sample(
        self,
        weights: Weights,
        labels: Tensor,
        generator: torch.Generator,
        *,
        report: Callable[[int, int], None],
    ) -> Tensor:
        """Images in [−1, 1], one for each label."""
        codes = torch.randn((len(labels), self._latent), generator=generator).to(labels.device)
        images = self._make(weights, codes, labels)
        report(1, 1)
        return images

    def _make(self, weights: Weights, codes: Tensor, labels: Tensor) -> Tensor:
        images: Tensor = call(self._generator, part_of(weights, "generator."), codes, labels)
        return images

    def _judge(self, weights: Weights, images: Tensor, labels: Tensor) -> Tensor:
        logits: Tensor = call(self._discriminator, part_of(weights, "discriminator."), images, labels)
        return logits

    def _judge_with_slope(self, weights: Weights, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of real images, and ‖∇_x D(x)‖² of each."""

        def total(pixels: Tensor) -> tuple[Tensor, Tensor]:
            logits = self._judge(weights, pixels, labels)
            return logits.sum(), logits

        # The logit of an image depends on that image alone, so the gradient of the sum holds each one's own.
        slopes, logits = torch.func.grad(total, has_aux=True)(images)
        return logits, slopes.square().flatten(1).sum(dim=1)
