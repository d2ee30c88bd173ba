"""What people see: progress bars on stderr, results on stdout, JSON where a pipeline asks for it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from fedsynth_cli.naming import renamed, stdout
from stages.progress import Report, silent
from stages.words import human_bytes as human_bytes

if TYPE_CHECKING:
    from rich.console import Console


class Output:
    """One command's output, by its `--json` and `--quiet`."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self._json, self._quiet = as_json, quiet

    def result(self, summary: Mapping[str, Any], show: Callable[[Console], None] | None = None) -> None:
        """Print the summary: as JSON, by `show`, or as a list of names and values.

        If what was written waits in `pending/`, by a policy, that is said as well.
        """
        held = _held(summary)
        if held:
            summary = {**summary, "held": held}
            self.warn(f"held, not sent: {', '.join(held)}. Let it leave with fedsynth release.")
        if self._json:
            stdout().write(json.dumps(summary, ensure_ascii=False) + "\n")
            return
        if self._quiet:
            return
        console = stdout_console()
        if show is not None:
            show(console)
            return
        width = max(len(name) for name in summary)
        for name, value in summary.items():
            text = ", ".join(map(str, value)) if isinstance(value, list) else f"{value}"
            console.print(f"{name.replace('_', ' '):<{width}}  {text}", markup=False, highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """What the user must know although the work was done; on stderr, `--quiet` notwithstanding."""
        sys.stderr.write(f"warning: {renamed(text)}\n")

    @contextlib.contextmanager
    def progress(self, description: str) -> Iterator[Report]:
        """A bar on stderr while the block runs; nothing where stderr is no terminal."""
        if self._quiet or not sys.stderr.isatty():
            yield silent
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = [
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[text]}"),
        ]
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(description, total=None, text="")
            yield lambda done, total, text: bar.update(task, completed=done, total=total, text=text)


def _held(summary: Mapping[str, Any]) -> list[str]:
    """Where the outputs wait, if they went into `pending/` instead of their outbox."""
    from artifacts.gate import destination

    out = summary.get("out", [])
    named = [Path(name) for name in (out if isinstance(out, list) else [out])]
    waits = [destination(path) for path in named if not path.exists()]
    return [str(path) for path in waits if path not in named and path.exists()]


def stdout_console() -> Console:
    from rich.console import Console

    return Console(file=cast(IO[str], stdout()))


def table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "") -> None:
    """A table that fits the terminal: numbers to the right, long texts folded."""
    from rich.table import Table

    numeric = [all(isinstance(row[i], int | float) for row in rows) and bool(rows) for i in range(len(columns))]
    shown = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for name, right in zip(columns, numeric, strict=True):
        shown.add_column(name, justify="right" if right else "left", overflow="fold", header_style="bold")
    for row in rows:
        shown.add_row(*(f"{cell:,}" if isinstance(cell, int) else renamed(str(cell)) for cell in row))
    console.print(shown)
