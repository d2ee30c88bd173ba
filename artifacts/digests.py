"""Canonical JSON and SHA-256: the two things that make equal content equal bytes."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

ZEROS = "0" * 64
_SHA256 = re.compile("[0-9a-f]{64}")
# Made once: an audit spells as many texts as there are files.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, ASCII only: one text for one value. NaN and infinity have no JSON: refused."""
    return _ENCODER.encode(value)


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """What `sha256sum` prints for the file, in constant memory."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def is_sha256(text: Any) -> bool:
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None
