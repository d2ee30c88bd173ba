"""What anybody can see of a file that leaves, or of a ledger's entry for it, and where two of them differ."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from artifacts.digests import sha256_hex
from artifacts.formats import Format, describe, format_of
from artifacts.ledgers import egress
from artifacts.places import Place

# Under a key, or the digest of a file that has such in it: they differ with the data, and tell nothing.
_KEYED = {"id", "commitment", "salt", "signature"}
_DIGESTS = {"sha256", "previous", "draw"}
_LONGEST = 60


def seen_file(path: Path, *, values: bool, digests: bool) -> dict[str, Any]:
    """Size, metadata, names and shapes; with `values` what the tensors and rows hold.

    `digests`: those of the files that it was made from, too. In a file that leaves these are public files.
    """
    described = describe(path)
    about = described.metadata.to_json(payload_sha256="", seal_sha256="")
    seen: dict[str, Any] = {"metadata": masked(about, _KEYED if digests else _KEYED | _DIGESTS)}
    if format_of(path) is Format.DATASET:
        from artifacts.formats import dataset_file

        found = dataset_file.read(path)
        seen["labels"] = found.labels.tolist()
        if values:
            seen |= {"size": path.stat().st_size}
            seen["images"] = [sha256_hex(png.as_py()) for png in found.pngs]
    else:
        seen["size"] = path.stat().st_size
        seen["tensors"] = {spec.name: [spec.dtype, list(spec.shape)] for spec in described.specs}
        if values and described.specs:
            from artifacts.formats import tensors_file

            seen["values"] = {name: sha256_hex(t.tobytes()) for name, t in tensors_file.read(path).tensors.items()}
    return seen


def ledger_of(place: Place, *, sizes: bool) -> list[Any]:
    """The entries of what left; sizes of images count where their pixels must be equal."""
    entries = [masked(vars(entry), _KEYED | _DIGESTS) for entry in egress.read(place.ledger).entries]
    return [entry if sizes else {**entry, "bytes": None} for entry in entries]


def masked(value: Any, hidden: Set[str]) -> Any:
    """The same without the values of these names."""
    if isinstance(value, Mapping):
        return {name: "…" if name in hidden else masked(inner, hidden) for name, inner in value.items()}
    return [masked(inner, hidden) for inner in value] if isinstance(value, list | tuple) else value


def unlike(first: Any, second: Any, where: str = "") -> str | None:
    """The first place where two such things differ, in words; None where there is none."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for name in sorted({*first, *second}, key=str):
            there = f"{where}.{name}" if where else str(name)
            if (name in first) != (name in second):
                return f"{there} is there for one of them alone"
            found = unlike(first[name], second[name], there)
            if found is not None:
                return found
        return None
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for number, (a, b) in enumerate(zip(first, second, strict=True)):
            found = unlike(a, b, f"{where}[{number}]")
            if found is not None:
                return found
        return None
    return None if first == second else f"{where} is {_short(first)} for one, {_short(second)} for the other"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
