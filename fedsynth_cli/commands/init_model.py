"""`fedsynth init-model`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, GivenOptions, Json, Out, Quiet, Seed, hyper_options
from stages.registry import NETWORKS


@hyper_options("init-model", NETWORKS)
def init_model(
    like: Annotated[Path, typer.Option("--like", help="A dataset whose image size and classes the model is for.")],
    out: Out,
    given: GivenOptions,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            help="Public weights to begin with: safetensors, or a state dict of torch (.pt, .pth). The layer of the "
            "logits stays new where the file's is for other classes.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the initial model: public, the same for everyone.

    Example: fedsynth init-model --arch mlp --like run/public/test.parquet -o run/public/model-0000.safetensors
    """
    from stages.init_model import init_model as stage

    summary = stage(like, out, params=given.resolve(NETWORKS), seed=seed, weights=weights, force=force)
    Output(as_json=json, quiet=quiet).result(summary)
