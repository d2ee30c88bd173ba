"""`evaluate MODEL DATA`: the options of `stages.evaluate.accuracy`."""

from __future__ import annotations

from pathlib import Path

from stages.evaluate.measurement import BATCH_SIZE, DEVICE, PICTURE, Measurement, Option

MEASUREMENT = Measurement(
    place=1,
    subject="MODEL DATA",
    function="stages.evaluate.accuracy:evaluate",
    options=(
        Option(
            name="curve", type=Path, text="CSV in which this round's row is set.", why_local="it is changed in place"
        ),
        Option(name="confusion", type=Path, written=True, text="PNG: which class is taken for which."),
        PICTURE,
        BATCH_SIZE,
        DEVICE,
    ),
    help="""
    A model on a dataset: loss, accuracy, accuracy by class. Flat JSON that `dvc metrics show` reads.

    Example: fedsynth evaluate model-0003.safetensors public/test.parquet -o metrics/round-0003.json
    """,
)
