"""Ordinary random streams: each named by what it is for, all under one root seed. No global state anywhere."""

from __future__ import annotations

import hashlib

import numpy as np

from artifacts.digests import canonical_json


def stream_seed(root: int, *, stage: str, client: str | None = None, round: int | None = None, of: str = "") -> int:
    """A 63-bit seed for the stream (stage, client, round, purpose) under `root`; no two names share a stream."""
    name = canonical_json({"root": root, "stage": stage, "client": client, "round": round, "of": of})
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") >> 1


def numpy_stream(
    root: int, *, stage: str, client: str | None = None, round: int | None = None, of: str = ""
) -> np.random.Generator:
    return np.random.default_rng(stream_seed(root, stage=stage, client=client, round=round, of=of))
