"""β-VAE: Kingma and Welling 2013, Higgins et al. 2017, Burgess et al. 2018; Fedssyn's choice for dSprites (App. A.4).

Loss of an image: −log p(x|z) + β·KL(N(μ, σ²) ‖ N(0, I)), z = μ + σ·ε, pixels Bernoulli. With a capacity it is
−log p(x|z) + γ·|KL − C_t| (Burgess et al., Eq. 8), C_t growing evenly with the steps; the distance is taken of each
image where others take that of a batch's mean, as a loss of one example depends on no other here. Fedssyn's VAE does
not see the class: it takes the mean code of each class, μ_c, and draws codes from N(μ_c, I) (`class-mean`). Where one
client has several classes, telling encoder and decoder the class and drawing from N(0, I) is sharper (`label`), and no
statistic of private data is needed after training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stages.methods.draws import Draw, Draws
from stages.methods.generator_training import Part, Weights
from stages.methods.image_rows import ImageRows
from stages.methods.params.vae import VaeTraining
from stages.nets.generator_params import ImageShape
from stages.nets.stateless import call, initial_parts, part_of
from stages.nets.vae_net import VaeDecoder, VaeEncoder

_MEANS = "class_means"
_AT_ONCE = 1000


class Vae:
    """The family `vae`."""

    def __init__(self, params: VaeTraining, shape: ImageShape) -> None:
        self._params = params
        self._latent: int = params.latent_size
        self._sees_class = params.conditioning == "label"
        self._num_classes = shape.num_classes
        with torch.device("meta"):
            size = {"filters": params.filters, "hidden": params.hidden_size, "latent": self._latent}
            self._encoder: nn.Module = VaeEncoder(shape, sees_class=self._sees_class, **size)
            self._decoder: nn.Module = VaeDecoder(shape, sees_class=self._sees_class, **size)
        self.parts = (Part(name="vae", losses=self.losses),)
        self.kept: dict[str, Tensor] = {
            f"vae.decoder.{name}": tensor for name, tensor in self._decoder.named_parameters()
        }
        if not self._sees_class:
            self.kept[_MEANS] = torch.empty(shape.num_classes, self._latent, device="meta")
        self.draws: Mapping[str, Draw] = {"code": Draw(law="normal", shape=(self._latent,))}
        if params.capacity is not None:
            self.draws = {**self.draws, "step": Draw(law="step")}

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        return initial_parts({"vae.encoder": self._encoder, "vae.decoder": self._decoder}, generator)

    def losses(self, weights: Weights, images: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        """The negative ELBO of each example in nats; a pure function of weights, examples and draws."""
        brightness = (images + 1) / 2
        mean, log_variance = self._encode(weights, brightness, labels)
        codes = mean + (log_variance / 2).exp() * draws["code"]
        logits = self._decode(weights, codes, labels)
        surprise = F.binary_cross_entropy_with_logits(logits, brightness, reduction="none").flatten(1).sum(dim=1)
        return surprise + self._price(divergence(mean, log_variance), draws)

    def _price(self, nats: Tensor, draws: Draws) -> Tensor:
        """What the code of each example costs beside its surprise."""
        params = self._params
        if params.capacity is None:
            return params.beta * nats
        reached = params.capacity * (draws["step"] / params.capacity_steps).clamp(max=1)
        return params.gamma * (nats - reached).abs()

    @torch.no_grad()
    def finished(self, weights: Weights, images: ImageRows, labels: Tensor) -> dict[str, Tensor]:
        """The decoder, and the mean code of each class where codes are drawn around it (zero for unseen classes)."""
        kept = {name: weights[name] for name in self.kept if name != _MEANS}
        if not self._sees_class:
            batches = [slice(first, first + _AT_ONCE) for first in range(0, len(labels), _AT_ONCE)]
            codes = torch.cat([self._encode(weights, (images[r] + 1) / 2, labels[r])[0] for r in batches])
            members = F.one_hot(labels, self._num_classes).to(codes.dtype)
            kept[_MEANS] = members.T @ codes / members.sum(dim=0).clamp(min=1)[:, None]
        return kept

    @torch.no_grad()
    def sample(
        self,
        weights: Weights,
        labels: Tensor,
        generator: torch.Generator,
        *,
        report: Callable[[int, int], None],
    ) -> Tensor:
        """Images in [−1, 1], one for each label: the mean brightness that the decoder gives for a fresh code."""
        codes = torch.randn((len(labels), self._latent), generator=generator).to(labels.device)
        if not self._sees_class:
            codes = codes + weights[_MEANS][labels]
        images = self._decode(weights, codes, labels).sigmoid() * 2 - 1
        report(1, 1)
        return images

    def _encode(self, weights: Weights, brightness: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = call(self._encoder, part_of(weights, "vae.encoder."), brightness, labels)
        return mean, log_variance

    def _decode(self, weights: Weights, codes: Tensor, labels: Tensor) -> Tensor:
        logits: Tensor = call(self._decoder, part_of(weights, "vae.decoder."), codes, labels)
        return logits


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, I)) of each row: ½·Σ(μ² + σ² − log σ² − 1)."""
    return (mean.square() + log_variance.exp() - log_variance - 1).sum(dim=1) / 2
