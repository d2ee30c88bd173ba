"""Which versions determined a file's bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version

_recorded: Mapping[str, str] = {}


@cache
def _version(distribution: str) -> str:
    return version(distribution)


def versions(*libraries: str) -> dict[str, str]:
    """The versions of fedsynth and of the libraries that took part in the arithmetic."""
    return {name: _recorded.get(name) or _version(name) for name in ("fedsynth", *libraries)}


@contextlib.contextmanager
def recorded_versions(recorded: Mapping[str, str]) -> Iterator[None]:
    """For a replay: what was made with other versions is made again under their names, to which its noise is bound."""
    global _recorded
    before, _recorded = _recorded, recorded
    try:
        yield
    finally:
        _recorded = before
