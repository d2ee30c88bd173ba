"""`fedsynth batch`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import Annotated, TextIO

import click
import typer

from artifacts import limits
from artifacts.errors import UsageError
from fedsynth_cli.console import Output
from fedsynth_cli.options import Json, Quiet, Workers

Chain = list[list[str]]


def batch(
    lines: Annotated[
        typer.FileText | None, typer.Argument(metavar="[FILE]", help="A file with command lines; stdin if not given.")
    ] = None,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run many fedsynth commands in one invocation: one line each, or several in a row joined by &&.

    Lines run side by side, so that one start of torch serves many clients. If a line fails, the others still
    run; the exit code is that of the first failure.

    Example: printf '%s\\n' 'keygen -o a.key' 'keygen -o b.key' | fedsynth batch --workers 2
    """
    from stages.execution.workers import Workers as Pool

    chains = [_parse(number, line) for number, line in enumerate(_lines(lines or sys.stdin), start=1) if _says(line)]
    output = Output(as_json=json, quiet=quiet)
    codes: dict[int, int] = {}
    waiting = list(enumerate(chains))
    if chains:
        with output.progress("batch") as report, Pool(min(workers or 1, len(chains))) as pool:
            while len(codes) < len(chains):
                for worker in pool.idle():
                    if waiting:
                        number, chain = waiting.pop(0)
                        worker.start(number, (_run_chain, (chain,)))
                worker = pool.next_finished()
                number = worker.task
                codes[number] = worker.finish()
                report(len(codes), len(chains), "")
    failed = [number for number in range(len(chains)) if codes[number]]
    output.result({"lines": len(chains), "failed": len(failed)})
    if failed:
        raise SystemExit(codes[failed[0]])


def _lines(source: TextIO) -> Iterator[str]:
    """A line at a time, each with an end in sight."""
    while line := source.readline(limits.TEXT.most + 1):
        if len(line) > limits.TEXT.most:
            raise UsageError(f"a line of it is longer than {limits.TEXT.most:,} characters. Give one command a line.")
        yield line


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _parse(number: int, line: str) -> Chain:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise click.UsageError(f"line {number}: {error}.") from error
    chain: Chain = [[]]
    for word in words:
        if word == "&&":
            chain.append([])
        else:
            chain[-1].append(word)
    if not all(chain):
        raise click.UsageError(f"line {number}: there is nothing on one side of &&.")
    return chain


def _run_chain(chain: Chain) -> int:
    """In a worker: the commands one after the other, until one fails."""
    from fedsynth_cli.app import run

    for command in chain:
        code = run(command)
        if code:
            return code
    return 0
