"""Artifacts that hold tensors: safetensors files with our metadata, read without trusting a byte of them.

The bytes are exactly those that the safetensors library writes (a test holds the two together). The header is
laid out by ourselves (`safetensors_layout`), because its digests must be known before it is written.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from artifacts import limits
from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.errors import InputError
from artifacts.fields import misstated
from artifacts.formats import Format, seal
from artifacts.formats.safetensors_layout import (
    DTYPES,
    MAX_DIMS,
    NAMES,
    KnownTables,
    TensorSpec,
    header_size,
    layout,
    layout_order,
    parse_table,
)
from artifacts.kinds import KINDS, Kind, Listed
from artifacts.metadata import KEY, Metadata, MetadataError, SealedMetadata, parse
from artifacts.publish import publish

_MAX_REASON = 300
_FIRST = 1 << 16  # a small file comes in one piece
_known = KnownTables()

Array = NDArray[Any]


class PromiseError(ValueError):
    """The tensors are not those that the kind promises."""


@dataclass(frozen=True)
class TensorArtifact:
    """A file that was read and found whole. The arrays are read-only views of the bytes that were checked."""

    path: Path
    metadata: Metadata
    payload_sha256: str
    specs: tuple[TensorSpec, ...]
    tensors: Mapping[str, Array]
    data: bytes

    @cached_property
    def sha256(self) -> str:
        """The digest of the whole file, as `sha256sum` prints it."""
        return sha256_hex(self.data)


def write(path: Path, tensors: Mapping[str, Array], metadata: Metadata, *, force: bool = False) -> str:
    """Write the tensors as one artifact and return the file's SHA-256."""
    arrays = {name: _plain(name, array) for name, array in tensors.items()}
    specs = sorted(
        (TensorSpec(name, NAMES[array.dtype], tuple(array.shape)) for name, array in arrays.items()),
        key=layout_order,
    )
    _check_promises(KINDS[metadata.kind], specs)
    _check_stated(metadata, specs)
    for name, array in arrays.items():
        check_finite(name, array)
    payload = [arrays[s.name].reshape(-1).view(np.uint8).data for s in specs if s.nbytes]
    payload_sha256 = seal.digest(payload)
    header = _header(metadata, specs, payload_sha256, ZEROS)
    position = seal.find(header, escaped=True)
    header = _header(metadata, specs, payload_sha256, seal.compute(header, position))
    return publish(path, [header, *payload], metadata, force=force)


# Is shown what a header says, before anything large is read, and raises what is wrong with it.
Fits = Callable[[Metadata, Sequence[TensorSpec]], None]


def read(path: Path, *, kind: str | None = None, fits: Fits | None = None) -> TensorArtifact:
    """Read one artifact whole, checking everything that it claims. `kind` is the one that is needed.

    Where shapes are agreed, `fits` refuses others by the header alone.
    """
    with opened(path) as handle:
        header, specs, sealed, size = read_start(handle)
        _check_kind(sealed.metadata.kind, kind)
        if fits is not None:
            fits(sealed.metadata, specs)
        handle.seek(0)
        data = handle.read(size + 1)
        if not data.startswith(header):
            raise ValueError("it changed while it was read")
        payload = memoryview(data)[len(header) :]
        if sha256_hex(payload) != sealed.payload_sha256:
            raise ValueError("the tensors do not match their digest")
        tensors = _views(payload, specs)
        for name, array in tensors.items():
            check_finite(name, array)
    return TensorArtifact(path, sealed.metadata, sealed.payload_sha256, tuple(specs), tensors, data)


