"""`evaluate MODEL DATA --surface PNG`: the options and the table of `stages.evaluate.surface`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.evaluate.measurement import BATCH_SIZE, DEVICE, SEED, Measurement, Option, Shown, Table


def _table(summary: Mapping[str, Any]) -> Shown:
    def spelled(key: str) -> str:
        return "no number" if summary[key] is None else f"{summary[key]:.6g}"

    rows = [
        ["loss", spelled("loss")],
        [f"sharpness, ρ = {summary['sharpness_rho']:g}", spelled("sharpness")],
        ["largest eigenvalue of the Hessian", spelled("hessian_eigenvalue")],
        ["its residual, 0 where it is exact", spelled("hessian_residual")],
    ]
    yield Table([f"round {summary['round']}, {summary['num_examples']:,} images", ""], rows)


MEASUREMENT = Measurement(
    place=7,
    subject="MODEL DATA",
    form="MODEL DATA --surface PNG",
    chosen_by="surface",
    function="stages.evaluate.surface:evaluate_surface",
    options=(
        Option(
            name="surface", type=Path, written=True,
            text="PNG: the loss around the model. The JSON has its sharpness and largest curvature.",
        ),
        Option(
            name="span", type=float, text="How far to go, in lengths of the model's own filters (default 1)."
        ),
        Option(name="points", type=int, text="Losses each way, an odd number (default 21)."),
        Option(name="sharpness_rho", type=float, text="ρ of the sharpness, one step uphill (default 0.05)."),
        SEED,
        BATCH_SIZE,
        DEVICE,
    ),
    help="""
    How sharp the minimum around a model is.

    Example: fedsynth evaluate model-0003.safetensors public/test.parquet --surface surface.png -o sharpness.json
    """,
    table=_table,
)  # fmt: skip
