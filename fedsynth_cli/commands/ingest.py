"""`fedsynth ingest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, Json, Out, Quiet
from stages.data.params import Fit

_SCANS = "Scans, and a CSV of labels"


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
        str | None, typer.Option(help="The client's name, unless it follows from --out.", show_default=False)
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(help="Height and width to resize to: those of --like or --schema if absent.", show_default=False),
    ] = None,
    fit: Annotated[
        Fit | None,
        typer.Option(
            help="Proportions of images that are resized: stretch changes them (the default), crop cuts off what is "
            "too long, pad puts black beside the image.",
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
            help="Parquet or --labels: the column that says whose a row is (a patient), for --unit person. It becomes "
            "numbers that never leave.",
            show_default=False,
        ),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            help="Leave out files and rows that are no image that can be read, and name them. How many there were "
            "stays with the client.",
        ),
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="A CSV with the columns file and label (--label-column), for a folder of images, DICOM files or NIfTI "
            "volumes without class folders. --unit-column may name another of its columns, or PatientID, which is read "
            "from DICOM headers.",
            show_default=False,
            rich_help_panel=_SCANS,
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="CENTRE,WIDTH|file",
            help="Which measured values are shown, from black to white: 40,400 for soft tissue in CT; file: as the "
            "header of each scan says.",
            show_default=False,
            rich_help_panel=_SCANS,
        ),
    ] = None,
    slices: Annotated[
        str,
        typer.Option(
            metavar="middle|all|FROM:TO",
            help="Which slices of a volume are images. What is in one file is one person's.",
            rich_help_panel=_SCANS,
        ),
    ] = "middle",
    blank: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOP,LEFT,HEIGHT,WIDTH",
            help="Make this part of every scan black: text that is burnt into the pixels. May be given several times.",
            show_default=False,
            rich_help_panel=_SCANS,
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert a client's own images to the format that all stages read. They stay where they are written.

    Private data needs --like or --schema before anything is trained on it: classes read from the
    images themselves would disclose something about them.

    Into NAME/private/ for a client's data; into public/ for the test set that everybody may see.

    From DICOM and NIfTI files (pip install 'fedsynth\\[medical]') only the pixels are read: no header field gets into
    any file, and audit --headers checks that.

    Example: fedsynth ingest photos/ --like public/test.parquet -o clients/hospital-a/private/data.parquet
    """
    from stages.data.medical import ScanReading, parse_blank, parse_slices, parse_window
    from stages.ingest import Reading
    from stages.ingest import ingest as stage

    reading = Reading(
        image_size=image_size, fit=fit, channels=channels, bits=bits, image_column=image_column,
        label_column=label_column, unit_column=unit_column, skip_bad=skip_bad, labels=labels,
        scans=ScanReading(
            window=None if window is None else parse_window(window), slices=parse_slices(slices),
            blank=parse_blank(blank or ()),
        ),
    )  # fmt: skip
    summary = stage(source, out, reading=reading, like=like, schema=schema, client=client, force=force)
    Output(as_json=json, quiet=quiet).result(summary)
