"""`evaluate SYNTHETIC REAL… --quality`: the options and the table of `stages.evaluate.quality`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.evaluate.measurement import DEVICE, HELD_OUT, Measurement, Option, Shown, Table

_COLUMNS = ("accuracy", "precision", "recall", "kid")


def _table(summary: Mapping[str, Any]) -> Shown:
    rows = [[name, str(one["num_synthetic"]), *map(_cell, _values(one))] for name, one in summary["classes"].items()]
    rows.append(["all", str(summary["num_synthetic"]), *map(_cell, _values(summary))])
    yield Table(["class", "synthetic", "accuracy", "precision", "recall", "KID"], rows)
    if summary["accuracy_of_real"] is not None:
        yield f"Trained on the real images the same classifier reaches {summary['accuracy_of_real']:.1%}."
    yield summary["note"]


def _values(one: Mapping[str, Any]) -> list[float | None]:
    return [one[key] for key in _COLUMNS]


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


MEASUREMENT = Measurement(
    place=11,
    subject="SYNTHETIC REAL…",
    form="SYNTHETIC REAL… --quality",
    chosen_by="quality",
    function="stages.evaluate.quality:evaluate_quality",
    needs={"features": "a model whose feature space the images are compared in, trained on public data"},
    options=(
        Option(
            name="quality", type=bool, selects=True,
            text="Precision, recall, KID, and the accuracy on real images of a classifier trained on synthetic ones.",
        ),
        Option(
            name="features", type=Path, metavar="MODEL",
            text="A model file: images are compared by the input of its last layer.",
        ),
        HELD_OUT,
        DEVICE,
    ),
    help="""
    Synthetic images: what are they worth, class by class? In the feature space of a model; never an FID. Private.

    Example: fedsynth evaluate synthetic.parquet private/data.parquet --quality --features model.safetensors -o q.json
    """,
    table=_table,
)  # fmt: skip
