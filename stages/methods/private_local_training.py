"""DP-SGD for a client's local steps: Abadi et al. 2016, Algorithm 1.

In each step every record is in the batch with probability q, by a secret coin; its gradient over all weights is
clipped; the sum is noised and divided by a public constant. Where people are protected the coin is a person's, and the
sum of the gradients of all of their records is clipped. Whatever an algorithm adds to the gradient (FedProx'
proximal term, SCAFFOLD's variates) comes after that, from weights that are noised already (privacy contract, 15).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from stages.methods.image_rows import ImageRows
from stages.methods.local_training import StepGradient
from stages.methods.private_gradients import SecretStreams
from stages.nets.attention import plain_attention
from stages.nets.called import called
from stages.nets.dropout import set_dropout_generator
from stages.nets.state import trained
from stages.privacy.clipping import ExampleLoss, noisy_gradient, refuse_batch_norm
from stages.privacy.mechanism import GaussianMechanism
from stages.privacy.streams import SecretStream


def private_gradients(
    module: nn.Module,
    images: ImageRows,
    labels: Tensor,
    *,
    units: Tensor | None = None,
    steps: int,
    sampling_rate: float,
    mechanism: GaussianMechanism,
    streams: SecretStreams,
    micro_batch: int | None = None,
) -> Iterator[StepGradient]:
    """One release of the Gaussian mechanism a step. Raises `ValueError` where batch norm would mix examples.

    `micro_batch` examples are differentiated at a time. A step's gradient can be had once: at other weights it would be
    another release. The loss is not computed. Dropout draws one mask for the whole batch, from the secret stream. With
    `units`, which says whose each row is, people are protected.
    """
    refuse_batch_norm(module.train())
    named = trained(module)
    home = next(iter(named.values())).device

    loss = example_loss(module)
    for step in range(1, steps + 1):
        drawn_rows, people = streams.sample(step, sampling_rate, len(labels), units)
        rows = drawn_rows.to(labels.device)
        masks = torch.Generator(home).manual_seed(streams.examples.at(step).torch_seed())
        set_dropout_generator(module, masks)
        noise = streams.noise.at(step)

        def gradient(
            rows: Tensor = rows,
            people: Tensor | None = people,
            noise: SecretStream = noise,
            masks: torch.Generator = masks,
        ) -> None:
            found = noisy_gradient(
                loss,
                {name: weight.detach() for name, weight in named.items()},
                (images[rows], labels[rows]),
                mechanism=mechanism,
                noise=noise,
                chunk_size=micro_batch,
                shared=masks,
                people=people,
            )
            for name, weight in named.items():
                weight.grad = found[name]

        yield gradient


def example_loss(module: nn.Module) -> ExampleLoss:
    """The cross entropy of one labelled image, as a function of the weights."""

    def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        with plain_attention():
            return nn.functional.cross_entropy(called(module, weights, image[None]), label[None])

    return loss
