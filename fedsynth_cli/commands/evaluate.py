"""`fedsynth evaluate`: seven measurements; what the first argument is, or a flag, decides which."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth_cli import evaluation_tables as show
from fedsynth_cli.console import Output
from fedsynth_cli.options import Device, Force, Json, Out, Quiet

_MODEL, _SYNTHETIC, _RUNS, _CLIENTS = "MODEL DATA", "SYNTHETIC REAL…", "RUN…", "RUN --heterogeneity"
_CLIPPING, _GAP, _SURFACE = "RUN --clipping C", "RUN --gap", "MODEL DATA --surface PNG"
# Which options belong to which form; those that belong to all stand in none.
_OPTIONS = {
    _MODEL: ("curve", "picture", "confusion", "batch_size", "device"),
    _SYNTHETIC: ("held_out", "pairs"),
    _RUNS: ("target", "csv", "picture", "name"),
    _CLIENTS: ("round", "share", "picture", "device"),
    _CLIPPING: ("clipping", "round", "picture"),
    _GAP: ("round", "batch_size", "device"),
    _SURFACE: ("surface", "span", "points", "seed", "sharpness_rho", "batch_size", "device"),
}


def evaluate(
    subject: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL DATA | SYNTHETIC REAL… | RUN…", help="A model and a dataset; datasets; or run folders."
        ),
    ],
    out: Out,
    picture: Annotated[
        Path | None,
        typer.Option(help="PNG: the curve so far (with --curve), the runs, ζ² and σ², or norms.", show_default=False),
    ] = None,
    curve: Annotated[
        Path | None,
        typer.Option(help="CSV in which this round's row is set.", show_default=False, rich_help_panel=_MODEL),
    ] = None,
    confusion: Annotated[
        Path | None,
        typer.Option(help="PNG: which class is taken for which.", show_default=False, rich_help_panel=_MODEL),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Images at a time; changes speed, not results (default 500).", show_default=False,
            rich_help_panel=_MODEL,
        ),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            help="Real images that nobody trained on; else the real ones, leaving one out.", show_default=False,
            rich_help_panel=_SYNTHETIC,
        ),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="PNG: the closest pairs, and all distances.", show_default=False, rich_help_panel=_SYNTHETIC),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Count the rounds to this accuracy (0.9 is 90%).", show_default=False, rich_help_panel=_RUNS),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="CSV: one row a run.", show_default=False, rich_help_panel=_RUNS)
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="What to call a run, once for each; else its folder's name.", show_default=False,
                     rich_help_panel=_RUNS),
    ] = None,
    heterogeneity: Annotated[
        bool,
        typer.Option("--heterogeneity", help="Of a simulated run: ζ², σ², δ², and after shuffling (Lemma 1).",
                     rich_help_panel=_CLIENTS),
    ] = False,
    round: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Of a run: this round; may be repeated (default: the last; --clipping: all).",
                     show_default=False),
    ] = None,
    share: Annotated[
        list[float] | None,
        typer.Option(help="p, the share of shuffled data; may be repeated (default 0, 0.25, 0.5, 0.75, 1).",
                     show_default=False, rich_help_panel=_CLIENTS),
    ] = None,
    clipping: Annotated[
        float | None,
        typer.Option(metavar="C", help="Of a simulated run: norms of updates, and what a clip to C leaves (Eq. 15).",
                     show_default=False, rich_help_panel=_CLIPPING),
    ] = None,
    gap: Annotated[
        bool,
        typer.Option("--gap", help="Of a simulated run: accuracy on the clients' training data less that on the test.",
                     rich_help_panel=_GAP),
    ] = False,
    surface: Annotated[
        Path | None,
        typer.Option(help="PNG: the loss around the model. The JSON has its sharpness and largest curvature.",
                     show_default=False, rich_help_panel=_SURFACE),
    ] = None,
    span: Annotated[
        float | None,
        typer.Option(help="How far to go, in lengths of the model's own filters (default 1).", show_default=False,
                     rich_help_panel=_SURFACE),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(help="Losses each way, an odd number (default 21).", show_default=False,
                     rich_help_panel=_SURFACE),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of the random directions (default 0).", show_default=False, rich_help_panel=_SURFACE),
    ] = None,
    sharpness_rho: Annotated[
        float | None,
        typer.Option(help="ρ of the sharpness, one step uphill (default 0.05).", show_default=False,
                     rich_help_panel=_SURFACE),
    ] = None,
    device: Device = "auto",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Measure a model, synthetic images, whole runs, or what only a simulation can see of a run's clients.

    A model on a dataset: loss, accuracy, accuracy by class. Flat JSON that `dvc metrics show` reads.

    Example: fedsynth evaluate model-0003.safetensors public/test.parquet -o metrics/round-0003.json

    Synthetic images: do they repeat the real ones? Distances to the nearest, beside those of held-out images. Private.

    Example: fedsynth evaluate outbox/synthetic.parquet private/data.parquet -o private/memorisation.json

    Runs side by side: accuracy, rounds to a target, what was sent; runs that differ by the seed alone are averaged.

    Example: fedsynth evaluate runs/fedavg runs/fedssyn --target 0.9 -o comparison.json --picture comparison.png

    How different the clients of a simulated run are, at one server model. Private.

    Example: fedsynth evaluate runs/fedssyn --heterogeneity -o runs/fedssyn/simulation/heterogeneity.json

    How long its updates are, and what a clip leaves of them. Private.

    Example: fedsynth evaluate runs/fedavg --clipping 0.2 -o runs/fedavg/simulation/clipping.json

    How much better the server's model is on training data than on test data. Private.

    Example: fedsynth evaluate runs/fedavg --gap -o runs/fedavg/simulation/gap.json

    How sharp the minimum is that a model lies in.

    Example: fedsynth evaluate model-0003.safetensors public/test.parquet --surface surface.png -o sharpness.json
    """
    form = _flagged(
        {_CLIENTS: heterogeneity, _CLIPPING: clipping is not None, _GAP: gap, _SURFACE: surface is not None}
    )
    form = form or _form(subject)
    given: dict[str, Any] = {
        "curve": curve, "picture": picture, "confusion": confusion, "batch_size": batch_size, "held_out": held_out,
        "pairs": pairs, "target": target, "csv": csv, "name": name, "round": round, "share": share,
        "clipping": clipping, "surface": surface, "span": span, "points": points, "seed": seed,
        "sharpness_rho": sharpness_rho, "device": None if device == "auto" else device,
    }  # fmt: skip
    given = {option: value for option, value in given.items() if value not in (None, [])}
    _check_options(form, given, subject[0])
    output = Output(as_json=json, quiet=quiet)
    _CALLS[form](subject, out, {**given, "force": force}, output)


