"""Local SGD: what a client does with the model in one round, and where federated algorithms hook in.

An algorithm is a class with `correct`: it changes the gradients between the backward pass and the optimiser's
step. That is the one point in which FedAvg, FedProx, SCAFFOLD and their kin differ on the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from stages.methods.params.local_training import LocalTraining
from stages.nets.dropout import set_dropout_generator


class LocalAlgorithm(Protocol):
    """The client's side of a federated algorithm, for one round."""

    def correct(self, weights: list[nn.Parameter]) -> None:
        """Change the gradients of `weights`, in place, before the step is taken."""


@dataclass(frozen=True)
class LocalResult:
    """`update` is start minus end, for every parameter and every floating-point buffer."""

    update: dict[str, Tensor]
    num_steps: int


def train_locally(
    module: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    params: LocalTraining,
    algorithm: LocalAlgorithm,
    round: int,
    batch_generator: torch.Generator,
    dropout_generator: torch.Generator,
    report: Callable[[int, int, Tensor], None],
) -> LocalResult:
    """Train `module`, which holds the weights of the round's start, in place.

    Batches are drawn on the CPU, so that every device sees the same ones; dropout draws on the module's device.
    """
    start = {name: tensor.detach().clone() for name, tensor in exchanged(module).items()}
    weights = list(module.parameters())
    optimiser = torch.optim.SGD(
        weights, lr=params.rate(round), momentum=params.momentum, weight_decay=params.weight_decay
    )
    loss_of = nn.CrossEntropyLoss()
    module.train()
    set_dropout_generator(module, dropout_generator)
    total = num_steps(params, len(labels))
    for step, rows in enumerate(batches(params, len(labels), batch_generator), start=1):
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(module(images[rows]), labels[rows])
        loss.backward()
        algorithm.correct(weights)
        optimiser.step()
        report(step, total, loss.detach())
    end = exchanged(module)
    return LocalResult({name: before - end[name].detach() for name, before in start.items()}, total)


def exchanged(module: nn.Module) -> Mapping[str, Tensor]:
    """What federated averaging averages: parameters, and batch norm's running averages.

    Its counter of batches is left out: it is a count of local steps, and nothing uses it.
    """
    return {name: tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()}


def num_steps(params: LocalTraining, num_examples: int) -> int:
    """Gradient steps in a round: τ as given, or E·⌈n/B⌉."""
    if params.algorithm == "fedsgd":
        return 1
    if params.local_steps is not None:
        return params.local_steps
    return (params.local_epochs or 1) * -(-num_examples // params.batch_size)


def batches(params: LocalTraining, num_examples: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Row numbers of each step's batch: a fresh permutation for each pass, the last batch as it falls."""
    if params.algorithm == "fedsgd":
        yield torch.arange(num_examples)
        return
    left = num_steps(params, num_examples)
    while left:
        order = torch.randperm(num_examples, generator=generator)
        for first in range(0, min(num_examples, left * params.batch_size), params.batch_size):
            yield order[first : first + params.batch_size]
            left -= 1
