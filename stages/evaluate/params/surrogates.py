"""`evaluate RUN --surrogates`: the options and the table of `stages.evaluate.surrogates`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.evaluate.measurement import PICTURE, ROUND, Measurement, Option, Shown, Table
from stages.words import human_bytes


def _table(summary: Mapping[str, Any]) -> Shown:
    def spelled(value: float | None) -> str:
        return "–" if value is None else f"{value:.4g}"

    rows = []
    for number, values in summary["rounds"].items():
        pixels = values["pixels"]
        radii = "–"
        if values["radius_min"] is not None:
            radii = f"{values['radius_min']:.3g}–{values['radius_max']:.3g}"
        steps = "–" if values["server_steps"] is None else str(values["server_steps"])
        span = f"{pixels['p05']:.2f} … {pixels['p95']:.2f}"
        rows.append(
            [number, values["clients"], radii, spelled(values["server_radius"]), spelled(values["server_distance"]),
             steps, span, f"{pixels['beyond']:.0%}", human_bytes(values["bytes"])]
        )  # fmt: skip
    yield Table(["round", "clients", "radii", "r_g", "went", "steps", "pixels 5–95%", "beyond", "bytes"], rows)
    yield (
        f"{summary['method']}: {human_bytes(summary['bytes'])} of sets. r_g: the server's radius; went: how far it "
        "got; beyond: pixels outside −1 … 1, the range of real images."
    )


MEASUREMENT = Measurement(
    place=8,
    subject="RUN",
    form="RUN --surrogates",
    chosen_by="surrogates",
    function="stages.evaluate.surrogates:evaluate_surrogates",
    options=(
        Option(
            name="surrogates",
            type=bool,
            selects=True,
            text="Of a run: radii, steps of the server, pixels of the synthetic sets.",
        ),
        Option(
            name="sheet", type=Path, written=True, text="PNG: the synthetic images, a row for each client and class."
        ),
        ROUND,
        PICTURE,
    ),
    help="""
    What the synthetic sets of FedLAP and FedDM are like, round by round. For the server, which has them.

    Example: fedsynth evaluate runs/fedlap --surrogates -o runs/fedlap/server/private/surrogates.json --sheet sheet.png
    """,
    table=_table,
)
