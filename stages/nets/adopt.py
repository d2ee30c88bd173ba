"""Somebody else's module made fit: its dropout draws from a generator, and it is tried before data is read."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stages.nets.dropout import Dropout
from stages.nets.params import InputShape

# How many leading dimensions have a draw of their own; all of them where it is None.
_DROPOUTS: dict[type[nn.Module], int | None] = {nn.Dropout: None, nn.Dropout1d: 2, nn.Dropout2d: 2, nn.Dropout3d: 2}


def adopt(module: nn.Module) -> nn.Module:
    """The module, with layers of ours where torch's do not do (`_replaced`).

    Raises `ValueError` where it is no module, or has no parameters.
    """
    if not isinstance(module, nn.Module):
        raise ValueError(f"build must return a torch.nn.Module, found {type(module).__name__}")
    if not any(True for _ in module.parameters()):
        raise ValueError("the network has no parameters: there is nothing to train")
    for layer in list(module.modules()):
        for name, child in layer.named_children():
            replaced = _replaced(child)
            if replaced is not None:
                setattr(layer, name, replaced)
        if getattr(layer, "inplace", False):
            setattr(layer, "inplace", False)  # noqa: B010  (typed as a tensor) the same numbers; but what is overwritten has no per-example gradient
    return module


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


def try_forward(module: nn.Module, shape: InputShape) -> None:
    """One pass over two blank images, in training. Raises `ValueError`, with the remedy, where the network is unfit."""
    images = torch.zeros(2, shape.channels, shape.height, shape.width)
    generator = torch.Generator().manual_seed(0)
    dropouts = [layer for layer in module.modules() if isinstance(layer, Dropout)]
    before, was_training = torch.get_rng_state(), module.training
    for layer in dropouts:
        layer.generator = generator
    try:
        logits = _training_pass(module, images)
    except (RuntimeError, TypeError, IndexError, AssertionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        wanted = f"{shape.channels}×{shape.height}×{shape.width}"
        raise ValueError(f"the network does not take two images of {wanted}: {reason}") from error
    finally:
        module.train(was_training)
        for layer in dropouts:
            layer.generator = None
    if not isinstance(logits, Tensor) or logits.shape != (2, shape.num_classes):
        found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the network must return logits of [2, {shape.num_classes}] for two images, found {found}")
    if not torch.equal(before, torch.get_rng_state()):
        torch.set_rng_state(before)
        raise ValueError(
            "the network draws from torch's global random state when it is called, and could not be replayed: use "
            "nn.Dropout layers, not F.dropout or the dropout option of an attention or recurrent layer"
        )


def _training_pass(module: nn.Module, images: Tensor) -> Tensor:
    """Copies of the buffers are handed in: batch norm's averages stay as they are."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.no_grad():
        logits: Tensor = functional_call(module.train(), buffers, (images,))
    return logits
