"""What a whole run cost after each of its rounds, from the ledgers; the accounting itself is `account`'s."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from artifacts.errors import InputError
from stages.account import thinned
from stages.privacy.accountant import INFINITE, Epsilon
from stages.privacy.events import UNITS, Unit, distinct
from stages.run_folder.charges import Charged, read_charges
from stages.run_folder.totals import epsilon_after


@dataclass(frozen=True)
class RunEpsilon:
    """What the client that spent most paid for one `unit`, after each round; `trusts` says whom one has to trust."""

    unit: Unit | None
    trusts: tuple[str, ...]
    after: dict[int, Epsilon]

    @property
    def basis(self) -> str | None:
        """For whom it holds, in words; None where nothing is protected."""
        if self.unit is None:
            return None
        trusted = {"server": ", trusting the server", "aggregate": ", if only the sum is seen"}
        return f"one {self.unit}" + "".join(trusted.get(name, "") for name in self.trusts)

    @property
    def at_end(self) -> Epsilon:
        return self.after[max(self.after)]


def run_epsilon(run: Path, rounds: Sequence[int], *, delta: float) -> RunEpsilon:
    """ε of a run after each of `rounds` (at most fifty of them), the maximum over its clients: people are disjoint.

    Where the clients' files cost ∞, but the server adds noise to all that it sends, it is the ε of what it sent: that
    holds against everyone but the server, and `trusts` says so.
    """
    found = read_charges([run])
    try:
        distinct(event for file in found.charged for event in file.events)
        by_owner: dict[str, list[Charged]] = {}
        for file in found.charged:
            by_owner.setdefault(file.who, []).append(file)
        server = [by_owner.pop("server")] if "server" in by_owner else []
        at_clients = _largest(list(by_owner.values()), rounds, delta)
        if server and math.isinf(at_clients.at_end.pld):
            at_server = _largest(server, rounds, delta)
            return at_server if math.isfinite(at_server.at_end.pld) else at_clients
        return at_clients
    except ValueError as error:
        raise InputError(f"{run}: {error}.") from error


def _largest(owners: Sequence[Sequence[Charged]], rounds: Sequence[int], delta: float) -> RunEpsilon:
    events = [event for files in owners for file in files for event in file.events]
    # Where a run protects several, the smallest is drawn, as in `account`.
    unit = next((unit for unit in UNITS if any(event.unit == unit for event in events)), None)
    after = {}
    for number in thinned(sorted(rounds)):
        each = [epsilon_after(files, unit or "", number, delta)[0] for files in owners] or [INFINITE]
        after[number] = Epsilon(max(e.pld for e in each), max(e.rdp for e in each))
    return RunEpsilon(unit, tuple(sorted({event.trust for event in events})), after)
