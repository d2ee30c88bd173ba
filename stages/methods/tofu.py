"""TOFU: an update encoded as the gradient of a few images. Algorithms 1 and 2, Eq. 1 to 3.

`encode` finds images x, soft labels y and spanning ratios α whose gradient Σ αᵢ ∇L(θ(xᵢ), yᵢ) points where the update
points, and scales γ that give each layer its length; `decode` is one pass forward and one back. α and y are softmaxes
of free numbers. A layer is one parameter tensor. Batch norm takes the statistics of the proxy itself on both sides, and
changes nothing; dropout is off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stages.methods.params.tofu import TofuEncoding
from stages.methods.row_cosines import RowCosines, flat, shaped
from stages.nets.dropout import Dropout

_LEAST = 1e-30


@dataclass(frozen=True, eq=False)
class Proxy:
    """What is sent: images [n, c, h, w], logits of the soft labels [n, classes], α [n], γ [layers]."""

    images: Tensor
    labels: Tensor
    weights: Tensor
    scales: Tensor


@dataclass(frozen=True, eq=False)
class Encoded:
    """`cosine` is what the decoder gets, of the update that `decode` gives to the one that was meant."""

    proxy: Proxy
    cosine: float
    cosines: list[float]


def decode(module: nn.Module, proxy: Proxy) -> dict[str, Tensor]:
    """Algorithm 2: U_l = γ_l · ∂/∂θ_l Σ αᵢ L(θ(xᵢ), yᵢ), for every parameter of the module."""
    found = _gradient(module, proxy.images, proxy.labels, proxy.weights, graph=False)
    return {name: scale * part for (name, part), scale in zip(found.items(), proxy.scales, strict=True)}


def encode(
    module: nn.Module,
    update: Mapping[str, Tensor],
    first: tuple[Tensor, Tensor, Tensor],
    *,
    params: TofuEncoding,
    sent: Callable[[Tensor], Tensor],
    report: Callable[[int, int, float], None],
) -> Encoded:
    """Algorithm 1. `first` are images, label logits and the ratios' free numbers to begin with; `sent` says what the
    receiver will see of the images. Raises `ValueError` where the update has no direction."""
    target = flat([update[name] for name, _ in module.named_parameters()])
    if not bool(torch.isfinite(target).all()) or not bool(target.any()):
        raise ValueError("the update is zero, or not finite: it points nowhere")
    angle = _angle(target, [part.numel() for part in module.parameters()], params)
    variables = [tensor.detach().clone().requires_grad_() for tensor in first]
    optimiser = torch.optim.Adam(variables, lr=params.proxy_rate)
    cosines: list[float] = []
    for iteration in range(params.iterations):
        for group in optimiser.param_groups:
            group["lr"] = params.rate(iteration)
        images, labels, free = variables
        parts = list(_gradient(module, images, labels, torch.softmax(free, 0), graph=True).values())
        loss, slope = angle.distance(flat(parts))
        cosines.append(1 - float(loss))
        report(iteration + 1, params.iterations, cosines[-1])
        if params.target_cosine is not None and cosines[-1] >= params.target_cosine:
            break
        for variable, step in zip(variables, torch.autograd.grad(parts, variables, shaped(slope, parts)), strict=True):
            variable.grad = step
        optimiser.step()
    images, labels, free = (variable.detach() for variable in variables)
    return _scaled(module, target, (sent(images), labels, torch.softmax(free, 0)), params, cosines)


def _scaled(
    module: nn.Module,
    target: Tensor,
    data: tuple[Tensor, Tensor, Tensor],
    params: TofuEncoding,
    cosines: list[float],
) -> Encoded:
    """Step 3: γ_l = ‖U_real,l‖ / ‖U_syn,l‖, measured on what the receiver will see; times the cosine in phase 2."""
    found = _gradient(module, *data, graph=False)
    wanted = shaped(target, list(found.values()))
    lengths = [torch.linalg.vector_norm(part) for part in found.values()]
    scales = torch.stack(
        [
            torch.linalg.vector_norm(mine) / length if length > 0 else torch.zeros_like(length)
            for mine, length in zip(wanted, lengths, strict=True)
        ]
    )
    proxy = Proxy(*data, scales)
    cosine = cosine_of(flat(list(decode(module, proxy).values())), target)
    if params.scale_by_cosine:
        proxy = Proxy(*data, scales * max(0.0, cosine))
    return Encoded(proxy, cosine, cosines)


def cosine_of(a: Tensor, b: Tensor) -> float:
    wide_a, wide_b = a.double(), b.double()
    norms = torch.linalg.vector_norm(wide_a) * torch.linalg.vector_norm(wide_b)
    return float(wide_a @ wide_b / norms) if norms > 0 else 0.0


def _angle(target: Tensor, lengths: list[int], params: TofuEncoding) -> RowCosines:
    """After scaling, layer l has the update's own length: the whole cosine is that of the layers, by squared length."""
    if params.objective == "whole":
        return RowCosines(target, [len(target)], [1.0], least=_LEAST)
    squares = [float(part.double().square().sum()) for part in torch.split(target, lengths)]
    return RowCosines(target, lengths, [square / sum(squares) for square in squares], least=_LEAST)


def _gradient(module: nn.Module, images: Tensor, labels: Tensor, weights: Tensor, *, graph: bool) -> dict[str, Tensor]:
    """∂/∂θ Σ αᵢ L(θ(xᵢ), yᵢ) (Eq. 1 and 2), at the module's own weights."""
    module.train()
    for layer in module.modules():
        if isinstance(layer, Dropout):
            layer.eval()
    leaves = {name: weight.detach().requires_grad_() for name, weight in module.named_parameters()}
    # Copies, so that the running averages of batch norm stay as they are in the model.
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    logits = functional_call(module, {**leaves, **buffers}, (images,))
    losses = -(torch.softmax(labels, 1) * torch.log_softmax(logits, 1)).sum(1)
    found = torch.autograd.grad((weights * losses).sum(), list(leaves.values()), create_graph=graph)
    return dict(zip(leaves, found, strict=True))
