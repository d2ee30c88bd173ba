"""What the server works with: a channel to its clients, and a memory that may outlive its process."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from stages.federate.parcels import Reply, Task


class Channel(Protocol):
    """What carries tasks and answers. A client that is not there now may come, or come back."""

    stays: bool
    """Whether the process stays until the clients have answered. Else it ends, and is called again."""

    def present(self) -> set[str]:
        """The clients that can be asked now."""

    def ask(self, task: Task) -> str:
        """Send a task; what names it when its answer is collected."""

    def answers(self, asked: Iterable[str]) -> list[tuple[str, Reply | None]]:
        """The answers that have come, each once; None where the client was lost on the way."""

    def pause(self) -> None:
        """Give the clients some time; or raise `WaitsForOthers`, if the process is to end meanwhile."""

    def close(self) -> None:
        """What was asked last needs no answer: the run is at its end. Only where the process does not stay."""


class WaitsForOthers(Exception):
    """Nothing can be done before others have done something."""


@dataclass
class Memory:
    """What a server knows beside its files. By client: since when which file is waited for; which round went on without
    it, and why.
    """

    since: dict[str, tuple[str, float]] = field(default_factory=dict)
    dropped: dict[str, tuple[int, str]] = field(default_factory=dict)

    def waited(self, client: str, target: str) -> float:
        """Seconds, by the clock: an answer may take longer than a process lives. A clock that was ahead when the wait
        began, and was set right, makes it begin anew: else it would last as much longer as the clock was wrong.
        """
        now = time.time()
        known, since = self.since.get(client, ("", 0.0))
        if known != target or since > now:
            since = now
            self.since[client] = (target, since)
        return now - since
