"""`fedsynth ingest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, Json, Out, Quiet
from stages.data.params import Fit


def ingest(
    source: Annotated[
        str, typer.Argument(help="A Parquet file or folder, a folder of class folders, digits, or a URL of one.")
    ],
    out: Out,
    like: Annotated[
        Path | None,
        typer.Option(
            help="A dataset with the federation's classes and image size: its public test set.", show_default=False
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="Instead of --like: a YAML or TOML file with classes, channels, height and width that was agreed on.",
            show_default=False,
        ),
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="The client's name, unless --out tells it.", show_default=False)
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="Height and width to resize to.", show_default=False)] = None,
    fit: Annotated[
        Fit | None,
        typer.Option(
            help="Proportions of images that are resized: stretch changes them (the default with --image-size), crop "
            "cuts off what is too long, pad puts black beside the image. Without --image-size: to the size of --like "
            "or --schema.",
            show_default=False,
        ),
    ] = None,
    channels: Annotated[int | None, typer.Option(help="1 for grey, 3 for colour.", show_default=False)] = None,
    bits: Annotated[
        int | None,
        typer.Option(
            help="Of images with more than 8 bits a channel: how many of them are used, 1 to 16 (CT: 12). Pixels "
            "from 0 to 2^bits − 1 become 0 to 255.",
            show_default=False,
        ),
    ] = None,
    image_column: Annotated[str | None, typer.Option(help="Parquet: the images' column.", show_default="image")] = None,
    label_column: Annotated[str | None, typer.Option(help="Parquet: the labels' column.", show_default="label")] = None,
    unit_column: Annotated[
        str | None,
        typer.Option(
            help="Parquet: the column that says whose a row is (a patient), for --unit person. It becomes numbers that "
            "never leave.",
            show_default=False,
        ),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            help="A folder: leave out files that are no image that can be read, and name them. How many there were "
            "stays with the client.",
        ),
    ] = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Bring a client's own images into the form that all stages read. They stay where they are written.

    Private data needs --like or --schema before anything is trained on it: classes that were read off the images
    would tell about them.

    Into NAME/private/ for a client's data; into public/ for the test set that everybody may see.

    Example: fedsynth ingest scans/ --like public/test.parquet -o clients/hospital-a/private/data.parquet
    """
    from stages.ingest import Reading
    from stages.ingest import ingest as stage

    reading = Reading(
        image_size=image_size, fit=fit, channels=channels, bits=bits, image_column=image_column,
        label_column=label_column, unit_column=unit_column, skip_bad=skip_bad,
    )  # fmt: skip
    summary = stage(source, out, reading=reading, like=like, schema=schema, client=client, force=force)
    Output(as_json=json, quiet=quiet).result(summary)
