"""What of a network goes into files: each tensor once, and of a network that is partly frozen the trained rest.

Tied parameters are one tensor under several names: a file has it under the first. Frozen tensors, parameters and
buffers alike, are part of the model file; they are not trained, sent, clipped or noised.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from stages.nets.params import matches


def file_tensors(module: nn.Module) -> dict[str, Tensor]:
    """All that a model file holds. Raises `ValueError` for state that is no tensor."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in module.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"its state {name!r} is no tensor, and a model file holds tensors alone")
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes, by name."""
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}


def exchanged(module: nn.Module) -> dict[str, Tensor]:
    """What federated averaging averages: the trained parameters, and batch norm's running averages.

    Its counter of batches is left out: it is a count of local steps, and nothing uses it.
    """
    frozen: frozenset[str] = getattr(module, "frozen_names", frozenset())
    return {
        name: tensor
        for name, tensor in file_tensors(module).items()
        if tensor.is_floating_point() and name not in frozen
    }


def freeze(module: nn.Module, patterns: str | None) -> None:
    """Freeze the tensors whose names match. A layer with frozen buffers (batch norm's averages) uses them as they are.

    Raises `ValueError` where nothing matches, or everything.
    """
    if patterns is None:
        return
    names = list(file_tensors(module))
    frozen = frozenset(name for name in names if matches(name, patterns))
    weights = dict(module.named_parameters())
    if not frozen or all(name in frozen for name in weights):
        what = "no tensor" if not frozen else "every parameter: nothing is left to train"
        raise ValueError(f"--freeze {patterns} matches {what}. The first names are {', '.join(names[:4])}")
    for name in frozen & weights.keys():
        weights[name].requires_grad_(False)
    for prefix, layer in module.named_modules():
        if any(f"{prefix}.{name}".lstrip(".") in frozen for name, _ in layer.named_buffers(recurse=False)):
            layer.eval()
            layer.train = MethodType(_stay, layer)
    module.frozen_names = frozen  # type: ignore[assignment]


def _stay(self: nn.Module, _mode: bool = True) -> nn.Module:
    return self


def load(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Fill the module with what `file_tensors` gave; names and shapes have been compared before."""
    own: dict[str, Any] = file_tensors(module)
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
