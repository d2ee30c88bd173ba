"""`evaluate RUN --heterogeneity`: the options and the table of `stages.evaluate.heterogeneity`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.evaluate.measurement import DEVICE, PICTURE, ROUND, Measurement, Option, Shown, Table


def _table(summary: Mapping[str, Any]) -> Shown:
    for number, values in summary["rounds"].items():
        yield (
            f"Round {number}: ζ² = {values['dissimilarity']:.4g}, σ² = {values['noise']:.4g} "
            f"(largest {values['noise_largest']:.4g}), δ² = {values['shift']:.4g}; shuffled data: "
            f"{summary['shuffled']}, their σ² = {values['shuffled_noise']:.4g}."
        )
        rows = [_share_row(f"{row['share']:g}", row) for row in values["shares"].values()]
        if "dealt" in values:
            rows.append(_share_row(f"{values['dealt']['share']:.3f}, as dealt", values["dealt"]))
        yield Table(["p", "ζ̂²", "bound", "σ̂²", "bound", "with the largest σ²"], rows)


def _share_row(label: str, row: Mapping[str, float]) -> list[str]:
    keys = ("dissimilarity", "dissimilarity_bound", "noise", "noise_bound", "noise_bound_largest")
    return [label, *(f"{row[key]:.4g}" for key in keys)]


MEASUREMENT = Measurement(
    place=4,
    subject="RUN",
    form="RUN --heterogeneity",
    chosen_by="heterogeneity",
    function="stages.evaluate.heterogeneity:evaluate_heterogeneity",
    options=(
        Option(
            name="heterogeneity", type=bool, selects=True,
            text="Of a simulated run: ζ², σ², δ², and after shuffling (Lemma 1).",
        ),
        Option(
            name="share", type=float, argument="shares", repeated=True,
            text="p, the share of shuffled data; may be repeated (default 0, 0.25, 0.5, 0.75, 1).",
        ),
        ROUND,
        PICTURE,
        DEVICE,
    ),
    help="""
    How different the clients of a simulated run are, at one server model. Private.

    Example: fedsynth evaluate runs/fedssyn --heterogeneity -o runs/fedssyn/simulation/heterogeneity.json
    """,
    table=_table,
)  # fmt: skip