def read_header(path: Path, *, kind: str | None = None) -> tuple[Metadata, tuple[TensorSpec, ...]]:
    """Read the header alone: what the file says it is. The payload is not checked."""
    with opened(path) as handle:
        _, specs, sealed, _ = read_start(handle)
        _check_kind(sealed.metadata.kind, kind)
    return sealed.metadata, tuple(specs)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file, and whatever is found wrong with it as an error that names it."""
    try:
        with limits.open_file(path, _FIRST) as handle:
            yield handle
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise damaged(path, error) from error


def read_start(handle: BinaryIO) -> tuple[bytes, list[TensorSpec], SealedMetadata, int]:
    """The header of an open file, its tensors and what it says of itself, once it matches its seal; and its size."""
    size = os.fstat(handle.fileno()).st_size
    limits.FILE.check(size)
    start = handle.read(8)
    header, specs, sealed = parse_header(start + handle.read(header_size(start, size) - 8), size)
    if seal.compute(header, seal.find(header, escaped=True)) != sealed.seal_sha256:
        raise ValueError("the header does not match its digest")
    return header, specs, sealed, size


def damaged(path: Path, error: Exception) -> InputError:
    """The message for a file that is not what it should be; of what the file says, no more than fits on a line."""
    reason = " ".join(str(error).split())
    if len(reason) > _MAX_REASON:
        reason = f"{reason[: _MAX_REASON // 2]} … {reason[-_MAX_REASON // 2 :]}"
    return InputError(f"{path} is not a whole fedsynth artifact of the kind needed: {reason}. Get it again.")


def unreadable(path: Path, error: OSError) -> InputError:
    reason = "no such file" if isinstance(error, FileNotFoundError) else (error.strerror or str(error))
    return InputError(f"cannot read {path}: {reason}. Check the path.")


def _check_kind(found: str, needed: str | None) -> None:
    if needed is not None and found != needed:
        raise ValueError(f"it is a {found}, but a {needed} is needed")


def parse_header(data: bytes, size: int) -> tuple[bytes, list[TensorSpec], SealedMetadata]:
    """What `parse_table` finds, for a file that must be one of ours; its digests are not computed here."""
    found = _known.find(data, size)
    if found is not None:
        header, specs, text, kinds = found
    else:
        header, specs, texts = parse_table(data, size)
        if set(texts) != {KEY}:
            raise ValueError(f"its metadata must be the one key {KEY!r}, found {sorted(texts) or 'none'}")
        text, kinds = texts[KEY], set()
    sealed = parse(text)
    kind = KINDS[sealed.metadata.kind]
    if kind.format is not Format.TENSORS:
        raise ValueError(f"a {kind.name} is a {kind.format} file")
    if kind.name not in kinds:
        _check_promises(kind, specs)
    _check_stated(sealed.metadata, specs)
    if found is None:
        ordered = specs == sorted(specs, key=layout_order)
        # `parse` takes the one canonical text only.
        if not ordered or layout(text, specs) != header:
            raise ValueError("its header is not in canonical form")
    if kind.name not in kinds:
        _known.remember(header, specs, kind.name)
    return header, specs, sealed


def _header(metadata: Metadata, specs: list[TensorSpec], payload_sha256: str, seal_sha256: str) -> bytes:
    return layout(canonical_json(metadata.to_json(payload_sha256=payload_sha256, seal_sha256=seal_sha256)), specs)


def _check_promises(kind: Kind, specs: list[TensorSpec]) -> None:
    """The tensors have the names, shapes and types that the kind promises."""
    for spec in specs:
        if not spec.name.isascii() or not spec.name.isprintable() or not 0 < len(spec.name) <= 200:
            raise PromiseError(f"tensor name {spec.name!r} is not plain text")
    if kind.tensors is None:
        for spec in specs:
            if spec.dtype not in kind.weight_dtypes:
                wanted = " or ".join(kind.weight_dtypes)
                raise PromiseError(f"tensor {spec.name!r} of a {kind.name} must be {wanted}, found {spec.dtype}")
        if not specs:
            raise PromiseError(f"a {kind.name} holds no tensors")
        return
    found = {spec.name: spec for spec in specs}
    extra = sorted(found.keys() - kind.tensors.keys())
    if extra:
        raise PromiseError(f"a {kind.name} has no tensor {extra[0]!r}")
    sizes: dict[str, int] = {}
    for name, rule in kind.tensors.items():
        if name not in found:
            if rule.optional:
                continue
            raise PromiseError(f"a {kind.name} must hold the tensor {name!r}")
        spec = found[name]
        if spec.dtype not in rule.dtypes or len(spec.shape) != len(rule.dims):
            wanted = f"{' or '.join(rule.dtypes)} [{', '.join(map(str, rule.dims))}]"
            raise PromiseError(f"tensor {name!r} must be {wanted}, found {spec.dtype} {list(spec.shape)}")
        for dim, size in zip(rule.dims, spec.shape, strict=True):
            if isinstance(dim, int) and size != dim:
                raise PromiseError(f"tensor {name!r} has {size} where a {kind.name} has {dim}")
            if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                raise PromiseError(f"tensor {name!r} has {size} for {dim}, another tensor {sizes[dim]}")


def _check_stated(metadata: Metadata, specs: Sequence[TensorSpec]) -> None:
    """The parameters are those that the kind declares, and the tensors as large as these say."""
    kind = KINDS[metadata.kind]
    if kind.params is None:
        return
    wrong = next(misstated(kind.params, metadata.custody, metadata.params), None)
    if wrong is not None:
        raise MetadataError(f"it is no {kind.name} as fedsynth writes it: {wrong}")
    rules = kind.tensors or {}
    for spec in specs if rules else ():
        for dim, size in zip(rules[spec.name].dims, spec.shape, strict=True):
            wanted = len(metadata.params.get(dim.param, [""])) if isinstance(dim, Listed) else size
            if size != wanted:
                raise PromiseError(f"tensor {spec.name!r} has {size} rows, but there are {wanted}: {dim}")


def _plain(name: str, array: Array) -> Array:
    """Contiguous, little-endian; the shape of a scalar is kept."""
    dtype = array.dtype.newbyteorder("<")
    if dtype not in NAMES:
        raise ValueError(f"tensor {name!r} has the dtype {array.dtype}, which artifacts do not hold")
    if array.ndim > MAX_DIMS:
        raise ValueError(f"tensor {name!r} has {array.ndim} dimensions; artifacts hold at most {MAX_DIMS}")
    return array.astype(dtype, order="C", copy=False)


def _views(payload: memoryview, specs: list[TensorSpec]) -> dict[str, Array]:
    tensors, position = {}, 0
    for spec in specs:
        count = math.prod(spec.shape)
        flat = np.frombuffer(payload, dtype=DTYPES[spec.dtype], count=count, offset=position)
        tensors[spec.name] = flat.reshape(spec.shape)
        position += spec.nbytes
    return tensors


def check_finite(name: str, array: Array) -> None:
    if not is_finite(array):
        raise ValueError(f"tensor {name!r} holds NaN or infinity")


def is_finite(array: Array) -> bool:
    # The minimum and the maximum carry any NaN and infinity, and are three times as fast as isfinite().all().
    plain = array.dtype.kind != "f" or not array.size
    return plain or (math.isfinite(array.min()) and math.isfinite(array.max()))
