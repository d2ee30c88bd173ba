"""Worker processes that live for a whole run, so that torch is imported and data decoded once.

Each has one torch thread. They ignore Ctrl-C (the parent decides) and end when the parent does, however it ends.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from artifacts.errors import FedsynthError, InputError, UsageError
from stages.execution.devices import work_on
from stages.plugins import load_same, sources

Task = tuple[Callable[..., Any], tuple[Any, ...]]


class Worker:
    """One process and the pipe to it. It does one task at a time."""

    def __init__(self, number: int, device: str | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, sources(), device), name=f"fedsynth-worker-{number}", daemon=True
        )
        self.process.start()
        theirs.close()
        self.task: Any = None
        self.known: set[str] = set()

    def start(self, label: Any, task: Task) -> None:
        self.task = label
        self.connection.send(task)

    def finish(self) -> Any:
        """The task's result; its error is raised here."""
        try:
            succeeded, value = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            raise InputError(
                f"a worker process died (exit code {self.process.exitcode}); was memory short? Run again to go on."
            ) from None
        self.task = None
        if not succeeded:
            raise value
        return value


class Workers:
    """A pool without a queue: the caller decides which worker does what. Processes start when they are needed.

    They take the devices in turn.
    """

    def __init__(self, count: int, devices: Sequence[str] = ()) -> None:
        if count < 1:
            raise UsageError(f"--workers must be at least 1, found {count}.")
        self.count, self._devices = count, devices
        self.all: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.all:
            worker.connection.close()
            # Whatever a worker was writing is whole or absent: it may be stopped at any moment.
            worker.process.terminate()
        for worker in self.all:
            worker.process.join()

    def idle(self, most: int | None = None) -> list[Worker]:
        """Those without a task; for fewer than `count` tasks no more than `most` processes are started."""
        wanted = self.count if most is None else min(self.count, most)
        while len(self.all) < wanted:
            number = len(self.all)
            self.all.append(Worker(number, self._devices[number % len(self._devices)] if self._devices else None))
        return [worker for worker in self.all if worker.task is None]

    def spread(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        """Do all tasks, and give each one's number and result when it is done. This process does its part of them."""
        left = deque(enumerate(tasks))
        while left or any(worker.task is not None for worker in self.all):
            for worker in self.idle(len(left)) if left else ():
                worker.start(*left.popleft())
                if not left:
                    break
            if left:
                number, (function, arguments) = left.popleft()
                yield number, function(*arguments)
                ready = [worker for worker in self.all if worker.task is not None and worker.connection.poll()]
            else:
                ready = [self.next_finished()]
            for worker in ready:
                number = worker.task
                yield number, worker.finish()

    def next_finished(self) -> Worker:
        busy: Sequence[Connection] = [worker.connection for worker in self.all if worker.task is not None]
        ready = wait(busy)[0]
        return next(worker for worker in self.all if worker.connection is ready)


def _serve(connection: Connection, plugins: Mapping[str, str], device: str | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work_on(device)
    failed: FedsynthError | None = None
    try:
        load_same(plugins)
    except FedsynthError as error:  # reported with the first task
        failed = error
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        try:
            if failed is not None:
                raise failed
            answer = (True, function(*arguments))
        except (FedsynthError, OSError) as error:
            answer = (False, error)
        except Exception as error:
            answer = (False, RuntimeError(f"{type(error).__name__}: {error}"))
            error.__traceback__ = None
        try:
            connection.send(answer)
        except BrokenPipeError:
            return
