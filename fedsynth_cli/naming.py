"""How texts are shown: copies in a private folder by the URL that was typed, names from files without their tricks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType

from artifacts.errors import FedsynthError

_MOST_LETTERS = 980
_NAMES: ContextVar[Mapping[str, str]] = ContextVar("names", default=MappingProxyType({}))


@contextlib.contextmanager
def named(names: Mapping[str, str]) -> Iterator[None]:
    """While the block runs, texts and errors say the value wherever they would say the key."""
    token = _NAMES.set({**_NAMES.get(), **names})
    try:
        yield
    except FedsynthError as error:
        again = type(error)(renamed(str(error)))
        again.table = error.table
        raise again from error
    finally:
        _NAMES.reset(token)


def renamed(text: str) -> str:
    for local, shown in _NAMES.get().items():
        text = text.replace(local, shown)
    return text


def shown(text: str) -> str:
    """A text as it may be on a screen: what would move the cursor, colour or reorder letters is spelt out.

    Names of files, tensors, columns and classes come from other people. A line feed in them is spelt out as well.
    """
    text = renamed(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown_lines(text: str) -> str:
    """The same for a text that has lines and tabs of its own."""
    return "\n".join("\t".join(map(shown, line.split("\t"))) for line in text.split("\n"))


def shown_json(text: str) -> str:
    """The same for JSON, which is still the same JSON."""
    text = renamed(text)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def shortened(text: str) -> str:
    """No more than fits on a screen: a value from a file may be of any length."""
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 300]} … {text[-250:]}"
