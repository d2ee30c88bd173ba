"""The measurements of `evaluate`: which options each has, and how it calls its stage and shows what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from fedsynth_cli import evaluation_tables as show
from fedsynth_cli.console import Output

MODEL, SYNTHETIC, RUNS, CLIENTS = "MODEL DATA", "SYNTHETIC REAL…", "RUN…", "RUN --heterogeneity"
CLIPPING, GAP, SURFACE = "RUN --clipping C", "RUN --gap", "MODEL DATA --surface PNG"
SURROGATES, MATCHING = "RUN --surrogates", "MODEL DATA --matching SURROGATE"
ATTACK = "MODEL FILE… --attack inverting-gradients"
# Which options belong to which form; those that belong to all stand in none.
OPTIONS = {
    MODEL: ("curve", "picture", "confusion", "batch_size", "device"),
    SYNTHETIC: ("held_out", "pairs"),
    RUNS: ("target", "delta", "against_bytes", "baseline", "csv", "picture", "name"),
    CLIENTS: ("round", "share", "picture", "device"),
    CLIPPING: ("clipping", "round", "picture"),
    GAP: ("round", "batch_size", "device"),
    SURFACE: ("surface", "span", "points", "seed", "sharpness_rho", "batch_size", "device"),
    SURROGATES: ("round", "picture", "sheet"),
    MATCHING: ("matching", "matching_steps", "learning_rate", "csv", "picture", "batch_size", "device"),
    ATTACK: (
        "attack", "against", "images", "labels", "attack_steps", "total_variation", "restarts", "held_out", "seed",
        "picture", "device",
    ),
}  # fmt: skip


def _model(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate import evaluate as stage

    if "picture" in options and "curve" not in options:
        raise typer.BadParameter("--picture needs --curve, whose rows it draws.")
    model, data = _two(subject, MODEL)
    with output.progress("evaluate") as report:
        summary = stage(model, data, out, **options, report=report)
    output.result(summary)


def _synthetic(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_memorisation import evaluate_memorisation as stage

    synthetic, *real = subject
    if not real:
        raise typer.BadParameter(f"`evaluate {SYNTHETIC}` also takes the real images that the generator saw.")
    with output.progress("evaluate") as report:
        summary = stage(synthetic, real, out, **options, report=report)
    output.result(summary, lambda console: show.memorisation(console, summary))


def _runs(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_runs import evaluate_runs as stage

    if "against_bytes" in options and "picture" not in options:
        raise typer.BadParameter("--against-bytes needs --picture, which it adds to.")
    summary = stage(subject, out, names=options.pop("name", ()), **options)
    output.result(summary, lambda console: show.runs(console, summary))


def _clients(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_heterogeneity import SHARES
    from stages.evaluate_heterogeneity import evaluate_heterogeneity as stage

    run = _one(subject, CLIENTS)
    rounds, shares = options.pop("round", ()), options.pop("share", SHARES)
    with output.progress("evaluate") as report:
        summary = stage(run, out, rounds=rounds, shares=shares, **options, report=report)
    output.result(summary, lambda console: show.heterogeneity(console, summary))


def _clipping(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_updates import evaluate_clipping as stage

    run = _one(subject, CLIPPING)
    clip_norm, rounds = options.pop("clipping"), options.pop("round", ())
    with output.progress("evaluate") as report:
        summary = stage(run, out, clip_norm=clip_norm, rounds=rounds, **options, report=report)
    output.result(summary, lambda console: show.clipping(console, summary))


def _gap(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_gap import evaluate_gap as stage

    run = _one(subject, GAP)
    with output.progress("evaluate") as report:
        summary = stage(run, out, rounds=options.pop("round", ()), **options, report=report)
    output.result(summary, lambda console: show.gap(console, summary))


def _surface(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_surface import evaluate_surface as stage

    model, data = _two(subject, SURFACE)
    with output.progress("evaluate") as report:
        summary = stage(model, data, out, **options, report=report)
    output.result(summary, lambda console: show.surface(console, summary))


def _surrogates(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_surrogates import evaluate_surrogates as stage

    run = _one(subject, SURROGATES)
    with output.progress("evaluate") as report:
        summary = stage(run, out, rounds=options.pop("round", ()), **options, report=report)
    output.result(summary, lambda console: show.surrogates(console, summary))


def _matching(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_matching import evaluate_matching as stage

    model, data = _two(subject, MATCHING)
    surrogate, rate = options.pop("matching"), options.pop("learning_rate", None)
    with output.progress("evaluate") as report:
        summary = stage(model, data, surrogate, out, learning_rate=rate, **options, report=report)
    output.result(summary, lambda console: show.matching(console, summary))


def _attack(subject: list[Path], out: Path, options: dict[str, Any], output: Output) -> None:
    from stages.evaluate_attack import evaluate_attack as stage

    model, *files = subject
    if not files:
        raise typer.BadParameter(f"`evaluate {ATTACK}` takes a model and updates, messages or proxies, found 1 file.")
    if "against" not in options:
        raise typer.BadParameter(f"`evaluate {ATTACK}` needs --against: the images that the attack is measured by.")
    del options["attack"]  # there is one
    with output.progress("evaluate") as report:
        summary = stage(model, files, options.pop("against"), out, **options, report=report)
    output.result(summary, lambda console: show.attack(console, summary))


def _one(subject: list[Path], form: str) -> Path:
    if len(subject) != 1:
        raise typer.BadParameter(f"`evaluate {form}` takes one run folder, found {len(subject)} arguments.")
    return subject[0]


def _two(subject: list[Path], form: str) -> tuple[Path, Path]:
    if len(subject) != 2:
        raise typer.BadParameter(f"`evaluate {form}` takes one model and one dataset, found {len(subject)} files.")
    return subject[0], subject[1]


CALLS = {
    MODEL: _model, SYNTHETIC: _synthetic, RUNS: _runs, CLIENTS: _clients, CLIPPING: _clipping, GAP: _gap,
    SURFACE: _surface, SURROGATES: _surrogates, MATCHING: _matching, ATTACK: _attack,
}  # fmt: skip
