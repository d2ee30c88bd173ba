"""`fedsynth evaluate`: four measurements; what the first argument is decides which."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.console import Output, human_bytes, table
from fedsynth_cli.options import Device, Force, Json, Out, Quiet

if TYPE_CHECKING:
    from rich.console import Console

_MODEL, _SYNTHETIC, _RUNS, _CLIENTS = "MODEL DATA", "SYNTHETIC REAL…", "RUN…", "RUN --heterogeneity"
# Which options belong to which form; those that belong to all stand in none.
_OPTIONS = {
    _MODEL: ("curve", "picture", "confusion", "batch_size", "device"),
    _SYNTHETIC: ("held_out", "pairs"),
    _RUNS: ("target", "csv", "picture", "name"),
    _CLIENTS: ("round", "share", "picture", "device"),
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
        typer.Option(help="PNG: the curve so far (with --curve), the runs, or ζ² and σ².", show_default=False),
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
        typer.Option(min=0, help="Server model of this round; may be repeated (default: the last).",
                     show_default=False, rich_help_panel=_CLIENTS),
    ] = None,
    share: Annotated[
        list[float] | None,
        typer.Option(help="p, the share of shuffled data; may be repeated (default 0, 0.25, 0.5, 0.75, 1).",
                     show_default=False, rich_help_panel=_CLIENTS),
    ] = None,
    device: Device = "auto",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Measure a model, synthetic images, whole runs, or how different a run's clients are.

    A model on a dataset: loss, accuracy, accuracy by class. Flat JSON that `dvc metrics show` reads.

    Example: fedsynth evaluate model-0003.safetensors public/test.parquet -o metrics/round-0003.json

    Synthetic images: do they repeat the real ones? Distances to the nearest, beside those of held-out images. Private.

    Example: fedsynth evaluate outbox/synthetic.parquet private/data.parquet -o private/memorisation.json

    Runs side by side: accuracy, rounds to a target, what was sent; runs that differ by the seed alone are averaged.

    Example: fedsynth evaluate runs/fedavg runs/fedssyn --target 0.9 -o comparison.json --picture comparison.png

    How different the clients of a simulated run are, at one server model. Private.

    Example: fedsynth evaluate runs/fedssyn --heterogeneity -o runs/fedssyn/simulation/heterogeneity.json
    """
    form = _CLIENTS if heterogeneity else _form(subject)
    given: dict[str, Any] = {
        "curve": curve, "picture": picture, "confusion": confusion, "batch_size": batch_size, "held_out": held_out,
        "pairs": pairs, "target": target, "csv": csv, "name": name, "round": round, "share": share,
        "device": None if device == "auto" else device,
    }  # fmt: skip
    given = {option: value for option, value in given.items() if value not in (None, [])}
    _check_options(form, given, subject[0])
    output = Output(as_json=json, quiet=quiet)
    _CALLS[form](subject, out, {**given, "force": force}, output)


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
    if len(subject) != 2:
        raise typer.BadParameter(f"`evaluate {_MODEL}` takes one model and one dataset, found {len(subject)} files.")
    model, data = subject
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
    output.result(summary, lambda console: _show_memorisation(console, summary))


