"""Naming what a file was made from: by digest where that is public, by commitment where it is private."""

from __future__ import annotations

from typing import Any, Protocol

from artifacts.commitments import commit
from artifacts.keys import Key
from artifacts.metadata import InputRef, Metadata


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
