"""Somebody else's module made fit: its dropout draws from a generator, and it is tried before data is read."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stages.nets.called import called
from stages.nets.dropout import Dropout
from stages.nets.params import InputShape
from stages.nets.state import file_tensors

# What files hold of a network (`weight_dtypes` of a model in artifacts/kinds.py).
_KEPT = {torch.float32, torch.int64}
_NAME = re.compile(r"(?!__metadata__$)[ -~]{1,200}")
# How many leading dimensions have a draw of their own; all of them where it is None.
_DROPOUTS: dict[type[nn.Module], int | None] = {nn.Dropout: None, nn.Dropout1d: 2, nn.Dropout2d: 2, nn.Dropout3d: 2}


def adopt(module: nn.Module, shape: InputShape) -> nn.Module:
    """The module, with layers of ours where torch's do not do (`_replaced`).

    Raises `ValueError` where it is no module, has no parameters, or has state that no file can hold.
    """
    if not isinstance(module, nn.Module):
        raise ValueError(f"build must return a torch.nn.Module, found {type(module).__name__}")
    if any(isinstance(layer, torch.jit.ScriptModule) for layer in module.modules()):
        raise ValueError("a scripted module takes no weights from outside: return the one that it was made from")
    if not any(True for _ in module.parameters()):
        raise ValueError("the network has no parameters: there is nothing to train")
    _settle(module, shape)
    for name, tensor in file_tensors(module).items():
        if tensor.dtype not in _KEPT:
            kind = str(tensor.dtype).removeprefix("torch.")
            remedy = "float32, or int64, or persistent=False" if name in dict(module.named_buffers()) else "float32"
            raise ValueError(f"its tensor {name} is {kind}, which files do not hold: make it {remedy}")
        if tensor.numel() == 0:
            raise ValueError(f"its tensor {name} is empty: leave it out")
        if not _NAME.fullmatch(name):
            raise ValueError(f"its tensor {name!r} needs another name, of up to 200 plain letters, digits and dots")
    for layer in list(module.modules()):
        for name, child in layer.named_children():
            replaced = _replaced(child)
            if replaced is not None:
                setattr(layer, name, replaced)
        if getattr(layer, "inplace", False):
            setattr(layer, "inplace", False)  # noqa: B010  (typed as a tensor) the same numbers; but what is overwritten has no per-example gradient
    return module


def _settle(module: nn.Module, shape: InputShape) -> None:
    """Layers that learn their size from the first images (`nn.LazyLinear`) see some, and draw their weights now."""
    weights = list(module.parameters())
    if any(isinstance(weight, nn.UninitializedParameter) for weight in weights):
        images = torch.zeros(2, shape.channels, shape.height, shape.width, device=weights[0].device)
        was_training = module.training
        with torch.no_grad():
            module.eval()(images)
        module.train(was_training)


class Hardsigmoid(nn.Module):
    """The numbers of torch's own to the last bit; but that has no second derivative, which FedLAP and TOFU need."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x + 3, 0, 6) / 6


def _replaced(layer: nn.Module) -> nn.Module | None:
    if type(layer) is nn.Hardsigmoid:
        return Hardsigmoid()
    if type(layer) in _DROPOUTS:
        return Dropout(float(layer.p), leading=_DROPOUTS[type(layer)])  # type: ignore[arg-type]
    # torchvision's, by name: it is not imported for networks that do not come from there. It drops whole examples.
    if type(layer).__name__ == "StochasticDepth" and getattr(layer, "mode", None) == "row":
        return Dropout(float(layer.p), leading=1)  # type: ignore[arg-type]
    return None


def _refuse_draws(of_torch: Tensor, of_numpy: Any, of_python: Any) -> None:
    """Refuse a network that drew from a global generator since these were their states, which are put back."""
    _, words, *rest = np.random.get_state(legacy=True)
    drawn = {
        "torch": not torch.equal(of_torch, torch.get_rng_state()),
        "numpy": list(of_numpy[2:]) != rest or not np.array_equal(of_numpy[1], words),
        "Python": of_python != random.getstate(),
    }
    torch.set_rng_state(of_torch)
    np.random.set_state(of_numpy)
    random.setstate(of_python)
    for library, has_drawn in drawn.items():
        if has_drawn:
            raise ValueError(
                f"the network draws from {library}'s global random state when it is called, and could not be replayed: "
                "use nn.Dropout layers, not F.dropout or the dropout option of an attention or recurrent layer"
            )


def try_forward(module: nn.Module, shape: InputShape) -> None:
    """Two images, in training, and one, in evaluation. Raises `ValueError`, with the remedy, where it is unfit."""
    count = 2 * shape.channels * shape.height * shape.width
    images = torch.linspace(-1, 1, count).view(2, shape.channels, shape.height, shape.width)
    given = images.clone()
    generator = torch.Generator().manual_seed(0)
    dropouts = [layer for layer in module.modules() if isinstance(layer, Dropout)]
    before, was_training = (torch.get_rng_state(), np.random.get_state(legacy=True), random.getstate()), module.training
    for layer in dropouts:
        layer.generator = generator
    try:
        logits = _logits(module.train(), images)
        alone = _logits(module.eval(), given[:1].clone())
    except (RuntimeError, TypeError, IndexError, AssertionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        wanted = f"{shape.channels}×{shape.height}×{shape.width}"
        raise ValueError(f"the network does not take two images of {wanted}: {reason.rstrip('.')}") from error
    finally:
        module.train(was_training)
        for layer in dropouts:
            layer.generator = None
    for found, number, word in ((logits, 2, "two images"), (alone, 1, "one image")):
        if not isinstance(found, Tensor) or found.shape != (number, shape.num_classes):
            seen = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            wanted = f"[{number}, {shape.num_classes}]"
            raise ValueError(f"the network must return logits of {wanted} for {word}, found {seen}")
        if not bool(found.isfinite().all()):
            raise ValueError(f"its logits for {word} with pixels from -1 to 1 are not finite before any training")
    if not torch.equal(images, given):
        raise ValueError("the network writes into the images that it is given: let it work on a copy")
    _refuse_draws(*before)


def _logits(module: nn.Module, images: Tensor) -> Tensor:
    """Copies of the buffers are handed in: batch norm's averages stay as they are."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.no_grad():
        logits: Tensor = called(module, buffers, images)
    return logits
