"""What people see: progress bars on stderr, results on stdout, JSON where a pipeline asks for it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsynth_cli.naming import shortened, shown, shown_json
from fedsynth_cli.table_layout import GAP, laid_out
from stages.execution.progress import Report, silent
from stages.words import human_bytes as human_bytes
from stages.words import human_time

if TYPE_CHECKING:
    from rich.console import Console

    from stages.evaluate.measurement import Table


_UNLIMITED = 1_000_000
_MINUTE = 60.0
_LEAST_VALUE = 20


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
            # The file that there is, not the one that there will be.
            named = held if isinstance(summary["out"], list) else held[0]
            summary = {**summary, "out": named, "held": held}
            self.warn(f"held, not sent: {', '.join(held)}. Let it leave with fedsynth release.")
        if self._json:
            sys.stdout.write(shown_json(json.dumps(summary, ensure_ascii=False)) + "\n")
            return
        if self._quiet:
            return
        console = stdout_console()
        if show is not None:
            show(console)
            return
        facts(console, [(name.replace("_", " "), _worded(value)) for name, value in summary.items()])

    def warn(self, text: str) -> None:
        """What the user must know although the work was done; on stderr, `--quiet` notwithstanding."""
        complain(f"warning: {text}")

    def note(self, text: str) -> None:
        """What the user may want to know before the work is done; on stderr, unless `--quiet`."""
        if not self._quiet:
            complain(text)

    @contextlib.contextmanager
    def progress(self, description: str, *, says_time: bool = False) -> Iterator[Report]:
        """A bar on stderr while the block runs; where stderr is no terminal, one line a minute.

        `says_time`: what is reported says itself how long it will take, since its steps are not alike.
        """
        if self._quiet:
            yield silent
            return
        if not sys.stderr.isatty():
            yield Minutes(description, says_time=says_time)
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
        from rich.text import Text

        class Count(MofNCompleteColumn):
            def render(self, task: Task) -> Text:
                return Text() if task.total is None else super().render(task)

        columns = [
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(),
            Count(),
            *([] if says_time else [TimeRemainingColumn(compact=True, elapsed_when_finished=True)]),
            TextColumn("{task.fields[text]}", markup=False),
        ]
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(shown(description), total=None, text="")
            yield lambda done, total, text: bar.update(task, completed=done, total=total, text=shown(text))


class Minutes:
    """Progress for a log file: a line a minute, nothing for what takes less."""

    def __init__(self, description: str, *, says_time: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._description, self._says_time, self._clock = description, says_time, clock
        self._began = self._last = clock()

    def __call__(self, done: int, total: int, text: str) -> None:
        now = self._clock()
        if now - self._last < _MINUTE or done >= total:
            return
        self._last = now
        left = "" if self._says_time or not done else f"{human_time((now - self._began) * (total - done) / done)} left"
        complain(", ".join(filter(None, (f"{self._description}: {done:,}/{total:,}", text, left))))


def _worded(value: Any) -> str:
    """A value as a person writes it: `batched: fc1, fc2`."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_worded(one)}" for name, one in value.items())
    return ", ".join(map(_worded, value)) if isinstance(value, list) else f"{value}"


def _held(summary: Mapping[str, Any]) -> list[str]:
    """Where the outputs wait, if they went into `pending/` instead of their outbox."""
    from artifacts.ledgers.gate import destination

    out = summary.get("out", [])
    named = [Path(name) for name in (out if isinstance(out, list) else [out])]
    waits = [destination(path) for path in named if not path.exists()]
    return [str(path) for path in waits if path not in named and path.exists()]


def complain(text: str) -> None:
    """A line on stderr."""
    sys.stderr.write(f"{shown(shortened(text))}\n")
    sys.stderr.flush()


def stdout_console() -> Console:
    """What is printed on it is text and nothing else: no markup, and no letters that a terminal obeys."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(Text(shown(one)) if isinstance(one, str) else one for one in objects), **options)

    # A file or another program has no columns to fit into.
    return Plain() if sys.stdout.isatty() or "COLUMNS" in os.environ else Plain(width=_UNLIMITED, soft_wrap=True)


def facts(console: Console, pairs: Sequence[tuple[str, Any]]) -> None:
    """Names and values, a line each; on a terminal a long value goes on below itself, its words and paths whole."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        lines = textwrap.wrap(
            shown(str(value)),
            max(console.width - width - GAP, _LEAST_VALUE),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for number, line in enumerate(lines or [""]):
            console.print(f"{name if number == 0 else '':<{width}}{' ' * GAP}{line}".rstrip(), soft_wrap=True)


def table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table that fits the terminal: numbers to the right, long texts wrapped between words, a list line by line."""
    numeric = [all(isinstance(row[i], int | float) for row in rows) and bool(rows) for i in range(len(columns))]
    head, *body = laid_out(
        [[shown(name) for name in columns], *([_cell(v) for v in row] for row in rows)], console.width
    )
    widths = [max(len(line) for row in (head, *body) for line in row[i]) for i in range(len(columns))]
    for number, row in enumerate((head, *body)):
        for line in range(max(map(len, row))):
            cells = [
                (cell[line] if line < len(cell) else "").rjust(width)
                if right
                else (cell[line] if line < len(cell) else "").ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            ]
            console.print((" " * GAP).join(cells).rstrip(), style="bold" if number == 0 else None, soft_wrap=True)


def show(console: Console, parts: Iterable[Table | str]) -> None:
    """Tables and sentences, one below the other."""
    for part in parts:
        if isinstance(part, str):
            console.print(part)
        else:
            table(console, part.columns, part.rows)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(shown(str(line)) for line in value)
    return f"{value:,}" if isinstance(value, int) else shown(str(value))
