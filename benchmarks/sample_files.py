"""Artifacts to measure with: networks of a given size, filled with random weights, and the messages about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts.formats import tensors_file
from artifacts.metadata import InputRef, Metadata
from stages.execution.versions import versions
from stages.methods.params.encoding import DeltaEncoding

Weights = dict[str, NDArray[np.float32]]
_LAYERS = 8


def weights(megabytes: float, seed: int = 0) -> Weights:
    """A network's worth of float32 in a few layers."""
    rng = np.random.default_rng(seed)
    columns = 128
    rows = int(megabytes * 1e6 / 4 / _LAYERS / (columns + 1))
    named: Weights = {}
    for layer in range(_LAYERS):
        named[f"layer{layer}.weight"] = rng.standard_normal((rows, columns), dtype=np.float32)
        named[f"layer{layer}.bias"] = rng.standard_normal(rows, dtype=np.float32)
    return named


def about_model() -> Metadata:
    return Metadata(kind="model", stage="init-model", custody="public", round=0, versions=versions("numpy"))


def about_update(client: str, round: int, model: str) -> Metadata:
    return Metadata(
        kind="update",
        stage="train-client",
        method="fedavg",
        custody="private",
        client=client,
        round=round,
        inputs=(InputRef(role="model", kind="model", sha256=model),),
        versions=versions("numpy"),
    )


def about_message(client: str, round: int, model: str) -> Metadata:
    return Metadata(
        kind="message",
        stage="encode",
        method="delta",
        custody="outbound",
        client=client,
        round=round,
        params=DeltaEncoding().to_json(),
        inputs=(InputRef(role="model", kind="model", sha256=model),),
        disclosures=("update",),
        versions=versions("numpy"),
    )


def write_model(path: Path, megabytes: float) -> str:
    """A public model of the given size; returns its SHA-256."""
    return tensors_file.write(path, weights(megabytes), about_model())
