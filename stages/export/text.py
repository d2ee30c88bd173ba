"""JSON and Markdown as the documents are written: the same facts give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any


def as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode(errors="backslashreplace")


def as_markdown(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines).rstrip() + "\n").encode(errors="backslashreplace")


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """A table of Markdown; nothing in a cell ends the row or becomes markup."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return [*lines, *(f"| {' | '.join(plain(cell) for cell in row)} |" for row in rows)]


def plain(value: Any) -> str:
    """A text from a file as Markdown that shows it, in one line."""
    text = " ".join(str(value).split()) or "–"
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in text if c.isprintable())
