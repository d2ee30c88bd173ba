"""`evaluate MODEL DATA --matching SURROGATE`: the options and the table of `stages.evaluate.matching`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.evaluate.measurement import BATCH_SIZE, CSV, DEVICE, PICTURE, Measurement, Option, Shown, Table


def _table(summary: Mapping[str, Any]) -> Shown:
    def spelled(value: float | None) -> str:
        return "–" if value is None else f"{value:.4g}"

    first, last = summary["trajectory"][0], summary["trajectory"][-1]
    parts = {"all weights": (first, last)}
    parts |= {name: (found, last["tensors"][name]) for name, found in first["tensors"].items()}
    rows = [
        [name, *(spelled(point[key]) for key in ("cosine", "norm_ratio") for point in points)]
        for name, points in parts.items()
        if name not in summary["without_gradient"]
    ]
    end = f"after {summary['steps']}"
    yield Table([f"client {summary['client']}, round {summary['round']}", "cosine", end, "‖g_S‖/‖g_D‖", end], rows)
    losses = " → ".join(f"{point['loss_real']:.4g} / {point['loss_synthetic']:.4g}" for point in (first, last))
    yield (
        f"{summary['steps']} steps of η = {summary['learning_rate']:g} on {summary['images']} synthetic images lead "
        f"{summary['distance']:.4g} away; loss on data / on the set: {losses}."
    )
    if summary["without_gradient"]:
        yield f"Without a gradient, but for rounding: {', '.join(summary['without_gradient'])}."
    if "note" in summary:
        yield summary["note"]


MEASUREMENT = Measurement(
    place=9,
    subject="MODEL DATA",
    form="MODEL DATA --matching SURROGATE",
    chosen_by="matching",
    function="stages.evaluate.matching:evaluate_matching",
    options=(
        Option(
            name="matching", type=Path, argument="surrogate", metavar="SURROGATE",
            text="How near a synthetic set's gradients are to the data's.",
        ),
        Option(name="matching_steps", type=int, least=0, text="Steps of the model on the set (default 10)."),
        Option(
            name="learning_rate", type=float, text="η of these steps (default: the set's own; feddm 0.01)."
        ),
        CSV,
        PICTURE,
        BATCH_SIZE,
        DEVICE,
    ),
    help="""
    How well one of them replaces the data that it was made from, layer by layer. Private.

    Example: fedsynth evaluate model-0000.safetensors private/data.parquet --matching outbox/surrogate-0001.safetensors
    -o private/quality.json --picture private/quality.png
    """,
    table=_table,
)  # fmt: skip
