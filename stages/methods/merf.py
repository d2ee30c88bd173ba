"""DP-MERF: Harder, Adamczewski and Park 2021. A generator by kernel mean embeddings with random Fourier features.

φ(x) = (cos ωᵢ·x, sin ωᵢ·x)/√(D/2), ω normal with variance 1/ℓ²: φ(x)·φ(y) is about exp(−‖x − y‖²/2ℓ²) (Rahimi and Recht
2008), and φ(x) has length 1, so that no record needs to be clipped. What is looked at is Σ φ(x) for each class, once;
the generator is trained until the images of a class have that mean. Every step after the look is post-processing: ε is
that of one Gaussian mechanism. Ours differs in two points: adding or removing a record is what is protected, with a
count beside the features in place of a public number of records; and the squared distance is estimated without bias,
by two images for each example, where a batch's own mean would reward images that are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from stages.methods.draws import Draw, Draws
from stages.methods.generator_training import Part, Weights
from stages.methods.image_rows import ImageRows
from stages.methods.params.merf import LEARNT_CLASSES, MerfTraining
from stages.nets.generator_params import ImageShape
from stages.nets.stateless import call, initial_parts, part_of
from stages.nets.vae_net import VaeDecoder

COUNT_SHARE = 0.3
"""Of a record's length, for its count: noise of 3σ in a class's number, 5% more in its features."""

_FEATURES_SHARE = (1 - COUNT_SHARE**2) ** 0.5
_FREQUENCIES, MEANS = "target.frequencies", "target.means"
_AT_ONCE = 500
_LEAST_COUNT = 1.0


class Merf:
    """The family `merf`."""

    def __init__(self, params: MerfTraining, shape: ImageShape) -> None:
        self._latent: int = params.latent_size
        self._features: int = params.features
        self._pixels = shape.channels * shape.height * shape.width
        self._length: float = (params.bandwidth * self._pixels) ** 0.5
        self._num_classes = shape.num_classes
        with torch.device("meta"):
            self._decoder: nn.Module = VaeDecoder(
                shape, filters=params.filters, hidden=params.hidden_size, latent=self._latent, sees_class=True
            )
        self.parts = (Part(name="merf", losses=self.losses, sees_images=False),)
        self.kept: dict[str, Tensor] = {f"merf.{name}": tensor for name, tensor in self._decoder.named_parameters()}
        self.kept[LEARNT_CLASSES] = torch.empty(shape.num_classes, device="meta")
        code = Draw(law="normal", shape=(self._latent,))
        self.draws: Mapping[str, Draw] = {"code": code, "another code": code}

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        """The generator's weights, the frequencies, and means that `targets` replaces."""
        weights = initial_parts({"merf": self._decoder}, generator)
        frequencies = torch.randn(self._features // 2, self._pixels, generator=generator) / self._length
        return {**weights, _FREQUENCIES: frequencies, MEANS: torch.zeros(self._num_classes, self._features)}

    def embedded(self, weights: Weights, images: Tensor) -> Tensor:
        """φ of each image, [n, D], in the images' own precision."""
        angles = images.flatten(1) @ weights[_FREQUENCIES].to(images.dtype).T
        found: Tensor = torch.cat([angles.cos(), angles.sin()], dim=1) / (self._features / 2) ** 0.5
        return found

    def losses(self, weights: Weights, _images: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        """φ(G(z))·φ(G(z′)) − m·(φ(G(z)) + φ(G(z′))): its mean is ‖μ − m‖² − ‖m‖², μ being the mean of φ(G(z)).

        Classes without a mean have no loss.
        """
        means = weights[MEANS][labels]
        one, other = (self.embedded(weights, self._make(weights, draws[name], labels)) for name in self.draws)
        return ((one * other).sum(1) - (means * (one + other)).sum(1)) * means.any(1)

    @torch.no_grad()
    def class_sums(
        self, weights: Weights, images: ImageRows, labels: Tensor, *, limit: float, people: Tensor | None
    ) -> Tensor:
        """Σ over records of [φ·√(1 − f²); f]·limit in the block of its class, [classes, D + 1], in float64.

        float64, because the bits of one record's features may depend on which others are beside it: over 100,000
        records that is far below what the clip's margin pays for.
        """
        order = torch.arange(len(labels)) if people is None else people.argsort(stable=True)
        sizes = _AT_ONCE if people is None else people[order].unique_consecutive(return_counts=True)[1].tolist()
        total = torch.zeros(self._num_classes, self._features + 1, dtype=torch.float64)
        for rows in order.split(sizes) if len(order) else ():
            features = self.embedded(weights, images[rows.to(labels.device)].double()).cpu()
            vectors = (
                torch.cat(
                    [features * _FEATURES_SHARE, torch.full((len(rows), 1), COUNT_SHARE, dtype=torch.float64)], dim=1
                )
                * limit
            )
            own = torch.zeros_like(total).index_add_(0, labels.cpu()[rows], vectors)
            # All that one person adds is clipped as one; a record alone has this very length.
            total += own if people is None else own * (limit / own.norm().clamp(min=limit))
        return total

    def targets(self, sums: Tensor, *, limit: float, noise: float) -> dict[str, Tensor]:
        """The means of the classes that stand out of the noise; `noise` is the standard deviation of each sum."""
        counts = sums[:, -1] / (limit * COUNT_SHARE)
        present = counts >= max(_LEAST_COUNT, 3 * noise / (limit * COUNT_SHARE))
        means = sums[:, :-1] / (limit * _FEATURES_SHARE) / counts.clamp(min=_LEAST_COUNT)[:, None]
        return {MEANS: (means * present[:, None]).float()}

    def finished(self, weights: Weights, _images: ImageRows, _labels: Tensor) -> dict[str, Tensor]:
        """The generator, and which classes had a mean to match: ones and zeros."""
        decoder = {name: weights[name] for name in self.kept if name != LEARNT_CLASSES}
        return {**decoder, LEARNT_CLASSES: weights[MEANS].any(1).float()}

    @torch.no_grad()
    def sample(
        self, weights: Weights, labels: Tensor, generator: torch.Generator, *, report: Callable[[int, int], None]
    ) -> Tensor:
        """Images in [−1, 1], one for each label."""
        codes = torch.randn((len(labels), self._latent), generator=generator).to(labels.device)
        images = self._make(weights, codes, labels)
        report(1, 1)
        return images

    def _make(self, weights: Weights, codes: Tensor, labels: Tensor) -> Tensor:
        logits: Tensor = call(self._decoder, part_of(weights, "merf."), codes, labels)
        return logits.sigmoid() * 2 - 1
