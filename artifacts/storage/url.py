"""What is a URL and what is a path. Apart from `remote`, which every command would else load to find out."""

from __future__ import annotations

import re
from pathlib import Path

from artifacts.errors import UsageError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def local_path(text: str) -> Path | None:
    """The path of a `file:` URL, which is no different from the path itself; None for any other URL."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(text)
    if parts.scheme.lower() != "file":
        return None
    if parts.netloc not in ("", "localhost"):
        raise UsageError(
            f"file://{parts.netloc.rpartition('@')[2]}{parts.path}: a file: URL begins with three slashes."
        )
    return Path(unquote(parts.path))
