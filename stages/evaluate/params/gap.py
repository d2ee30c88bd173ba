"""`evaluate RUN --gap`: the options and the table of `stages.evaluate.gap`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.evaluate.measurement import BATCH_SIZE, DEVICE, ROUND, Measurement, Option, Shown, Table


def _table(summary: Mapping[str, Any]) -> Shown:
    rows = [
        [
            number,
            *(f"{values[key]:.2%}" for key in ("train_accuracy", "test_accuracy")),
            f"{100 * values['gap']:+.2f}",
            *(f"{values[key]:.4g}" for key in ("train_loss", "test_loss")),
        ]
        for number, values in summary["rounds"].items()
    ]
    yield Table(["round", "training", "test", "gap (points)", "training loss", "test loss"], rows)
    train, test = f"{summary['num_train']:,}", f"{summary['num_test']:,}"
    yield f"{train} training images of {summary['clients']} clients, {test} test images."


MEASUREMENT = Measurement(
    place=6,
    subject="RUN",
    form="RUN --gap",
    chosen_by="gap",
    function="stages.evaluate.gap:evaluate_gap",
    options=(
        Option(
            name="gap",
            type=bool,
            selects=True,
            text="Of a simulated run: accuracy on the clients' training data less that on the test.",
        ),
        ROUND,
        BATCH_SIZE,
        DEVICE,
    ),
    help="""
    How much better the server's model is on training data than on test data. Private.

    Example: fedsynth evaluate runs/fedavg --gap -o runs/fedavg/simulation/gap.json
    """,
    table=_table,
)
