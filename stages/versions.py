"""Which versions determined a file's bytes."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version


@cache
def _version(distribution: str) -> str:
    return version(distribution)


def versions(*libraries: str) -> dict[str, str]:
    """The versions of fedsynth and of the libraries that took part in the arithmetic."""
    return {name: _version(name) for name in ("fedsynth", *libraries)}
