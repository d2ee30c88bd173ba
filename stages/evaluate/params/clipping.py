"""`evaluate RUN --clipping C`: the options and the table of `stages.evaluate.clipping`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.evaluate.measurement import PICTURE, ROUND, Measurement, Option, Shown, Table


def _table(summary: Mapping[str, Any]) -> Shown:
    rows = [
        [
            number,
            f"{values['clients']}",
            *(f"{values[key]:.4g}" for key in ("norm_min", "norm_median", "norm_max")),
            f"{values['clipped']:.0%}",
            *(f"{values[key]:.4f}" for key in ("alpha_mean", "alpha_deviation")),
        ]
        for number, values in summary["rounds"].items()
    ]
    yield Table(["round", "clients", "shortest", "median", "longest", "clipped", "α̅", "α̃"], rows)
    yield f"C = {summary['clip_norm']:g}. {summary['note']}"


MEASUREMENT = Measurement(
    place=5,
    subject="RUN",
    form="RUN --clipping C",
    chosen_by="clipping",
    function="stages.evaluate.clipping:evaluate_clipping",
    options=(
        Option(
            name="clipping", type=float, argument="clip_norm", metavar="C",
            text="Of a simulated run: norms of updates, and what a clip to C leaves (Eq. 15).",
        ),
        ROUND,
        PICTURE,
    ),
    help="""
    How long its updates are, and what a clip leaves of them. Private.

    Example: fedsynth evaluate runs/fedavg --clipping 0.2 -o runs/fedavg/simulation/clipping.json
    """,
    table=_table,
)  # fmt: skip
