"""TOFU: an update encoded as the gradient of a few images. Algorithms 1 and 2, Eq. 1 to 3.

`encode` finds images x, soft labels y and spanning ratios α whose gradient Σ αᵢ ∇L(θ(xᵢ), yᵢ) points where the update
points, and scales γ that give each layer its length; `decode` is one pass forward and one back. α and y are softmaxes
of free numbers. A layer is one parameter tensor. Batch norm takes the statistics of the proxy itself on both sides, and
changes nothing; dropout is off.

`solver: paper` is Algorithm 1 as printed. `residuals`, the default, moves the images and the residuals
α(softmax(z) − y), through which alone labels and ratios act (`proxy_labels`), by an Adam with a shorter memory and a
falling step size, and solves for the residuals at the end, on the images as they will be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stages.methods.params.tofu import TofuEncoding
from stages.methods.proxy_labels import Residuals, as_labels, centred
from stages.methods.row_cosines import RowCosines, flat, shaped
from stages.nets.dropout import Dropout

_LEAST = 1e-30
# The solver `residuals`: ours, found on LeNet-5 and FashionMNIST. Steps of CG at first, and twice at the end.
_FIRST_SOLVE, _LAST_SOLVE, _LAST_SOLVES = 5, 5, 2
_SHORT_MEMORY, _RESIDUAL_SHARE = (0.8, 0.95), 0.5


@dataclass(frozen=True, eq=False)
class Proxy:
    """What is sent: images [n, c, h, w], logits of the soft labels [n, classes], α [n], γ [layers]."""

    images: Tensor
    labels: Tensor
    weights: Tensor
    scales: Tensor


@dataclass(frozen=True, eq=False)
class Encoded:
    """`cosine` is what the decoder gets, of the update that `decode` gives to the one that was meant.

    `unrounded` is what it would get if pixels were sent as they are; `cosines` are those of the search, step by step.
    """

    proxy: Proxy
    cosine: float
    unrounded: float
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
    search = _by_labels if params.solver == "paper" else _by_residuals
    images, finish, cosines = search(module, target, first, angle, params=params, report=report)
    seen = sent(images)
    proxy, cosine = finish(seen)
    unrounded = cosine if torch.equal(seen, images) else finish(images)[1]
    if params.scale_by_cosine:
        proxy = replace(proxy, scales=proxy.scales * max(0.0, cosine))
    return Encoded(proxy, cosine, unrounded, cosines)


# Images as the search left them, what makes a proxy of them as they are seen, and the cosines on the way.
Found = tuple[Tensor, Callable[[Tensor], tuple[Proxy, float]], list[float]]


def _by_labels(
    module: nn.Module,
    target: Tensor,
    first: tuple[Tensor, Tensor, Tensor],
    angle: RowCosines,
    *,
    params: TofuEncoding,
    report: Callable[[int, int, float], None],
) -> Found:
    """Step 2 of Algorithm 1 as it is printed: Adam on images, labels and ratios."""
    variables = [tensor.detach().clone().requires_grad_() for tensor in first]
    optimiser = torch.optim.Adam(variables, lr=params.first_rate)

    def parts() -> list[Tensor]:
        images, labels, free = variables
        return list(_gradient(module, images, labels, torch.softmax(free, 0), graph=True).values())

    cosines = _descend(parts, variables, optimiser, angle, params, report)
    images, labels, free = (variable.detach() for variable in variables)
    return images, lambda seen: _scaled(module, target, (seen, labels, torch.softmax(free, 0))), cosines


def _by_residuals(
    module: nn.Module,
    target: Tensor,
    first: tuple[Tensor, Tensor, Tensor],
    angle: RowCosines,
    *,
    params: TofuEncoding,
    report: Callable[[int, int, float], None],
) -> Found:
    """Adam on images and residuals; then, on the images as they are seen, the best residuals as labels and ratios."""
    images = first[0].detach().clone().requires_grad_()
    logits, leaves = _traced(module, images.detach())
    nothing, even = torch.zeros_like(logits), torch.ones_like(target)
    begun = Residuals(logits, leaves).solve(nothing, target, even, _FIRST_SOLVE).detach()
    if not bool(begun.any()):
        begun = centred(first[1].detach())
    residuals = (begun / begun.square().mean().sqrt()).requires_grad_()
    optimiser = torch.optim.Adam(
        [{"params": [images], "share": 1.0}, {"params": [residuals], "share": _RESIDUAL_SHARE}], betas=_SHORT_MEMORY
    )

    def parts() -> list[Tensor]:
        logits, leaves = _traced(module, images)
        return list(torch.autograd.grad(logits, leaves, centred(residuals), create_graph=True))

    cosines = _descend(parts, [images, residuals], optimiser, angle, params, report)
    last = centred(residuals.detach())
    return images.detach(), lambda seen: _solved(module, target, seen, last, params), cosines


def _solved(module: nn.Module, target: Tensor, seen: Tensor, best: Tensor, params: TofuEncoding) -> tuple[Proxy, float]:
    """The best residuals for these images, from `best` on, as labels and ratios."""
    logits, leaves = _traced(module, seen)
    lengths = [leaf.numel() for leaf in leaves]
    system, tries = Residuals(logits, leaves), [best]
    for _ in range(_LAST_SOLVES):
        now = system.gradient(best)
        if params.objective == "whole":  # least squares need the length that cosines do not
            best = best * (target @ now) / now.square().sum().clamp(min=_LEAST)
            weights = torch.ones_like(target)
        else:
            scales = _lengths(target, lengths) / _lengths(now, lengths).clamp(min=_LEAST)
            weights = torch.repeat_interleave(scales, torch.tensor(lengths, device=scales.device))
        best = system.solve(best, target, weights, _LAST_SOLVE).detach()
        tries.append(best)
    labelled = [as_labels(residuals, logits.detach()) for residuals in tries]
    return max((_scaled(module, target, (seen, *labels)) for labels in labelled), key=lambda one: one[1])


def _descend(
    parts: Callable[[], list[Tensor]],
    variables: list[Tensor],
    optimiser: torch.optim.Optimizer,
    angle: RowCosines,
    params: TofuEncoding,
    report: Callable[[int, int, float], None],
) -> list[float]:
    """The cosine before each step."""
    cosines: list[float] = []
    for iteration in range(params.steps):
        for group in optimiser.param_groups:
            group["lr"] = params.rate(iteration) * group.get("share", 1.0)
        found = parts()
        loss, slope = angle.distance(flat(found))
        cosines.append(1 - float(loss))
        report(iteration + 1, params.steps, cosines[-1])
        if params.target_cosine is not None and cosines[-1] >= params.target_cosine:
            break
        for variable, step in zip(variables, torch.autograd.grad(found, variables, shaped(slope, found)), strict=True):
            variable.grad = step
        optimiser.step()
    return cosines


def _scaled(module: nn.Module, target: Tensor, data: tuple[Tensor, Tensor, Tensor]) -> tuple[Proxy, float]:
    """Step 3: γ_l = ‖U_real,l‖ / ‖U_syn,l‖, measured on what the receiver will see; and the cosine that it will get."""
    found = flat(list(_gradient(module, *data, graph=False).values()))
    lengths = [part.numel() for part in module.parameters()]
    wanted, got = _lengths(target, lengths), _lengths(found, lengths)
    proxy = Proxy(*data, torch.where(got > 0, wanted / got.clamp(min=_LEAST), torch.zeros_like(got)))
    return proxy, cosine_of(flat(list(decode(module, proxy).values())), target)


def _lengths(vector: Tensor, sizes: list[int]) -> Tensor:
    return torch.stack([torch.linalg.vector_norm(part) for part in torch.split(vector, sizes)])


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
    logits, leaves = _traced(module, images)
    losses = -(torch.softmax(labels, 1) * torch.log_softmax(logits, 1)).sum(1)
    found = torch.autograd.grad((weights * losses).sum(), leaves, create_graph=graph)
    return {name: part for (name, _), part in zip(module.named_parameters(), found, strict=True)}


def _traced(module: nn.Module, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The logits, and the parameters that they were computed from."""
    module.train()
    for layer in module.modules():
        if isinstance(layer, Dropout):
            layer.eval()
    leaves = {name: weight.detach().requires_grad_() for name, weight in module.named_parameters()}
    # Copies, so that the running averages of batch norm stay as they are in the model.
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    logits: Tensor = functional_call(module, {**leaves, **buffers}, (images,))
    return logits, list(leaves.values())
