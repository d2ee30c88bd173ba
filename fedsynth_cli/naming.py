"""What a copy in a private folder is called towards the user: the URL that they typed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import IO, Any

from artifacts.errors import FedsynthError

_NAMES: ContextVar[Mapping[str, str]] = ContextVar("names", default=MappingProxyType({}))


@contextlib.contextmanager
def named(names: Mapping[str, str]) -> Iterator[None]:
    """While the block runs, texts and errors say the value wherever they would say the key."""
    token = _NAMES.set({**_NAMES.get(), **names})
    try:
        yield
    except FedsynthError as error:
        raise type(error)(renamed(str(error))) from error
    finally:
        _NAMES.reset(token)


def renamed(text: str) -> str:
    for local, shown in _NAMES.get().items():
        text = text.replace(local, shown)
    return text


class RenamedOutput:
    """Standard output, on which copies have their names; for rich, which writes a printed text in one piece."""

    def write(self, text: str) -> int:
        return sys.stdout.write(renamed(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stdout, name)


def stdout() -> IO[str] | RenamedOutput:
    return RenamedOutput() if _NAMES.get() else sys.stdout
