"""What an update discloses without any search: inputs of linear layers, label counts, and who was in it.

start − end after one step on n records is a multiple of their mean gradient. Of a linear layer y = Wx + b the gradient
is Σ δᵢxᵢᵀ and Σ δᵢ: with one record every row of ΔW by the same of Δb is x itself, to the last bits; with more, a row
to which one record alone contributes. The last bias has Σ (softmax(zᵢ) − yᵢ), which counts labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from stages.methods.row_cosines import flat
from stages.methods.tofu import cosine_of, traced
from stages.nets.dropout import Dropout
from stages.nets.state import trained

_LEAST = 1e-12


def linear_inputs(module: nn.Module, update: Mapping[str, Tensor], pixels: int) -> Tensor | None:
    """Candidates [rows, pixels] for what the first layer saw, if it is a linear one on the pixels; else None.

    Rows by the size of their bias: where that is nearly zero the quotient is noise.
    """
    found = next(((name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear)), None)
    if found is None or found[1].in_features != pixels or f"{found[0]}.bias" not in update:
        return None
    weight, bias = (update[f"{found[0]}.{part}"].double() for part in ("weight", "bias"))
    kept = bias.abs() > _LEAST * bias.abs().max()
    order = torch.argsort(bias[kept].abs(), descending=True)
    return (weight[kept] / bias[kept, None])[order]


def label_shares(bias: Tensor, expected: Tensor) -> Tensor:
    """The share of each class among the records, from the update of the last bias and the mean prediction p̄.

    Δb = s(p̄ − c/n); s is the smallest that leaves no share below zero, and exact where some class is absent.
    """
    change, expected = bias.double(), expected.double()
    scale = (change / expected.clamp(min=_LEAST)).max()
    if not scale > 0:
        return expected
    shares = (expected - change / scale).clamp(min=0)
    return shares / shares.sum()


def linked(module: nn.Module, update: Mapping[str, Tensor], images: Tensor, labels: Tensor) -> NDArray[np.float64]:
    """Of each candidate the cosine between its own gradient and the update: a record that was in it points along."""
    target = flat([update[name] for name in trained(module)])
    scores = []
    for row in range(len(labels)):
        logits, leaves = traced_alone(module, images[row : row + 1])
        loss = nn.functional.cross_entropy(logits, labels[row : row + 1])
        scores.append(cosine_of(flat(torch.autograd.grad(loss, leaves)), target))
    return np.array(scores)


def traced_alone(module: nn.Module, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """As `traced`, for a single image: batch norm takes its running averages, as one image has no statistics."""
    if not any(isinstance(layer, _BatchNorm) for layer in module.modules()):
        return traced(module, images)
    module.eval()
    leaves = {name: weight.detach().requires_grad_() for name, weight in trained(module).items()}
    logits: Tensor = functional_call(module, leaves, (images,))
    return logits, list(leaves.values())


def unrolled(
    module: nn.Module, images: Tensor, labels: Tensor, *, steps: int, rate: float, batch_size: int, graph: bool
) -> list[Tensor]:
    """start − end after some steps of SGD over the images in their order: what a FedAvg client sends.

    `labels` are probabilities. Differentiable with regard to both, through all of the steps.
    """
    module.train()
    for layer in module.modules():
        if isinstance(layer, Dropout):
            layer.eval()
    first = {name: weight.detach().requires_grad_() for name, weight in trained(module).items()}
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    weights: dict[str, Tensor] = dict(first)
    begins = range(0, len(images), batch_size)
    for step in range(steps):
        rows = slice(begins[step % len(begins)], begins[step % len(begins)] + batch_size)
        logits = functional_call(module, {**weights, **buffers}, (images[rows],))
        loss = nn.functional.cross_entropy(logits, labels[rows])
        slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=graph, retain_graph=graph)
        weights = {name: weight - rate * slope for (name, weight), slope in zip(weights.items(), slopes, strict=True)}
        if not graph:
            weights = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
    return [begun - weights[name] for name, begun in first.items()]


class BatchNormPrior:
    """How far the statistics of images are from those that batch norm's running averages give away.

    After one step the averages are (1 − m)·before + m·batch, so that the batch's own follow exactly; after several the
    averages at the end are taken.
    """

    def __init__(self, module: nn.Module, update: Mapping[str, Tensor], *, steps: int) -> None:
        self._module = module
        self._wanted: list[tuple[_BatchNorm, Tensor, Tensor]] = []
        for name, layer in module.named_modules():
            if not isinstance(layer, _BatchNorm) or f"{name}.running_mean" not in update:
                continue
            share = (layer.momentum or 0.1) if steps == 1 else 1.0
            before = [layer.running_mean, layer.running_var]
            sent = [update[f"{name}.running_{part}"] for part in ("mean", "var")]
            both = [old - change / share for old, change in zip(before, sent, strict=True) if old is not None]
            if len(both) == 2:
                self._wanted.append((layer, both[0], both[1]))

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def __call__(self, images: Tensor) -> Tensor:
        """The mean squared distance of means and variances, in units of the layer's own variance."""
        seen: dict[int, Tensor] = {}
        hooks = [
            layer.register_forward_pre_hook(lambda layer, inputs: seen.__setitem__(id(layer), inputs[0]))
            for layer, *_ in self._wanted
        ]
        try:
            traced(self._module, images)
        finally:
            for hook in hooks:
                hook.remove()
        terms = []
        for layer, mean, variance in self._wanted:
            found = seen[id(layer)]
            axes = [axis for axis in range(found.dim()) if axis != 1]
            unit = variance.clamp(min=1e-6)
            terms.append(((found.mean(axes) - mean).square() / unit).mean())
            terms.append(((found.var(axes) - variance) / unit).square().mean())
        return torch.stack(terms).mean()


def true_shares(labels: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    return np.bincount(labels, minlength=classes) / len(labels)


def total_variation_distance(
    a: Sequence[float] | NDArray[np.float64], b: Sequence[float] | NDArray[np.float64]
) -> float:
    """Half the sum of differences: the share of records whose label is wrong."""
    return float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).sum() / 2)
