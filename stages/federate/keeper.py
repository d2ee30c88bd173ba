"""Keeps a worker: started with its service, started anew when it ends, ended with it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from artifacts.errors import InputError
from artifacts.places import RunFolder
from artifacts.writing.atomic import explained, make_folder
from stages.federate import flower
from stages.federate.child import Child, Echo
from stages.federate.party import Party

_LOOK = 0.2
_LONGEST_PAUSE = 30.0
_SECONDS_TO_START = 120.0
_SHARE_OF_MACHINE = 0.75


@dataclass(frozen=True, kw_only=True)
class WorkerBounds:
    """Of one task. `seconds`: None is twice what a round waits. `memory`, in bytes: None is three quarters of all."""

    seconds: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class _Order:
    """What the worker is told."""

    home: str
    drop: str
    client: str | None
    shared: bool
    socket: str
    longest: float | None
    memory: int


@contextlib.contextmanager
def kept(home: Path, client: str | None, *, drop: str | None, bounds: WorkerBounds, echo: Echo) -> Iterator[Keeper]:
    """The worker, for the length of the block. `drop`: a folder or URL that all parties reach."""
    run = RunFolder(home)
    place = run.server if client is None else run.client(client)
    own = place.private / "parcels" / "carried"
    with explained(own):
        make_folder(own, 0o700)
    if client is not None:
        # What it refuses at each task it refuses now, in words that its person reads: another's home, no roster.
        Party.at(home, drop or str(own), client)
    socket = flower.folder(place).absolute() / "worker.sock"
    order = _Order(
        str(home.absolute()), drop or str(own.absolute()), client, drop is not None, str(socket),
        bounds.seconds, bounds.memory or _most_memory(),
    )  # fmt: skip
    command = [sys.executable, "-P", "-m", "stages.federate.worker", json.dumps(asdict(order))]
    keeper = Keeper(socket, command, flower.plain_environment(), echo)
    try:
        yield keeper
    finally:
        keeper.stop()
        socket.unlink(missing_ok=True)


class Keeper:
    """Starts it at once, and does not wait."""

    def __init__(self, socket: Path, command: list[str], environment: Mapping[str, str], echo: Echo) -> None:
        self.socket = socket
        self._command, self._environment, self._echo = command, environment, echo
        self._ended = threading.Event()
        self._child = self._start()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def wait_until_up(self) -> None:
        first, until = self._child, time.monotonic() + _SECONDS_TO_START
        while first.said("^ready$") is None:
            if not first.running() or time.monotonic() >= until:
                raise InputError("the worker did not start; what it printed says why.")
            time.sleep(_LOOK)

    def _start(self) -> Child:
        return Child(self._command, self._environment, self._echo)

    def _watch(self) -> None:
        pause = 0.0
        while not self._ended.wait(_LOOK):
            if self._child.running():
                continue
            code = self._child.wait()
            why = f"by signal {-code}" if code < 0 else f"with code {code}"
            self._echo(f"fedsynth: the worker ended {why}; it is started anew")
            pause = 0.0 if code == 0 else min(_LONGEST_PAUSE, 2 * pause + 0.5)
            if self._ended.wait(pause):
                return
            self._child = self._start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._child.stop()


def _most_memory() -> int:
    return int(_SHARE_OF_MACHINE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
