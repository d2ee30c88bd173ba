"""What a measurement of `evaluate` declares: the files it takes, its options, its function, and its table.

A declaration is the module of the same name in `stages/evaluate/params/`, and is found because it is there. Free of
torch and pyarrow, because `--help` reads all of them; the function is imported when it is called.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from artifacts.errors import UsageError
from stages.execution.dispatch import performer
from stages.execution.progress import Report, Summary

Subject = Literal["MODEL DATA", "SYNTHETIC REAL…", "RUN…", "RUN", "MODEL FILE…"]


@dataclass(frozen=True, kw_only=True)
class Option:
    """`--name`; `argument` is what the function calls it, where that differs. Absent means the function's default."""

    name: str
    type: type
    text: str
    argument: str = ""
    metavar: str | None = None
    least: int | None = None
    choices: tuple[str, ...] = ()
    repeated: bool = False
    shared: bool = False  # by several measurements: listed apart from those of any one
    written: bool = False  # a path that the function writes; all others are read
    why_local: str = ""  # why a path cannot be a URL
    selects: bool = False  # asks for its measurement, and is nothing that the function needs


PICTURE = Option(
    name="picture", type=Path, written=True, shared=True,
    text="PNG: the curve so far (with --curve), the runs, or what else was measured.",
)  # fmt: skip
CSV = Option(
    name="csv", type=Path, written=True, text="CSV: one row a run; --matching: one row a step and layer.", shared=True
)
ROUND = Option(
    name="round", type=int, argument="rounds", least=0, repeated=True, shared=True,
    text="Of a run: this round; may be repeated (default: the last; --clipping, --surrogates: all).",
)  # fmt: skip
BATCH_SIZE = Option(
    name="batch_size", type=int, least=1, text="Images at a time; changes speed, not results (default 500).",
    shared=True,
)  # fmt: skip
SEED = Option(name="seed", type=int, text="Of the random directions, or of the attack (default 0).", shared=True)
HELD_OUT = Option(
    name="held_out", type=Path, shared=True,
    text="Real images that nobody trained on; else the real ones, leaving one out, or, with --attack, none.",
)  # fmt: skip
DEVICE = Option(name="device", type=str, text="Where torch runs.", choices=("auto", "cpu", "cuda", "mps"), shared=True)


@dataclass(frozen=True)
class Table:
    """Rows for people, below the names of the columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


# What a person sees of a summary: tables, and sentences between them.
Shown = Iterator[Table | str]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measurement of `evaluate`.

    `chosen_by` names the option that asks for it; without one the kind of the first file does. `function` is
    `module:name`; it is called with the files of `subject`, then the output, then the options by name. `needs` are
    options without which it makes no sense, with the reason.
    """

    place: int
    subject: Subject
    function: str
    options: tuple[Option, ...]
    help: str
    chosen_by: str = ""
    form: str = ""
    needs: Mapping[str, str] | None = None
    reports: bool = True
    table: Callable[[Mapping[str, Any]], Shown] | None = None

    @property
    def words(self) -> str:
        """How it is called, such as `RUN --gap`."""
        return self.form or self.subject

    def measure(
        self, files: Sequence[Path], out: Path, given: Mapping[str, Any], force: bool, report: Report
    ) -> Summary:
        """Call its function with what was given."""
        arguments = self._arguments(list(files))
        for name, reason in (self.needs or {}).items():
            if name not in given:
                raise UsageError(f"`evaluate {self.words}` needs --{name.replace('_', '-')}: {reason}.")
        by_name = {option.name: option.argument or option.name for option in self.options if not option.selects}
        options: dict[str, Any] = {by_name[name]: value for name, value in given.items() if name in by_name}
        if self.reports:
            options["report"] = report
        return performer(self.function)(*arguments, out, force=force, **options)

    def _arguments(self, files: list[Path]) -> list[Any]:
        found = f"found {len(files)} argument{'s' if len(files) > 1 else ''}"
        match self.subject:
            case "RUN…":
                return [files]
            case "RUN":
                if len(files) != 1:
                    raise UsageError(f"`evaluate {self.words}` takes one run folder, {found}.")
                return files
            case "MODEL DATA":
                if len(files) != 2:
                    raise UsageError(f"`evaluate {self.words}` takes one model and one dataset, {found}.")
                return files
            case "SYNTHETIC REAL…":
                if len(files) < 2:
                    raise UsageError(f"`evaluate {self.words}` also takes the real images that the generator saw.")
            case "MODEL FILE…":
                if len(files) < 2:
                    raise UsageError(
                        f"`evaluate {self.words}` takes a model and updates, messages or proxies, {found}."
                    )
        return [files[0], files[1:]]


@cache
def measurements() -> tuple[Measurement, ...]:
    """All of them, in the order of the help."""
    package = importlib.import_module("stages.evaluate.params")
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    found = [importlib.import_module(f"{package.__name__}.{name}").MEASUREMENT for name in names]
    return tuple(sorted(found, key=lambda one: one.place))
