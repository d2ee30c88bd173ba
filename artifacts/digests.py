"""Canonical JSON and SHA-256: the two things that make equal content equal bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

ZEROS = "0" * 64


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, ASCII only: one text for one value. NaN and infinity have no JSON: refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """What `sha256sum` prints for the file, in constant memory."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def is_sha256(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")
