"""`evaluate SYNTHETIC REAL…`: the options and the table of `stages.evaluate.memorisation`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.evaluate.measurement import HELD_OUT, Measurement, Option, Shown, Table


def _table(summary: Mapping[str, Any]) -> Shown:
    rows = [
        [words, *(f"{summary[f'{of}_{key}']:.4f}" for of in ("synthetic", "reference"))]
        for key, words in {"min": "smallest", "p01": "1%", "p05": "5%", "median": "median"}.items()
    ]
    rows.append(["exact copies", str(summary["copies"]), str(summary["reference_copies"])])
    reference = "held-out" if summary["reference"] == "held-out" else "real, leaving one out"
    yield Table(["distance to the nearest real image", "synthetic", reference], rows)
    yield (
        f"A synthetic image is nearer than a reference image of its class in {summary['share_nearer']:.1%} of the "
        "pairs (50% where they are alike)."
    )
    yield summary["note"]


MEASUREMENT = Measurement(
    place=2,
    subject="SYNTHETIC REAL…",
    function="stages.evaluate.memorisation:evaluate_memorisation",
    options=(
        HELD_OUT,
        Option(name="pairs", type=Path, written=True, text="PNG: the closest pairs, and all distances."),
    ),
    help="""
    Synthetic images: do they repeat the real ones? Distances to the nearest, beside those of held-out images. Private.

    Example: fedsynth evaluate outbox/synthetic.parquet private/data.parquet -o private/memorisation.json
    """,
    table=_table,
)