def _runs(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_runs import evaluate_runs as stage

    summary = stage(subject, out, names=options.pop("name", ()), **options)
    output.result(summary, lambda console: _show_runs(console, summary))


def _clients(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_heterogeneity import SHARES
    from stages.evaluate_heterogeneity import evaluate_heterogeneity as stage

    if len(subject) != 1:
        raise typer.BadParameter(f"`evaluate {_CLIENTS}` takes one run folder, found {len(subject)} arguments.")
    rounds, shares = options.pop("round", ()), options.pop("share", SHARES)
    with output.progress("evaluate") as report:
        summary = stage(subject[0], out, rounds=rounds, shares=shares, **options, report=report)
    output.result(summary, lambda console: _show_heterogeneity(console, summary))


_CALLS = {_MODEL: _model, _SYNTHETIC: _synthetic, _RUNS: _runs, _CLIENTS: _clients}


def _show_memorisation(console: Console, summary: dict[str, Any]) -> None:
    rows = [
        [words, *(f"{summary[f'{of}_{key}']:.4f}" for of in ("synthetic", "reference"))]
        for key, words in {"min": "smallest", "p01": "1%", "p05": "5%", "median": "median"}.items()
    ]
    rows.append(["exact copies", str(summary["copies"]), str(summary["reference_copies"])])
    reference = "held-out" if summary["reference"] == "held-out" else "real, leaving one out"
    table(console, ["distance to the nearest real image", "synthetic", reference], rows)
    lines = [
        f"A synthetic image is nearer than a reference image of its class in {summary['share_nearer']:.1%} of the "
        "pairs (50% where they are alike).",
        summary["note"],
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _show_runs(console: Console, summary: dict[str, Any]) -> None:
    target = summary["target"]
    suffix = "_to_target" if target is not None else ""
    rows = []
    for group in summary["groups"]:
        spread = f" ({group['accuracy_min']:.1%}–{group['accuracy_max']:.1%})" if group["runs"] > 1 else ""
        rounds = [] if target is None else [_rounds(group)]
        numbers, size = group[f"parameters{suffix}"], group[f"bytes{suffix}"]
        sent = ["–", "–"] if size is None else [f"{numbers:,}", human_bytes(size)]
        rows.append([group["label"], group["runs"], f"{group['accuracy']:.1%}{spread}", *rounds, *sent])
    columns = [] if target is None else [f"to {100 * target:g}%"]
    table(console, ["run", "seeds", "accuracy", *columns, "numbers", "sent"], rows)
    until = f" until {100 * target:g}% was reached" if target is not None else ""
    console.print(
        f"numbers: what one client sends and gets{until} (2·M_s + 2·R·M_c); sent: all files, up and down.",
        markup=False,
        highlight=False,
    )
    for run in summary["runs"]:
        if run["rounds"] < run["planned_rounds"]:
            text = f"{run['label']} is not finished: {run['rounds']} of {run['planned_rounds']} rounds."
            console.print(text, markup=False, highlight=False)


def _rounds(group: dict[str, Any]) -> str:
    """`3`, `3.3 (3–4)`, `> 10`, or `3–> 10` where some seeds never got there."""
    known = [rounds for rounds in group["rounds_to_target_all"] if rounds is not None]
    never = f"> {group['rounds']}"
    if len(known) < group["runs"]:
        return f"{min(known)}–{never}" if known else never
    mean = f"{group['rounds_to_target']:.1f}".removesuffix(".0")
    return f"{mean} ({min(known)}–{max(known)})" if min(known) < max(known) else mean


def _show_heterogeneity(console: Console, summary: dict[str, Any]) -> None:
    for number, values in summary["rounds"].items():
        console.print(
            f"Round {number}: ζ² = {values['dissimilarity']:.4g}, σ² = {values['noise']:.4g} "
            f"(largest {values['noise_largest']:.4g}), δ² = {values['shift']:.4g}; shuffled data: "
            f"{summary['shuffled']}, their σ² = {values['shuffled_noise']:.4g}.",
            markup=False,
            highlight=False,
        )
        rows = [_share_row(f"{row['share']:g}", row) for row in values["shares"].values()]
        if "dealt" in values:
            rows.append(_share_row(f"{values['dealt']['share']:.3f}, as dealt", values["dealt"]))
        table(console, ["p", "ζ̂²", "bound", "σ̂²", "bound", "with the largest σ²"], rows)


def _share_row(label: str, row: dict[str, float]) -> list[str]:
    keys = ("dissimilarity", "dissimilarity_bound", "noise", "noise_bound", "noise_bound_largest")
    return [label, *(f"{row[key]:.4g}" for key in keys)]
