"""Local SGD of several clients at once, over stacked weights: a step of all of them is one pass (`torch.func`).

What a client's result is follows from its own data, the parameters and the number of places in the stack alone: not
from the others, nor from its place. So a batch is filled up to a size that follows from the client's own, by rows of
weight zero, and a stack with fewer clients than places by copies of the first. The batches are those of one-by-one
training; the sums inside a pass are taken in another order, so that the last bits differ from it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from stages.methods.image_rows import ImageRows
from stages.methods.local_training import LocalResult, refuse_pieces
from stages.methods.params.local_training import LocalTraining
from stages.methods.sam import uphill_stacked
from stages.nets.attention import plain_attention
from stages.nets.dropout import Dropout
from stages.nets.state import exchanged, trained

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class ClientTask:
    """What one client trains on: `batches` has the rows of each of its `total` steps."""

    images: ImageRows
    labels: Tensor
    batches: Iterator[Tensor]
    total: int


def filled_size(num_examples: int, batch_size: int) -> int:
    """The rows of every batch of a client with so many examples: the next power of two, at most the batch size."""
    return min(batch_size, 1 << max(num_examples - 1, 0).bit_length())


def train_stacked(
    module: nn.Module,
    clients: Sequence[ClientTask],
    *,
    places: int,
    rows: int,
    params: LocalTraining,
    round: int,
    report: Callable[[int, int, Tensor | None], None],
) -> list[LocalResult]:
    """Train a copy of `module` for each of the clients, at most `places`, on batches filled up to `rows`.

    Raises `ValueError` for a network that cannot be trained so.
    """
    gradients = _gradients(_prepared(module))
    start = {name: weight.detach() for name, weight in trained(module).items()}
    named = {name: nn.Parameter(weight.expand(places, *weight.shape).clone()) for name, weight in start.items()}
    rate = params.rate(round)
    optimiser = torch.optim.SGD(named.values(), lr=rate, **params.optimiser())  # type: ignore[arg-type]
    algorithm, penalty = params.client(named, {}, {}), params.penalty(named, stacked=True)
    steps = max(client.total for client in clients)
    batches = [_filled(client, rows, steps) for client in clients]
    found: dict[int, dict[str, Tensor]] = {}
    for step in range(1, steps + 1):
        drawn = [next(batch) for batch in batches]
        drawn += [drawn[0]] * (places - len(drawn))
        examples = tuple(torch.stack(parts) for parts in zip(*drawn, strict=True))
        weights = {name: weight.detach() for name, weight in named.items()}
        slopes, losses = gradients(weights, *examples)
        if params.sam_rho is not None:
            there = uphill_stacked(weights, slopes, params.sam_rho, adaptive=params.adaptive_sam)
            slopes, _ = gradients(there, *examples)
        for name, weight in named.items():
            weight.grad = slopes[name]
        algorithm.correct(named)
        if penalty is not None:
            penalty.correct(named)
        optimiser.step()
        for place, client in enumerate(clients):
            if client.total == step:  # what its place computes from here on, beside longer trainings, is nobody's
                found[place] = {name: before - named[name][place].detach() for name, before in start.items()}
        report(step, steps, losses[: len(clients)].mean())
    still = {name: torch.zeros_like(tensor) for name, tensor in exchanged(module).items() if name not in start}
    return [LocalResult({**found[place], **still}, {}, client.total) for place, client in enumerate(clients)]


def refuse_stack(module: nn.Module) -> None:
    """`ValueError` for layers that look at a whole batch, which is filled up here, or that draw for one client."""
    refuse_pieces(module.train())
    for name, layer in module.named_modules():
        if isinstance(layer, Dropout):
            raise ValueError(f"{name} is a dropout, whose masks are drawn for one client at a time. Leave it out")


def _filled(client: ClientTask, size: int, steps: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Images, labels and weights in the mean loss for each step; after the client's last one that batch again."""
    batch = None
    for _ in range(steps):
        rows = next(client.batches, None)
        if rows is not None:
            filled = torch.cat([rows, rows.new_zeros(size - len(rows))])
            weights = torch.zeros(size, device=client.labels.device)
            weights[: len(rows)] = 1 / len(rows)
            batch = client.images[filled], client.labels[filled], weights
        assert batch is not None  # a client has at least one step
        yield batch


def _gradients(module: nn.Module) -> Callable[..., tuple[dict[str, Tensor], Tensor]]:
    """The gradient of each place's mean loss at its own weights, and that loss."""

    def loss(weights: dict[str, Tensor], images: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
        with plain_attention():
            scores = functional_call(module, weights, (images,))
        return (nn.functional.cross_entropy(scores, labels, reduction="none") * shares).sum()

    return vmap(grad_and_value(loss))


class _BiasAfter(nn.Module):
    """A convolution that adds its bias in a step of its own.

    `vmap` makes one convolution of all places: its sum for the gradient of the biases would run over the channels of
    all of them at once, and round a place by where it is.
    """

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self._form: dict[str, Any] = {
            name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups")
        }

    def forward(self, images: Tensor) -> Tensor:
        found = nn.functional.conv2d(images, self.weight, **self._form)
        return found if self.bias is None else found + self.bias[:, None, None]


def _prepared(module: nn.Module) -> nn.Module:
    """A copy whose convolutions add their bias afterwards; parameters keep their names."""
    refuse_stack(module)
    made = copy.deepcopy(module)
    for parent in list(made.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Conv2d and layer.padding_mode == "zeros":
                setattr(parent, name, _BiasAfter(layer))
    return made
