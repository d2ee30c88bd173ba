"""A module called with tensors that are handed in, in the place of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def called(module: nn.Module, tensors: Mapping[str, Tensor], *inputs: Any) -> Any:
    """`functional_call`, where a parameter under several names is named once, by the first of them.

    Torch ties names too, but of a layer that a module has under two names it puts back what was handed in, not what was
    there before. Here such a layer is one place, and each place is filled once.
    """
    first: dict[int, str] = {}
    places: set[tuple[int, str]] = set()
    filled: dict[str, Tensor] = {}
    for prefix, layer in module.named_modules(remove_duplicate=False):
        own = {"recurse": False, "remove_duplicate": False}
        for name, tensor in (*layer.named_parameters(**own), *layer.named_buffers(**own)):
            if (id(layer), name) in places:
                continue
            places.add((id(layer), name))
            whole = f"{prefix}.{name}" if prefix else name
            named = first.setdefault(id(tensor), whole)
            if named in tensors:
                filled[whole] = tensors[named]
    return functional_call(module, filled, inputs, tie_weights=False)
