"""Clipped sums of per-example gradients: Abadi et al. 2016, Algorithm 1, with `torch.func`.

The loss of one example is a pure function of (weights, example, draws), differentiated example by example. So no layer
can mix examples, none is missed by a hook, and randomness inside the loss is an error: whatever an example needs is
drawn from the secret stream beforehand and handed in (rule 7). Known layers have a fast way (`example_gradients`); a
loss for which that is unfit is differentiated by `torch.func` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from stages.privacy.clipped_total import ClippedTotal
from stages.privacy.example_gradients import Gradients, Unfit, chunk_gradients, general_gradients
from stages.privacy.mechanism import GaussianMechanism, noisy_mean
from stages.privacy.person_total import PersonTotal
from stages.privacy.streams import SecretStream

# Of one example: loss(weights, *parts) is a number. A part is a tensor or, as draws are, tensors by name.
ExampleLoss = Callable[..., Tensor]
Part = Tensor | Mapping[str, Tensor]

# Examples in a chunk, by the most weights of a network: measured. Padding costs more the larger the chunk, calls less.
_CHUNK_SIZES = {64: 1 << 18, 32: 1 << 22, 16: 1 << 24, 8: 1 << 62}
_CHUNK_NUMBERS = 1 << 24  # per-example gradients held at a time on the general way, in numbers


def clipped_sum(
    loss: ExampleLoss,
    weights: Mapping[str, Tensor],
    examples: Sequence[Part],
    *,
    clip_norm: float,
    chunk_size: int | None = None,
    shared: torch.Generator | None = None,
    people: Tensor | None = None,
) -> dict[str, Tensor]:
    """Σᵢ min(1, C/‖gᵢ‖)·gᵢ in float64, gᵢ the gradient of example i's loss over ALL weights as one vector.

    Guarantee: adding or removing one example moves the sum by at most `clip_norm` in Euclidean norm, rounding
    included (see `mechanism` and `clipped_total`). An example whose gradient is not finite counts as zero, without a
    word (rule 11): crafted weights can make exactly one record's gradient overflow.

    `examples` are the parts of the loss, stacked along the first dimension, which may be empty. They are taken in
    chunks that bound the memory: it holds what the network keeps of a chunk between its two passes, and the gradients
    of a part of it. Each chunk is filled up to its full size, so that an example meets the same kernels wherever it
    is: else one record's presence could change the last bits of all the others' gradients.

    A draw inside the loss is an error, unless it is made from `shared`: then all examples of the batch see the same
    draw, in whichever chunk they are. One draw a chunk would not do: a record that goes moves others into another
    chunk, and their gradients would change with it.

    With `people`, a number for each example in ascending order, gᵢ is the sum of all of one person's gradients, and the
    guarantee is about adding or removing a person (see `person_total`).
    """
    size = chunk_size or default_chunk_size(weights)
    randomness = "error" if shared is None else "same"
    before = None if shared is None else shared.get_state()

    def fast(chunk: Sequence[Part], rows: int) -> Gradients:
        return chunk_gradients(loss, weights, chunk, examples=rows, randomness=randomness, most_numbers=_CHUNK_NUMBERS)

    def general(chunk: Sequence[Part], rows: int) -> Gradients:
        return general_gradients(loss, weights, chunk, examples=rows, randomness=randomness)

    def summed(gradients_of: Callable[[Sequence[Part], int], Gradients], size: int) -> dict[str, Tensor]:
        total = ClippedTotal(weights, clip_norm) if people is None else PersonTotal(weights, clip_norm, people)
        for chunk, is_real in _chunks(examples, _count(examples), size):
            if shared is not None and before is not None:
                shared.set_state(before)
            total.add(gradients_of(chunk, size), is_real)
        return total.tensors()

    try:
        return summed(fast, size)
    except Unfit:
        return summed(general, chunk_size or _general_chunk_size(weights))


def noisy_gradient(
    loss: ExampleLoss,
    weights: Mapping[str, Tensor],
    examples: Sequence[Part],
    *,
    mechanism: GaussianMechanism,
    noise: SecretStream,
    chunk_size: int | None = None,
    shared: torch.Generator | None = None,
    people: Tensor | None = None,
) -> dict[str, Tensor]:
    """One differentially private gradient: the clipped sum, noised, divided by the expected batch size; float32.

    Add a proximal term or control variates to what this returns, never to the loss (rule 15).
    """
    total = clipped_sum(
        loss, weights, examples, clip_norm=mechanism.clip_norm, chunk_size=chunk_size, shared=shared, people=people
    )
    released = noisy_mean({name: tensor.cpu().numpy() for name, tensor in total.items()}, mechanism, noise)
    return {name: torch.from_numpy(released[name]).to(tensor.device) for name, tensor in weights.items()}


def example_ways(
    loss: ExampleLoss, weights: Mapping[str, Tensor], examples: Sequence[Part], *, shared: torch.Generator | None = None
) -> dict[str, str]:
    """How `clipped_sum` makes the gradients of each weight: `batched` by us, by `opacus`, or by torch's `vmap`.

    One pass over a few examples that are like all others; raises what `torch.func` raises where it cannot be done.
    """
    randomness = "error" if shared is None else "same"
    count = _count(examples)
    most = _CHUNK_NUMBERS * count // default_chunk_size(weights)
    try:
        found = chunk_gradients(loss, weights, examples, examples=count, randomness=randomness, most_numbers=most)
    except Unfit:
        found = general_gradients(loss, weights, examples, examples=count, randomness=randomness)
    return dict(found.ways)


def default_chunk_size(weights: Mapping[str, Tensor]) -> int:
    """By the number of weights alone: the larger the network, the more it holds of each example between its passes."""
    numbers = sum(w.numel() for w in weights.values())
    return next((size for size, most in _CHUNK_SIZES.items() if numbers <= most), min(_CHUNK_SIZES))


def _general_chunk_size(weights: Mapping[str, Tensor]) -> int:
    """A power of two from 4 to 64, where all gradients of a chunk are held: about 64 MB of them."""
    fits = _CHUNK_NUMBERS // max(1, sum(w.numel() for w in weights.values()))
    return 1 << (max(4, min(64, fits)).bit_length() - 1)


def refuse_batch_norm(module: nn.Module) -> None:
    """Train-mode batch norm mixes examples, and its buffers leave without noise (rule 15). Raises `ValueError`."""
    for name, layer in module.named_modules():
        counts = isinstance(layer, _InstanceNorm) and layer.track_running_stats
        if layer.training and (counts or isinstance(layer, _BatchNorm)):
            raise ValueError(
                f"{name} is a batch norm in training: it mixes examples. "
                "Use a network with group norm, of torchvision with --norm group"
            )


def _chunks(examples: Sequence[Part], count: int, size: int) -> Iterator[tuple[list[Part], Tensor]]:
    """Chunks of exactly `size` rows, the last one filled up with its own last row, and which rows are real."""
    for start in range(0, count, size):
        rows = torch.arange(start, start + size)
        real = rows < count
        rows = rows.clamp(max=count - 1)
        yield [_rows(part, rows) for part in examples], real


def _rows(part: Part, rows: Tensor) -> Part:
    if isinstance(part, Tensor):
        return part[rows.to(part.device)]
    return {name: tensor[rows.to(tensor.device)] for name, tensor in part.items()}


def _count(examples: Sequence[Part]) -> int:
    tensors = [t for part in examples for t in ([part] if isinstance(part, Tensor) else part.values())]
    counts = {len(tensor) for tensor in tensors}
    if len(counts) != 1:
        raise ValueError(f"the parts of the examples must be of one length, found {sorted(counts)}")
    return counts.pop()