def _flagged(forms: dict[str, bool]) -> str | None:
    """The form that a flag asks for, if one does."""
    asked = [form for form, wanted in forms.items() if wanted]
    if len(asked) > 1:
        raise typer.BadParameter(f"`evaluate {asked[0]}` and `evaluate {asked[1]}` are two measurements: ask for one.")
    return asked[0] if asked else None


def _form(subject: list[Path]) -> str:
    """By what the first argument is: a folder, a Parquet file, or else a model."""
    first, *others = subject
    missing = not first.exists() and (not others or any(other.is_dir() for other in others))
    if first.is_dir() or missing:  # among folders, or alone, a missing one was meant to be a run
        return _RUNS
    try:
        with first.open("rb") as handle:
            is_dataset = handle.read(4) == b"PAR1"
    except OSError:  # the stage will say what is wrong with it
        is_dataset = first.suffix == ".parquet"
    return _SYNTHETIC if is_dataset else _MODEL


def _check_options(form: str, given: dict[str, Any], first: Path) -> None:
    from artifacts.errors import UsageError

    why = {_MODEL: f"{first} is neither a folder nor a Parquet file", _SYNTHETIC: f"{first} is a Parquet file"}
    for option in given:
        if option not in _OPTIONS[form]:
            forms = " or ".join(f"`evaluate {other}`" for other, own in _OPTIONS.items() if option in own)
            flag = "--" + option.replace("_", "-")
            because = f", as {why[form]}" if form in why else ""
            raise UsageError(f"{flag} goes with {forms}; this is `evaluate {form}`{because}.")


def _model(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate import evaluate as stage

    if "picture" in options and "curve" not in options:
        raise typer.BadParameter("--picture needs --curve, whose rows it draws.")
    model, data = _two(subject, _MODEL)
    with output.progress("evaluate") as report:
        summary = stage(model, data, out, **options, report=report)
    output.result(summary)


def _synthetic(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_memorisation import evaluate_memorisation as stage

    synthetic, *real = subject
    if not real:
        raise typer.BadParameter(f"`evaluate {_SYNTHETIC}` also takes the real images that the generator saw.")
    with output.progress("evaluate") as report:
        summary = stage(synthetic, real, out, **options, report=report)
    output.result(summary, lambda console: show.memorisation(console, summary))


def _runs(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_runs import evaluate_runs as stage

    summary = stage(subject, out, names=options.pop("name", ()), **options)
    output.result(summary, lambda console: show.runs(console, summary))


def _clients(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_heterogeneity import SHARES
    from stages.evaluate_heterogeneity import evaluate_heterogeneity as stage

    run = _one(subject, _CLIENTS)
    rounds, shares = options.pop("round", ()), options.pop("share", SHARES)
    with output.progress("evaluate") as report:
        summary = stage(run, out, rounds=rounds, shares=shares, **options, report=report)
    output.result(summary, lambda console: show.heterogeneity(console, summary))


def _clipping(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_updates import evaluate_clipping as stage

    run = _one(subject, _CLIPPING)
    clip_norm, rounds = options.pop("clipping"), options.pop("round", ())
    with output.progress("evaluate") as report:
        summary = stage(run, out, clip_norm=clip_norm, rounds=rounds, **options, report=report)
    output.result(summary, lambda console: show.clipping(console, summary))


def _gap(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_gap import evaluate_gap as stage

    run = _one(subject, _GAP)
    with output.progress("evaluate") as report:
        summary = stage(run, out, rounds=options.pop("round", ()), **options, report=report)
    output.result(summary, lambda console: show.gap(console, summary))


def _surface(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_surface import evaluate_surface as stage

    model, data = _two(subject, _SURFACE)
    with output.progress("evaluate") as report:
        summary = stage(model, data, out, **options, report=report)
    output.result(summary, lambda console: show.surface(console, summary))


def _one(subject: list[Path], form: str) -> Path:
    if len(subject) != 1:
        raise typer.BadParameter(f"`evaluate {form}` takes one run folder, found {len(subject)} arguments.")
    return subject[0]


def _two(subject: list[Path], form: str) -> tuple[Path, Path]:
    if len(subject) != 2:
        raise typer.BadParameter(f"`evaluate {form}` takes one model and one dataset, found {len(subject)} files.")
    return subject[0], subject[1]


_CALLS = {
    _MODEL: _model, _SYNTHETIC: _synthetic, _RUNS: _runs, _CLIENTS: _clients, _CLIPPING: _clipping, _GAP: _gap,
    _SURFACE: _surface,
}  # fmt: skip
