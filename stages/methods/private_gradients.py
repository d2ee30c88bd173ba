"""Differentially private gradients for training a generator: DP-SGD (Abadi et al. 2016), under Adam.

In each step every record is in the batch with probability q, by a secret coin; each record's gradient, averaged over K
draws of its randomness (noise multiplicity, Dockhorn et al. 2023: it costs time, not ε), is clipped; the sum is noised
and divided by a public constant. All that is drawn for a record comes from a secret stream (privacy contract, 7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stages.methods.draws import Draws, drawn, secretly_drawn
from stages.methods.generator_training import Generator, Losses, Part, PartGradient, Weights
from stages.methods.image_rows import ImageRows
from stages.privacy.clipping import noisy_gradient
from stages.privacy.mechanism import GaussianMechanism
from stages.privacy.streams import SecretStream


@dataclass(frozen=True, kw_only=True)
class SecretStreams:
    """One for each purpose; each step takes its own piece, wherever a training resumes."""

    sampling: SecretStream
    examples: SecretStream
    noise: SecretStream

    def sample(self, step: int, rate: float, count: int, units: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """A step's Poisson sample of `count` rows, and whose each is: with `units`, people are drawn, not rows.

        All rows of a person who is drawn are there, side by side. A person who leaves takes one coin away.
        """
        coins = self.sampling.at(step)
        if units is None:
            return torch.from_numpy(coins.bernoulli(rate, count)).nonzero().flatten(), None
        chosen = torch.from_numpy(coins.bernoulli(rate, int(units.max()) + 1 if count else 0))
        rows = chosen[units].nonzero().flatten()
        rows = rows[units[rows].argsort(stable=True)]
        return rows, units[rows]


def private_gradients(
    family: Generator,
    images: ImageRows,
    labels: Tensor,
    *,
    units: Tensor | None = None,
    num_classes: int,
    sampling_rate: float,
    mechanism: GaussianMechanism,
    multiplicity: int,
    streams: SecretStreams,
    public_of: Callable[[int], torch.Generator],
    micro_batch: int | None = None,
) -> Callable[[int], PartGradient]:
    """One release of the Gaussian mechanism a step, for the one part that sees images. `units` says whose a row is.

    A part that does not (a GAN's generator) is trained on labels drawn uniformly, from `public_of(t)`: it then follows
    from the noised parts alone, and costs nothing. The losses of private batches are not computed: nobody may choose by
    them.
    """
    if sum(part.sees_images for part in family.parts) != 1:
        raise ValueError("a family must have exactly one part that sees images")

    def gradients(step: int) -> PartGradient:
        drawn_rows, people = streams.sample(step, sampling_rate, len(labels), units)
        rows = drawn_rows.to(labels.device)
        examples = streams.examples.at(step)
        secret = secretly_drawn(family.draws, len(rows), multiplicity, examples, step=step)
        draws = {name: tensor.to(images.device) for name, tensor in secret.items()}
        noise = streams.noise.at(step)

        def gradient(part: Part, weights: Weights, names: Sequence[str]) -> tuple[Sequence[Tensor], Tensor | None]:
            if not part.sees_images:
                count = max(1, round(mechanism.expected_size))
                return _public_gradient(family, part, weights, names, num_classes, count, public_of(step))
            others = {name: tensor.detach() for name, tensor in weights.items() if name not in set(names)}

            def loss(own: Weights, image: Tensor, label: Tensor, mine: Draws) -> Tensor:
                return example_loss(part.losses, {**others, **own}, image, label, mine)

            found = noisy_gradient(
                loss,
                {name: weights[name].detach() for name in names},
                (images[rows], labels[rows], draws),
                mechanism=mechanism,
                noise=noise,
                chunk_size=micro_batch,
                people=people,
            )
            return [found[name] for name in names], None

        return gradient

    return gradients


def public_gradients(
    family: Generator, num_classes: int, batch_size: int, public_of: Callable[[int], torch.Generator]
) -> Callable[[int], PartGradient]:
    """For a family none of whose parts sees images: on labels drawn uniformly, which cost nothing."""

    def gradients(step: int) -> PartGradient:
        def gradient(part: Part, weights: Weights, names: Sequence[str]) -> tuple[Sequence[Tensor], Tensor | None]:
            return _public_gradient(family, part, weights, names, num_classes, batch_size, public_of(step))

        return gradient

    return gradients


def example_loss(losses: Losses, weights: Weights, image: Tensor, label: Tensor, draws: Draws) -> Tensor:
    """The loss of one example, which `torch.func` differentiates: the mean over its draws, [K, …] each."""
    times = next(iter(draws.values())).shape[0]
    return losses(weights, image.expand(times, *image.shape), label.expand(times), draws).mean()


def _public_gradient(
    family: Generator,
    part: Part,
    weights: Weights,
    names: Sequence[str],
    num_classes: int,
    count: int,
    generator: torch.Generator,
) -> tuple[Sequence[Tensor], None]:
    home = weights[names[0]].device
    labels = torch.randint(num_classes, (count,), generator=generator).to(home)
    draws = {name: tensor.to(home) for name, tensor in drawn(family.draws, count, generator).items()}
    unseen = torch.empty(count, 0, device=home)
    loss = part.losses(weights, unseen, labels, draws).mean()
    return torch.autograd.grad(loss, [weights[name] for name in names]), None
