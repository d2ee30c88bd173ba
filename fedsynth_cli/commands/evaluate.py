"""`fedsynth evaluate`: one measurement, chosen by an option or by what the first argument is."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from artifacts.errors import UsageError
from fedsynth_cli.console import Output, show
from fedsynth_cli.options import Force, Json, MaybeOut, Quiet
from fedsynth_cli.urls import Use
from stages.evaluate.measurement import Measurement, Option, measurements


def _measurements_as_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give the command an option for each that a measurement declares, once, and the help of each."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())
    declared: dict[str, inspect.Parameter] = {}
    for one in measurements():
        for option in one.options:
            declared.setdefault(option.name, _parameter(option, one))
    first, last = [p for p in own if p.default is p.empty], [p for p in own if p.default is not p.empty]

    def evaluate(**values: Any) -> None:
        given = {name: values.pop(name) for name in declared}
        absent = (None, False)  # by identity: 0 is a value
        said = {n: v for n, v in given.items() if not any(v is one for one in absent) and v != []}
        function(**values, given=said)

    signature = [p for p in first if p.name != "given"] + list(declared.values()) + last
    evaluate.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in signature]
    )
    evaluate.__annotations__ = {p.name: p.annotation for p in signature}
    helps = [inspect.cleandoc(one.help) for one in measurements()]
    evaluate.__doc__ = "\n\n".join([inspect.cleandoc(function.__doc__ or ""), *helps])
    return evaluate


def _parameter(option: Option, owner: Measurement) -> inspect.Parameter:
    settings: dict[str, Any] = {"help": option.text, "show_default": False, "metavar": option.metavar}
    if not option.shared:
        settings["rich_help_panel"] = owner.words
    if option.least is not None:
        settings["min"] = option.least
    if option.choices:
        settings["click_type"] = click.Choice(list(option.choices))
    flag = "--" + option.name.replace("_", "-")
    default: Any = False if option.type is bool else None
    hint: Any = types.GenericAlias(list, option.type) if option.repeated else option.type
    use = Use(written=option.written, why_local=option.why_local)
    annotation: Any = Annotated[hint if option.type is bool else hint | None, use, typer.Option(flag, **settings)]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@_measurements_as_options
def evaluate(
    subject: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL DATA|FILE… | SYNTHETIC REAL… | RUN…",
            help="A model and a dataset; datasets; run folders; or a model and updates.",
        ),
    ],
    given: dict[str, Any],
    out: MaybeOut = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a model, synthetic images, whole runs, or what only a simulation can see of a run's clients."""
    chosen = _asked_for(given) or _fitting(subject)
    _check_options(chosen, given, subject[0])
    output = Output(as_json=json, quiet=quiet)
    with output.progress("evaluate") as report, _destination(out) as path:
        summary = chosen.measure(subject, path, given, force, report)
    if out is None:
        summary = {name: value for name, value in summary.items() if name != "out"}
    table = chosen.table
    output.result(summary, None if table is None else lambda console: show(console, table(summary)))


@contextlib.contextmanager
def _destination(out: Path | None) -> Iterator[Path]:
    """Where the result is written: a folder of our own that is gone afterwards, where it is only printed."""
    if out is not None:
        yield out
        return
    from artifacts.writing.scratch import cache_folder, scratch

    with scratch(cache_folder(), "evaluate") as folder:
        yield folder / "result.json"


def _asked_for(given: dict[str, Any]) -> Measurement | None:
    """The measurement whose own option was given, if one was."""
    asked = [one for one in measurements() if one.chosen_by in given]
    if len(asked) > 1:
        first, second = asked[:2]
        raise typer.BadParameter(
            f"`evaluate {first.words}` and `evaluate {second.words}` are two measurements: ask for one."
        )
    return asked[0] if asked else None


def _fitting(subject: list[Path]) -> Measurement:
    """By what the first argument is: a folder, a Parquet file, or else a model."""
    from artifacts.errors import InputError
    from artifacts.formats import Format, format_named, format_of

    by_subject = {one.subject: one for one in measurements() if not one.chosen_by}
    first, *others = subject
    missing = not first.exists() and (not others or any(other.is_dir() for other in others))
    if first.is_dir() or missing:  # among folders, or alone, a missing one was meant to be a run
        return by_subject["RUN…"]
    try:
        is_dataset = format_of(first) is Format.DATASET
    except InputError:  # the stage will say what is wrong with it
        is_dataset = format_named(first) is Format.DATASET
    return by_subject["SYNTHETIC REAL…" if is_dataset else "MODEL DATA"]


def _check_options(chosen: Measurement, given: dict[str, Any], first: Path) -> None:
    own = {option.name for option in chosen.options}
    for name in given:
        if name not in own:
            owners = [one.words for one in measurements() if name in {option.name for option in one.options}]
            because = {
                "MODEL DATA": f", as {first} is neither a folder nor a Parquet file",
                "SYNTHETIC REAL…": f", as {first} is a Parquet file",
            }.get(chosen.words, "")
            raise UsageError(
                f"--{name.replace('_', '-')} goes with {' or '.join(f'`evaluate {words}`' for words in owners)}; "
                f"this is `evaluate {chosen.words}`{because}."
            )
