"""Public pretrained weights for a new model: a safetensors file, or a state dict of torch's. Nothing in it is run."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from artifacts import limits
from artifacts.digests import sha256_hex
from artifacts.errors import InputError
from artifacts.formats.safetensors_layout import WIDTHS, parse_table
from artifacts.limits import LimitError
from artifacts.metadata import KEY, Metadata, MetadataError, parse

if TYPE_CHECKING:
    from torch import Tensor, nn

# What batch norm keeps of the data: a network with group norm has no place for it.
_AVERAGES = ("running_mean", "running_var", "num_batches_tracked")
_SAFETENSORS = ".safetensors"
_WRONG = (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, KeyError, TypeError, AttributeError)


class Filled(NamedTuple):
    """The digest of a file of weights, the tensors that were left as they were, its metadata if fedsynth made it."""

    sha256: str
    left: list[str]
    origin: Metadata | None


def fill_from(module: nn.Module, path: Path, *, shape_of_head: str = "classifier.logits") -> Filled:
    """Fill the module with the file's weights.

    The layer of the logits is left where the file's is for other classes. All else must be there and fit.
    """
    from stages.nets.state import file_tensors, load

    try:
        content = limits.read_bytes(path, limits.FILE)
    except LimitError as error:
        raise InputError(f"the weights {path} are not read: {error}.") from None
    except OSError as error:
        raise InputError(f"cannot read the weights {path}: {error.strerror}. Check the path.") from error
    rename: Callable[[str], str] = getattr(module, "name_here", lambda name: name)
    own = file_tensors(module)
    found = _state_dict(content, path)
    origin = _origin(content, path) if path.suffix == _SAFETENSORS else None
    if not found.keys() <= own.keys():
        found = {rename(name): tensor for name, tensor in found.items()}
    left: list[str] = []
    for name in sorted(own.keys() | found.keys()):
        kind = name.rpartition(".")[2]
        if name not in own:
            if kind not in _AVERAGES:
                raise InputError(f"{path} does not fit the network: it has the foreign tensor {name!r}.")
            del found[name]
        elif name not in found:
            if kind != "num_batches_tracked":
                raise InputError(f"{path} does not fit the network: it has no tensor {name!r}.")
            left.append(name)
        elif found[name].shape != own[name].shape:
            if name.rpartition(".")[0] != shape_of_head:
                raise InputError(
                    f"{path} does not fit the network: tensor {name!r} has the shape {list(found[name].shape)}, the "
                    f"network's is {list(own[name].shape)}."
                )
            del found[name]
            left.append(name)
        else:
            found[name] = _numbers(found[name], own[name], name, path)
    load(module, found)
    return Filled(sha256_hex(content), left, origin)


def _numbers(tensor: Tensor, own: Tensor, name: str, path: Path) -> Tensor:
    """The tensor as the network holds it: plain numbers, all of them finite in its type."""
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_complex() != own.is_complex():
        raise InputError(
            f"{path} does not fit the network: tensor {name!r} is {tensor.layout} of {tensor.dtype}, the network's is "
            f"plain {own.dtype}."
        )
    numbers = tensor.to(own.dtype)
    if not numbers.isfinite().all():
        raise InputError(f"{path} does not fit the network: tensor {name!r} holds NaN or infinity as {own.dtype}.")
    return numbers


def _origin(content: bytes, path: Path) -> Metadata | None:
    """What a file of fedsynth's says of itself. One that is not public would become so here, and is refused."""
    try:
        _, _, texts = parse_table(content, len(content), WIDTHS)
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}. Get the file again.") from error
    if (text := texts.get(KEY)) is None:
        return None
    try:
        origin = parse(text).metadata
    except MetadataError as error:
        raise InputError(f"{path} says that fedsynth made it, but {error}. Get the file again.") from error
    if origin.custody not in ("public", "downlink"):
        raise InputError(
            f"{path} is a {origin.custody} {origin.kind} of fedsynth's: as the first weights of a model it would pass "
            "for public. Begin with public weights, or with a model that the server sent."
        )
    return origin


def _state_dict(content: bytes, path: Path) -> dict[str, Tensor]:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        loaded: Any
        if path.suffix == _SAFETENSORS:
            loaded = load(content)
        else:
            # Only tensors and plain containers: any other pickle is refused before it could run.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except SafetensorError as error:
        raise InputError(f"{path} is no safetensors file: {error}. Nothing in it was run.") from error
    except _WRONG as error:
        # torch's own sentence recommends loading it with weights_only=False, which would run it.
        raise InputError(
            f"{path} is no state dict of torch's: it is damaged, or holds more than tensors in plain containers. "
            "Nothing in it was run. Save the network's state_dict() alone, or a safetensors file."
        ) from error
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not loaded:
        raise InputError(f"{path} is no state dict: it must map names to tensors, found {type(loaded).__name__}.")
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise InputError(
                f"{path} is no state dict: it must map names to tensors, and its entry {name!r} is "
                f"{type(tensor).__name__}. Save the network's state_dict() alone."
            )
    return dict(loaded)
