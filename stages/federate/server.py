"""The server's side: the plan of the recipe, its own steps performed here, the clients' files asked for and checked.

Every answer is a file on disk before the next step reads it, so that a server that was killed goes on from what it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from artifacts.errors import InputError, UsageError
from artifacts.formats import Format
from artifacts.formats.plain_data import read_json
from artifacts.writing import locks
from stages.execution.progress import Report, Summary, silent
from stages.federate.board import Board
from stages.federate.channel import Channel, Memory
from stages.federate.parcels import STATUSES, Parcel, ParcelError, Reply, Task, pack, unpack
from stages.federate.tasks import Switches, server_plan
from stages.federate.terms import Terms, our_versions
from stages.recipes.perform import perform
from stages.recipes.phases import resolved, waits
from stages.recipes.plan import check
from stages.recipes.recipe import Recipe
from stages.recipes.runner import known_after
from stages.recipes.step import Step
from stages.run_folder.files import ROSTER, TEST, metrics_file

_AGAIN = 5.0
_FAREWELL = 120.0

Log = Callable[[str], None]


@dataclass
class _Request:
    """What is asked of a client. It is asked again while it waits, for the same files, until its time is over."""

    client: str
    round: int
    targets: tuple[str, ...]
    deadline: float
    reads: list[str]
    asked: str | None = None
    again: float = 0.0


def serve(
    terms: Terms, home: Path, channel: Channel, *, log: Log, report: Report = silent, memory: Memory | None = None
) -> Summary:
    """Run the federation from this home to its end, going on where an earlier run stopped."""
    check(terms.recipe, divides=False)
    _check_home(terms, home)
    with locks.held(home, "fedsynth federate"):
        return serve_held(terms, home, channel, log=log, report=report, memory=memory)


def serve_held(
    terms: Terms, home: Path, channel: Channel, *, log: Log, report: Report = silent, memory: Memory | None = None
) -> Summary:
    """The same, for a caller who holds the home."""
    server = _Server(terms, home, channel, log, report, memory or Memory())
    if not waits(terms.recipe):
        steps = server_plan(terms, terms.recipe, home)
        server.perform(terms.recipe, steps)
        return server.say_farewell(terms.recipe, steps)
    recipe, done = resolved(terms.recipe, {}), 0
    while True:
        # A channel that stays has let the clients follow each round; else they follow with the next one's task.
        first = done + 1 if channel.stays and done else 0
        steps = [s for s in server_plan(terms, recipe, home) if first <= s.round <= done + 1]
        server.perform(recipe, steps)
        done += 1
        if channel.stays:
            summary = server.say_farewell(recipe, steps)
        recipe = known_after(terms.recipe, home, done)
        if done >= recipe.rounds:
            return summary if channel.stays else server.say_farewell(recipe, server_plan(terms, recipe, home))


def _check_home(terms: Terms, home: Path) -> None:
    if not (home / TEST).exists():
        raise InputError(f"no public test set at {home / TEST}: the server evaluates every round on it.")
    if (terms.recipe.secure or terms.recipe.receipts or terms.signed) and not (home / ROSTER).exists():
        raise InputError(
            f"no roster at {home / ROSTER}. Collect the identities by hand, run `fedsynth roster`, and give every "
            "client a copy."
        )
    ours = our_versions()
    if dict(terms.versions) != ours:
        raise UsageError(f"the terms are for {dict(terms.versions)}, here are {ours}: install those, or agree anew.")


class _Server:
    def __init__(
        self, terms: Terms, home: Path, channel: Channel, log: Log, report: Report, memory: Memory
    ) -> None:  # fmt: skip
        self._terms, self._home, self._channel, self._log, self._report = terms, home, channel, log, report
        self._memory = memory
        self._requests: dict[str, _Request] = {}
        self._has: dict[str, set[str]] = {}
        self._packed: dict[str, Parcel] = {}
        self._late: dict[str, _Request] = {}

    def perform(self, recipe: Recipe, steps: list[Step]) -> None:
        """Everything that is in the steps, as far as the clients answer."""
        self._open(recipe, steps)
        for client, (round, why) in self._memory.dropped.items():
            self._board.drop(client, round, why)
        while not self._board.finished:
            self._open_requests()
            try:
                own = self._board.next_own()
            except InputError:  # too few have answered: started again, all are asked again
                self._memory.dropped.clear()
                self._memory.since.clear()
                raise
            if own is not None:
                self._report(own.round, recipe.rounds, f"round {own.round}: {own.command}")
                self._packed.clear()  # models may be large, and its own work takes memory too
                perform(own, self._home)
                if own.command == "evaluate":
                    accuracy = read_json(self._home / own.out)["accuracy"]
                    self._log(f"round {own.round} of {recipe.rounds}: accuracy {accuracy:.1%}")
                continue
            self._collect(recipe)

    def _open(self, recipe: Recipe, steps: list[Step]) -> None:
        self._switches: Switches = (_whole(recipe.switch1), _whole(recipe.switch2))
        with_roster = [s for s in steps if s.command not in ("identity", "roster")]
        self._board = Board(with_roster, self._home, self._terms.least_clients)

    def _open_requests(self) -> None:
        for client in self._board.clients():
            if client not in self._requests:
                round, targets = self._board.wanted(client)
                deadline = time.monotonic() + self._terms.wait - self._memory.waited(client, targets[0])
                reads = self._board.reads(client, targets)
                self._requests[client] = _Request(client, round, targets, deadline, reads)
        self._send()

    def _send(self) -> None:
        """Ask those who are there and have not been asked, or are to be asked again."""
        now = time.monotonic()
        due = [r for r in self._requests.values() if r.asked is None and r.again <= now]
        present = self._channel.present() if due else set()
        for request in due:
            if request.client in present:
                request.asked = self._channel.ask(self._task(request))

    def _task(self, request: _Request) -> Task:
        """With it go the files that the client has not had from us yet."""
        names = [name for name in request.reads if name not in self._has.get(request.client, ())]
        return Task(
            terms=self._terms.digest,
            versions=our_versions(),
            client=request.client,
            round=request.round,
            targets=request.targets,
            switches=self._switches,
            left_out=self._board.left_out(request.client),
            parcels=tuple(map(self._parcel, names)),
        )

    def _parcel(self, name: str) -> Parcel:
        """Read and checked once for all clients of a round."""
        if name not in self._packed:
            if len(self._packed) >= 4:
                self._packed.pop(next(iter(self._packed)))
            (self._packed[name],) = pack(self._home, [name])
        return self._packed[name]

    def _collect(self, recipe: Recipe) -> None:
        """Take in what has come, and let those go whose time is over."""
        open_now = {r.asked: r for r in self._requests.values() if r.asked is not None}
        for asked, reply in self._channel.answers([*open_now, *self._late]):
            if asked in self._late:
                late = self._late.pop(asked)
                self._log(f"{late.client}: an answer to round {late.round} came too late, and was left out")
            else:
                self._take(open_now[asked], reply)
        now = time.monotonic()
        for request in [r for r in self._requests.values() if r.deadline <= now]:
            self._let_go(request, f"no answer within {self._terms.wait:g} s (is it up, with these terms?)")
        waiting = len(self._requests)
        self._report(_round(self._requests), recipe.rounds, f"waiting for {waiting} client{'s' * (waiting != 1)}")
        self._channel.pause()

    def _take(self, request: _Request, reply: Reply | None) -> None:
        request.asked = None
        request.again = time.monotonic() + _AGAIN
        if reply is None:
            self._log(f"{request.client}: lost in round {request.round}; asked again once it is back")
            self._has.pop(request.client, None)
        elif (reply.client, reply.round) != (request.client, request.round) or reply.status not in STATUSES:
            self._let_go(request, "answered for another client or round")
        elif reply.status == "lacks":
            sent = set(request.reads) - self._has.pop(request.client, set())
            known = [name for name in reply.names if name in self._board.ever_reads(request.client)]
            if sent.issuperset(known):
                self._let_go(request, "says that it lacks what it was sent")
                return
            request.reads = list(dict.fromkeys([*request.reads, *known]))
            request.again = 0.0
        elif reply.status == "held":
            self._has.setdefault(request.client, set()).update(request.reads)
            self._log(f"{request.client}: round {request.round} waits to be released by its people")
        elif reply.status == "done":
            self._keep(request, reply)
        else:
            self._let_go(request, STATUSES[reply.status])

    def _keep(self, request: _Request, reply: Reply) -> None:
        """Put the files in place, or leave the client out of the round. A disk that is full ends the run instead."""
        expected = [*request.targets, *(f"{name}{Format.ENVELOPES}" for name in request.targets if self._terms.signed)]
        came = {parcel.name for parcel in reply.parcels}
        missing = [name for name in request.targets if name not in came and not (self._home / name).exists()]
        if missing:
            self._let_go(request, f"sent no {missing[0]}")
            return
        try:
            unpack(
                reply.parcels, self._home, expected=expected, most_bytes=self._terms.most_bytes, client=request.client,
                signed=self._terms.signed,
            )  # fmt: skip
        except ParcelError as error:
            self._let_go(request, str(error))
            return
        self._has.setdefault(request.client, set()).update(request.reads)
        self._requests.pop(request.client)
        self._memory.since.pop(request.client, None)
        self._board.came(request.targets)

    def _let_go(self, request: _Request, why: str) -> None:
        """The round goes on without it; in the next one it is asked again."""
        self._log(f"{request.client}: left out of round {request.round}: {why}")
        if request.asked is not None:
            self._late[request.asked] = request
        self._has.pop(request.client, None)
        self._requests.pop(request.client, None)
        self._memory.since.pop(request.client, None)
        self._memory.dropped[request.client] = (request.round, why)
        self._board.drop(request.client, request.round, why)

    def say_farewell(self, recipe: Recipe, steps: list[Step]) -> Summary:
        """Let the clients make what they keep for themselves of what was sent last. The run is whole without it."""
        if not self._channel.stays:
            self._open(recipe, steps)
        end = time.monotonic() + min(self._terms.wait, _FAREWELL)
        present = self._channel.present()
        for client in self._terms.participants:
            targets = self._board.left_over(client)
            if targets and client in present:
                reads = self._board.reads(client, targets)
                request = _Request(client, recipe.rounds, targets, end, reads)
                request.asked = self._channel.ask(self._task(request))
                self._requests[client] = request
        if not self._channel.stays:
            self._channel.close()
        while self._channel.stays and self._requests and time.monotonic() < end:
            open_now = {r.asked: r for r in self._requests.values() if r.asked is not None}
            for asked, reply in self._channel.answers(open_now):
                request = self._requests.pop(open_now[asked].client)
                if reply is None or reply.status != "done":
                    self._log(f"{request.client}: did not follow to the end")
            self._channel.pause()
        self._requests.clear()
        return _summary(recipe, self._home)


def _whole(switch: int | str | None) -> int | None:
    return switch if isinstance(switch, int) else None


def _round(requests: dict[str, _Request]) -> int:
    return max((request.round for request in requests.values()), default=0)


def _summary(recipe: Recipe, home: Path) -> Summary:
    """As `run` reports it, by the files that are here."""
    curve = []
    for round in range(recipe.rounds + 1):
        path = home / metrics_file(round)
        if path.exists():
            found = read_json(path)
            curve.append({"round": round, "accuracy": found["accuracy"], "loss": found["loss"]})
    sent = sum(path.stat().st_size for path in home.glob("clients/*/outbox/*"))
    last = curve[-1]
    return {
        "out": str(home), "recipe": recipe.name, "rounds": last["round"], "bytes_sent_by_clients": sent,
        "accuracy": last["accuracy"], "loss": last["loss"], "curve": curve,
    }  # fmt: skip
