"""`fedsynth evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Device, Force, Json, Out, Quiet


def evaluate(
    model: Annotated[Path, typer.Argument(help="The model.")],
    data: Annotated[Path, typer.Argument(help="A dataset.")],
    out: Out,
    curve: Annotated[Path | None, typer.Option(help="CSV in which this round's row is set.")] = None,
    picture: Annotated[Path | None, typer.Option(help="PNG of the curve so far (with --curve).")] = None,
    confusion: Annotated[Path | None, typer.Option(help="PNG: which class is taken for which.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time; changes speed, not results.")] = 500,
    device: Device = "auto",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a model: loss, accuracy, accuracy by class. Flat JSON that `dvc metrics show` reads.

    Example: fedsynth evaluate model-0003.safetensors public/test.parquet -o metrics/round-0003.json
    """
    from stages.evaluate import evaluate as stage

    if picture is not None and curve is None:
        raise typer.BadParameter("--picture needs --curve, whose rows it draws.")
    output = Output(as_json=json, quiet=quiet)
    where: Any = device
    with output.progress("evaluate") as report:
        summary = stage(
            model, data, out, curve=curve, picture=picture, confusion=confusion, batch_size=batch_size,
            device=where, force=force, report=report,
        )  # fmt: skip
    output.result(summary)
