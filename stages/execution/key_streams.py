"""Ordinary randomness of a stage whose output leaves: from the owner's key, so that key and inputs give the same bytes.

A seed on the command line (0, if none is given) would let others begin from the same noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from artifacts.digests import canonical_json
from artifacts.identity.keys import Key


def key_seeds(key: Key, name: Mapping[str, Any]) -> Callable[[str], int]:
    """A 63-bit seed for each purpose under `name`, which says whose stream this is."""
    text = canonical_json(dict(name))
    return lambda of: int.from_bytes(key.derive(f"encode {of} {text}")[:8], "little") >> 1
