"""Naming what a file was made from: by digest where that is public, by commitment where it is private."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from artifacts.digests import canonical_json
from artifacts.errors import InputError
from artifacts.formats.plain_data import read_json
from artifacts.identity.commitments import commit
from artifacts.identity.keys import Key
from artifacts.metadata import InputRef, Metadata
from artifacts.writing import atomic


class HasDigest(Protocol):
    """Any artifact that was read."""

    @property
    def metadata(self) -> Metadata: ...

    @property
    def sha256(self) -> str: ...


def by_digest(artifact: HasDigest, role: str) -> InputRef:
    """For files that stay where their inputs are, and for inputs that are not private."""
    return InputRef(role=role, kind=artifact.metadata.kind, sha256=artifact.sha256)


def for_outbound(artifact: HasDigest, role: str, *, key: Key, context: dict[str, Any]) -> InputRef:
    """For files that leave: a private input is committed to, any other named by its digest."""
    if artifact.metadata.custody != "private":
        return by_digest(artifact, role)
    return commit(key, role=role, kind=artifact.metadata.kind, sha256=artifact.sha256, context=context)


def write_record(path: Path, out: Path, inputs: Sequence[InputRef], *, force: bool) -> None:
    """What a file in the server's outbox was made from, for the server alone; before the file itself.

    Where the file is there already its record stays, unless `force` replaces both.
    """
    text = canonical_json({"file": out.name, "inputs": [reference.to_json() for reference in inputs]})
    atomic.write(path, [text.encode() + b"\n"], force=force or not out.exists(), custody="server")


def read_record(path: Path) -> list[InputRef]:
    """The inputs that `write_record` wrote down."""
    try:
        references = [InputRef(**entry) for entry in read_json(path)["inputs"]]
        for reference in references:
            reference.check()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a lineage record: {error}. Get it again.") from error
    return references
