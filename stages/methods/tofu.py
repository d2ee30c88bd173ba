"""TOFU: an update encoded as the gradient of a few images. Algorithms 1 and 2, Eq. 1 to 3.

`encode` finds images x, soft labels y and spanning ratios α whose gradient Σ αᵢ ∇L(θ(xᵢ), yᵢ) points where the update
points, and scales γ that give each layer its length; `decode` is one pass forward and one back. Labels and ratios are
sent as what they amount to, the residuals α(softmax(z) − y) (`residuals`). A layer is one parameter tensor. Batch norm
takes the statistics of the proxy itself on both sides, and changes nothing; dropout is off.

`solver: paper` is Algorithm 1 as printed; α and y are softmaxes of free numbers. `residuals`, the default, moves images
and residuals by an Adam with a shorter memory and a falling step size, and solves for the residuals at the end, on the
images as they will be seen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from stages.methods.image_rows import pieces
from stages.methods.params.tofu import TofuEncoding
from stages.methods.residuals import Residuals, ResidualsInPieces, centred, of_labels
from stages.methods.row_cosines import RowCosines, flat, shaped
from stages.nets.attention import plain_attention
from stages.nets.called import called
from stages.nets.dropout import Dropout
from stages.nets.state import trained

_LEAST = 1e-30
# The solver `residuals`: ours, found on LeNet-5 and FashionMNIST, untrained and trained. Steps of CG at first, and
# twice at the end, where trained networks need many.
_FIRST_SOLVE, _LAST_SOLVE, _LAST_SOLVES = 5, 20, 2
_SHORT_MEMORY = (0.8, 0.95)


@dataclass(frozen=True, eq=False)
class Proxy:
    """What is sent: images [n, c, h, w], residuals [n, classes], γ [layers]."""

    images: Tensor
    residuals: Tensor
    scales: Tensor


@dataclass(frozen=True, eq=False)
class Encoded:
    """`cosine` is what the decoder gets, of the update that `decode` gives to the one that was meant.

    `cosines` are those of the search, step by step, on images that are not rounded yet.
    """

    proxy: Proxy
    cosine: float
    cosines: list[float]


def decode(module: nn.Module, proxy: Proxy) -> dict[str, Tensor]:
    """Algorithm 2: U_l = γ_l · ∂/∂θ_l Σ αᵢ L(θ(xᵢ), yᵢ) = γ_l · (Jᵀr)_l, for every parameter of the module."""
    logits, leaves = traced(module, proxy.images)
    found = torch.autograd.grad(logits, leaves, proxy.residuals)
    names = (name for name in trained(module))
    return {name: scale * part for name, scale, part in zip(names, proxy.scales, found, strict=True)}


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
    target = flat([update[name] for name in trained(module)])
    if not bool(torch.isfinite(target).all()) or not bool(target.any()):
        raise ValueError("the update is zero, or not finite: it points nowhere")
    angle = _angle(target, [part.numel() for part in trained(module).values()], params)
    search = _by_labels if params.solver == "paper" else _by_residuals
    images, finish, cosines = search(module, target, first, angle, params=params, report=report)
    seen = sent(images)
    proxy, cosine = finish(seen)
    if params.scale_by_cosine:
        proxy = replace(proxy, scales=proxy.scales * max(0.0, cosine))
    return Encoded(proxy, cosine, cosines)


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
    rates = (params.image_rate, params.label_rate, params.ratio_rate)
    optimiser = _adam(variables, rates, torch.optim.Adam)

    def parts(rows: slice) -> list[Tensor]:
        images, labels, free = variables
        logits, leaves = traced(module, images[rows])
        losses = -(torch.softmax(labels[rows], 1) * torch.log_softmax(logits, 1)).sum(1)
        return list(torch.autograd.grad((torch.softmax(free, 0)[rows] * losses).sum(), leaves, create_graph=True))

    cosines = _descend(parts, variables, optimiser, angle, params, report)
    images, labels, free = (variable.detach() for variable in variables)

    def finish(seen: Tensor) -> tuple[Proxy, float]:
        logits = traced(module, seen)[0].detach()
        return _scaled(module, target, seen, of_labels(logits, labels, torch.softmax(free, 0)))

    return images, finish, cosines


def _by_residuals(
    module: nn.Module,
    target: Tensor,
    first: tuple[Tensor, Tensor, Tensor],
    angle: RowCosines,
    *,
    params: TofuEncoding,
    report: Callable[[int, int, float], None],
) -> Found:
    """Adam on images and residuals; then, on the images as they are seen, the best residuals."""
    images = first[0].detach().clone().requires_grad_()
    nothing, even = torch.zeros_like(first[1]), torch.ones_like(target)
    system = linear(module, images.detach(), params.micro_batch)
    begun = system.solve(nothing, target, even, _FIRST_SOLVE).detach()
    if not bool(begun.any()):
        begun = centred(first[1].detach())
    residuals = (begun / begun.square().mean().sqrt()).requires_grad_()
    rates = (params.image_rate, params.residual_rate)
    optimiser = _adam([images, residuals], rates, functools.partial(torch.optim.Adam, betas=_SHORT_MEMORY))

    def parts(rows: slice) -> list[Tensor]:
        logits, leaves = traced(module, images[rows])
        return list(torch.autograd.grad(logits, leaves, centred(residuals[rows]), create_graph=True))

    cosines = _descend(parts, [images, residuals], optimiser, angle, params, report)
    last = centred(residuals.detach())
    return images.detach(), lambda seen: _solved(module, target, seen, last, params), cosines


def _solved(module: nn.Module, target: Tensor, seen: Tensor, best: Tensor, params: TofuEncoding) -> tuple[Proxy, float]:
    """The best residuals for these images, from `best` on."""
    lengths = [part.numel() for part in trained(module).values()]
    system, tries = linear(module, seen, params.micro_batch), [best]
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
    return max((_scaled(module, target, seen, residuals) for residuals in tries), key=lambda one: one[1])


def _adam(
    variables: list[Tensor], rates: Sequence[float | None], make: Callable[..., torch.optim.Optimizer]
) -> torch.optim.Optimizer:
    """Each variable with its own step size, β in Algorithm 1."""
    return make([{"params": [one], "lr": rate, "first": rate} for one, rate in zip(variables, rates, strict=True)])


def _descend(
    parts: Callable[[slice], list[Tensor]],
    variables: list[Tensor],
    optimiser: torch.optim.Optimizer,
    angle: RowCosines,
    params: TofuEncoding,
    report: Callable[[int, int, float], None],
) -> list[float]:
    """The cosine before each step. `parts` gives what some rows add to the gradient.

    With several pieces the gradient is summed first; then each is differentiated again, alone.
    """
    cosines: list[float] = []
    some = pieces(len(variables[0]), params.micro_batch)
    for iteration in range(params.iterations):
        for group in optimiser.param_groups:
            group["lr"] = params.share(iteration) * group["first"]
        found = parts(some[0]) if len(some) == 1 else _summed([part.detach() for part in parts(rows)] for rows in some)
        loss, slope = angle.distance(flat(found))
        cosines.append(1 - float(loss))
        report(iteration + 1, params.iterations, cosines[-1])
        if params.target_cosine is not None and cosines[-1] >= params.target_cosine:
            break
        slopes = shaped(slope, found)
        steps = (torch.autograd.grad(found if len(some) == 1 else parts(rows), variables, slopes) for rows in some)
        for variable, step in zip(variables, _summed(map(list, steps)), strict=True):
            variable.grad = step
        optimiser.step()
    return cosines


def _summed(groups: Iterable[list[Tensor]]) -> list[Tensor]:
    """One after the other, so that no more than two are in memory."""
    return functools.reduce(lambda total, more: [a + b for a, b in zip(total, more, strict=True)], groups)


def _scaled(module: nn.Module, target: Tensor, images: Tensor, residuals: Tensor) -> tuple[Proxy, float]:
    """Step 3: γ_l = ‖U_real,l‖ / ‖U_syn,l‖, measured on what the receiver will see; and the cosine that it will get.

    A layer that would point backwards is left out. The largest residual becomes 1: as they come out of a search, some
    are too small to keep their digits.
    """
    residuals = residuals / residuals.abs().amax().clamp(min=torch.finfo(residuals.dtype).tiny)
    lengths = [part.numel() for part in trained(module).values()]
    plain = Proxy(images, residuals, torch.ones(len(lengths), device=images.device))
    found = flat(list(decode(module, plain).values()))
    wanted, got = _lengths(target, lengths), _lengths(found, lengths)
    forwards = torch.stack([part.sum() for part in torch.split(found * target, lengths)]) > 0
    proxy = replace(plain, scales=torch.where(forwards, wanted / got.clamp(min=_LEAST), torch.zeros_like(got)))
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


def linear(module: nn.Module, images: Tensor, micro_batch: int | None) -> Residuals:
    """What residuals do with these images, all at once or in pieces."""
    some = pieces(len(images), micro_batch)
    if len(some) == 1:
        return Residuals(*traced(module, images))
    return ResidualsInPieces(lambda rows: traced(module, images[rows]), some)


def traced(module: nn.Module, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The logits, and the parameters that they were computed from."""
    module.train()
    for layer in module.modules():
        if isinstance(layer, Dropout):
            layer.eval()
    leaves = {name: weight.detach().requires_grad_() for name, weight in trained(module).items()}
    # Copies, so that the running averages of batch norm stay as they are in the model.
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with plain_attention():
        logits: Tensor = called(module, {**leaves, **buffers}, images)
    return logits, list(leaves.values())
