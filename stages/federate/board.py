"""What is done and what can be done next, as the server sees it: by the files it has, and those that will not come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from artifacts.errors import InputError
from stages.federate.tasks import is_from_server, leaves
from stages.recipes.runner import is_done
from stages.recipes.step import Step


class Board:
    """The steps of a run, the server's and the clients'. A client's private files are not to be seen from here."""

    def __init__(self, steps: Sequence[Step], home: Path, least_clients: int) -> None:
        self._steps, self._home, self._least = list(steps), home, least_clients
        self._maker: Mapping[str, Step] = {name: step for step in steps for name in step.outputs}
        self._dropped: set[str] = set()
        self._why: dict[str, str] = {}
        self._ready: set[str] = set()
        self._implied: set[str] = set()
        self._own = [step for step in self._steps if step.owner == "server" and not is_done(step, home)]
        self._asked = {step.out: step for step in self._steps if step.owner != "server" and self._missing(step)}
        for step in self._steps:
            if (
                step.owner != "server"
                and step.out not in self._asked
                and any(leaves(n, step.owner) for n in step.outputs)
            ):
                self._imply(step)
        self._forget_what_came_too_late()

    def next_own(self) -> Step | None:
        """The server's next step, with the files of those who answered; `InputError` if they are too few."""
        for step in self._own:
            files = [*step.inputs, *step.needs]
            if all(self._settled(name) for name in files):
                self._own.remove(step)
                return self._of_those_who_answered(step)
        return None

    @property
    def finished(self) -> bool:
        return not self._own

    def clients(self) -> list[str]:
        """Those of whom something can be asked now."""
        return list(dict.fromkeys(step.owner for step in self._asked.values() if self._is_ready(step.out)))

    def wanted(self, client: str) -> tuple[int, tuple[str, ...]]:
        """A round, and the client's files of it that can be made now."""
        ready = [step for step in self._asked.values() if step.owner == client and self._is_ready(step.out)]
        round = min(step.round for step in ready)
        names = (name for step in ready if step.round == round for name in step.outputs)
        return round, tuple(name for name in names if leaves(name, client))

    def reads(self, client: str, targets: Sequence[str]) -> list[str]:
        """The server's files that it takes to make the targets, by the steps that the client may not have done yet."""
        found: dict[str, None] = {}
        seen: set[str] = set()
        waiting = list(targets)
        while waiting:
            name = waiting.pop()
            step = self._maker.get(name)
            if is_from_server(name):
                found[name] = None
            elif step is not None and step.owner == client and step.out not in seen | self._implied | self._dropped:
                seen.add(step.out)
                waiting += [*step.inputs, *step.needs]
        return list(found)

    def ever_reads(self, client: str) -> set[str]:
        """All files of the server that are for this client, at any time."""
        own = [step for step in self._steps if step.owner == client]
        return {name for step in own for name in (*step.inputs, *step.needs) if is_from_server(name)}

    def left_out(self, client: str) -> tuple[int, ...]:
        """The rounds that went on without this client."""
        mine = (step for step in self._steps if step.owner == client and step.out in self._dropped)
        return tuple(sorted({step.round for step in mine}))

    def came(self, names: Sequence[str]) -> None:
        for name in names:
            step = self._maker.get(name)
            if step is not None and not self._missing(step):
                self._asked.pop(step.out, None)
                self._imply(step)

    def drop(self, client: str, round: int, why: str) -> None:
        """The round goes on without what this client still owes to it."""
        self._why[client] = why
        for step in [s for s in self._steps if (s.owner, s.round) == (client, round)]:
            if step.out in self._asked or step.out not in self._implied:
                self._dropped.update(step.outputs)
                self._asked.pop(step.out, None)

    def left_over(self, client: str) -> tuple[str, ...]:
        """What a client makes for itself and nothing that it sent was made of: its last model, its last receipt."""
        own = [step for step in self._steps if step.owner == client]
        gone = {step.round for step in own if self._dropped.intersection(step.outputs)}
        read = {name for step in own for name in (*step.inputs, *step.needs)}
        kept = [step for step in own if step.round not in gone and not any(leaves(n, client) for n in step.outputs)]
        return tuple(step.out for step in kept if not read.intersection(step.outputs))

    def _missing(self, step: Step) -> bool:
        """Whether something of it has not come that is to come."""
        return any(leaves(name, step.owner) and not (self._home / name).exists() for name in step.outputs)

    def _forget_what_came_too_late(self) -> None:
        """Of an earlier run: where a step of ours that reads a client's file has done without, its round is over."""
        undone = {step.out for step in self._own}
        done = [step for step in self._steps if step.owner == "server" and step.out not in undone]
        without = {name for step in done for name in (*step.inputs, *step.needs)}
        for step in list(self._asked.values()):
            if without.intersection(step.outputs):
                self.drop(step.owner, step.round, "came too late")

    def _imply(self, step: Step) -> None:
        """What came was made of what the client has: it has done the steps before."""
        waiting = [step]
        while waiting:
            done = waiting.pop()
            if done.out not in self._implied:
                self._implied.add(done.out)
                makers = (self._maker.get(name) for name in (*done.inputs, *done.needs))
                waiting += [maker for maker in makers if maker is not None and maker.owner == step.owner]

    def _settled(self, name: str) -> bool:
        step = self._maker.get(name)
        if step is not None and step.owner != "server" and not leaves(name, step.owner):
            return True
        return name in self._dropped or (self._home / name).exists()

    def _of_those_who_answered(self, step: Step) -> Step:
        asked, here = _clients(step.inputs), [n for n in step.inputs if n not in self._dropped]
        answered = _clients(here)
        if len(answered) < min(self._least, len(asked)):
            reasons = "; ".join(
                f"{client}: {self._why.get(client, 'no answer')}" for client in sorted(asked - answered)
            )
            raise InputError(
                f"round {step.round}: {len(answered)} of {len(asked)} clients answered as agreed, but the terms want "
                f"{min(self._least, len(asked))}. {reasons}. What came is kept: mend that and start the run again."
            )
        needs = tuple(name for name in step.needs if name not in self._dropped)
        return replace(step, inputs=tuple(here), needs=needs)

    def _is_ready(self, out: str) -> bool:
        """Whether all that the server must have made for it is made. What was ready once stays so."""
        if out in self._ready:
            return True
        waiting, seen = [out], {out}
        while waiting:
            step = self._maker[waiting.pop()]
            for name in (*step.inputs, *step.needs):
                maker = self._maker.get(name)
                if maker is None or (self._home / name).exists() or maker.out in self._ready | self._implied:
                    continue
                if maker.owner == "server":
                    return False
                if maker.out not in seen:
                    seen.add(maker.out)
                    waiting.append(maker.out)
        self._ready |= seen
        return True


def _clients(names: Sequence[str]) -> set[str]:
    return {name.split("/")[1] for name in names if name.startswith("clients/")}
