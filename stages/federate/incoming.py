"""Parcels that come in pieces: each is on this disk before the next is asked for, so that a broken line costs one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from artifacts.digests import is_sha256, sha256_file
from artifacts.errors import InputError
from artifacts.writing import atomic
from stages.federate.drop import DropFolder, Label, digest_of

_PART = ".part"


@dataclass(frozen=True)
class Piece:
    """Of the parcel `sha256`, which has `size` bytes, the data that begin at `offset`."""

    label: Label
    size: int
    sha256: str
    offset: int
    data: bytes


def take(piece: Piece, folder: Path, drop: DropFolder, most_bytes: int) -> int:
    """How many bytes of the parcel are here now; all of them, and it lies in the drop folder under its name."""
    if not is_sha256(piece.sha256) or not 0 <= piece.offset <= piece.size or len(piece.data) > piece.size:
        raise InputError(f"a piece of {drop.name(piece.label)} came that is not laid out as agreed.")
    if piece.size > most_bytes:
        raise InputError(f"{drop.name(piece.label)} has {piece.size:,} bytes, at most {most_bytes:,} are taken.")
    path = folder / drop.name(piece.label)
    if _is_there(path, piece):
        return piece.size
    part = folder / f".{piece.label.sender}.{piece.sha256}{_PART}"
    have = part.stat().st_size if part.exists() else 0
    if piece.offset > have or (piece.offset < have and piece.offset + len(piece.data) <= have):
        return have  # the sender goes on from there
    with atomic.explained(part):
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as handle:
            handle.seek(piece.offset)
            handle.write(piece.data)
            handle.flush()
            os.fsync(handle.fileno())
    have = piece.offset + len(piece.data)
    if have < piece.size:
        return have
    if have > piece.size or sha256_file(part) != piece.sha256:
        part.unlink()
        raise InputError(
            f"{drop.name(piece.label)} arrived with other bytes than its digest says; it is asked for anew."
        )
    with atomic.explained(path):
        part.replace(path)
    _forget_earlier(piece.label, folder, drop)
    return have


def _is_there(path: Path, piece: Piece) -> bool:
    return path.is_file() and path.stat().st_size == piece.size and digest_of(path) == piece.sha256


def _forget_earlier(label: Label, folder: Path, drop: DropFolder) -> None:
    """This folder is ours alone: what was superseded is not looked at again."""
    for found in drop.labels():
        if (found.sender, found.recipient) == (label.sender, label.recipient) and found.exchange < label.exchange:
            drop.remove(found)
    for part in folder.glob(f".{label.sender}.*{_PART}"):
        part.unlink(missing_ok=True)
