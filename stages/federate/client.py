"""A client's side: it is asked for files, makes those of them that are its own by the terms, and sends their bytes."""

from __future__ import annotations

import contextlib
import os
import traceback
from datetime import UTC, datetime
from pathlib import Path

from artifacts.errors import BudgetError, FedsynthError
from artifacts.formats import Format, envelope_file, format_named
from artifacts.places import RunFolder, pending_for
from artifacts.writing import locks
from artifacts.writing.atomic import make_folder
from stages.federate.agreement import check_agreed
from stages.federate.parcels import Parcel, ParcelError, Reply, Task, pack, unpack
from stages.federate.tasks import is_from_server, leading_to, leaves, of_other_phases, own_steps
from stages.federate.terms import FILE, Terms, our_versions, read_terms
from stages.recipes.perform import perform
from stages.recipes.phases import waits
from stages.recipes.step import Step
from stages.run_folder.files import ROSTER
from stages.sign import sign


class Refusal(Exception):
    """An answer without files: one of the words of `STATUSES`."""

    def __init__(self, status: str, why: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.status, self.names = status, names


def answer(task: Task, home: Path, client: str) -> Reply:
    """What the client says to a task. Whatever goes wrong stays in its own log; the server learns one word."""
    try:
        # A task that is delivered twice is done once: the second waits, and finds the files.
        with locks.held(RunFolder(home).client(client).private, "fedsynth federate", wait=True, name="federate"):
            return Reply("done", client, task.round, parcels=_obey(task, home, client))
    except Refusal as refusal:
        if refusal.status != "lacks":
            note(home, client, task.round, f"{refusal.status}: {refusal}")
        return Reply(refusal.status, client, task.round, names=refusal.names)
    except BudgetError as error:
        note(home, client, task.round, f"budget: {error}")
        return Reply("budget", client, task.round)
    except FedsynthError as error:
        note(home, client, task.round, f"failed: {error}")
        return Reply("failed", client, task.round)
    except Exception:
        # Flower would send the text of an exception to the server.
        note(home, client, task.round, f"failed: {traceback.format_exc()}")
        return Reply("failed", client, task.round)


def log_of(home: Path, client: str) -> Path:
    return RunFolder(home).client(client).private / "federate.log"


def _obey(task: Task, home: Path, client: str) -> tuple[Parcel, ...]:
    terms = _agreed(task, home, client)
    steps = own_steps(terms, client, task, home)
    strange = [name for name in task.targets if name not in steps]
    if strange:
        raise Refusal(
            "target", f"the server asked for {strange[0]!r}, which the terms do not have in round {task.round}"
        )
    other = of_other_phases(steps, client, task.round, home) if waits(terms.recipe) else None
    if other is not None:
        raise Refusal("target", f"the server asked in other phases before, when {other} was made")
    reads = {name for step in steps.values() for name in (*step.inputs, *step.needs) if is_from_server(name)}
    try:
        unpack(task.parcels, home, expected=sorted(reads), most_bytes=terms.most_bytes)
    except ParcelError as error:
        raise Refusal("parcel", str(error)) from error
    wanted, foreign = leading_to(task.targets, steps, home)
    missing = tuple(name for name in foreign if is_from_server(name) and not (home / name).exists())
    if missing:
        raise Refusal("lacks", f"lacks {', '.join(missing)}", missing)
    sent = [name for name in task.targets if leaves(name, client)]
    if terms.signed:
        # Of a task that was killed between a file and its envelope.
        _envelopes([name for name in sent if (home / name).exists()], home)
    _make(wanted, home, terms)
    if terms.signed:
        sent = [*sent, *_envelopes(sent, home)]
    return pack(home, sent)


def _agreed(task: Task, home: Path, client: str) -> Terms:
    terms = read_terms(home / FILE)
    if task.terms != terms.digest:
        raise Refusal("terms", f"the server's terms are not those of {home / FILE}: ask for them, and read them")
    ours = our_versions()
    if dict(terms.versions) != ours or dict(task.versions) != ours:
        raise Refusal("versions", f"the terms name {dict(terms.versions)}, here are {ours}")
    if task.client != client or client not in terms.participants:
        raise Refusal("name", f"the task is for {task.client!r}")
    return terms


def _make(steps: list[Step], home: Path, terms: Terms) -> None:
    """Perform them in order, until one waits at the gate.

    What is to be signed is signed at once: the head of the ledger, which the server countersigns, then has it.
    """
    for step in steps:
        waiting = tuple(name for name in step.outputs if pending_for(home / name).exists())
        if not waiting:
            try:
                check_agreed(step, home, terms)
            except ParcelError as error:
                raise Refusal("parcel", str(error)) from error
            perform(step, home)
            waiting = tuple(name for name in step.outputs if not (home / name).exists())
        if waiting:
            raise Refusal("held", f"{', '.join(waiting)} waits to be released", waiting)
        if terms.signed:
            _envelopes([name for name in step.outputs if leaves(name, step.owner)], home)


def _envelopes(names: list[str], home: Path) -> list[str]:
    """Sign what is not signed yet; heads are signed by themselves."""
    files = [name for name in names if format_named(name) is not Format.ENVELOPES]
    made = {name: envelope_file.beside(Path(name)).as_posix() for name in files}
    lacking = {name: home / envelope for name, envelope in made.items() if not (home / envelope).exists()}
    unsigned = [home / name for name, envelope in lacking.items() if not pending_for(envelope).exists()]
    if unsigned:
        sign(unsigned, roster=home / ROSTER)
    missing = tuple(envelope for envelope in made.values() if not (home / envelope).exists())
    if missing:
        raise Refusal("held", f"{', '.join(missing)} waits to be released", missing)
    return list(made.values())


def note(home: Path, client: str, round: int, text: str) -> None:
    """Into the client's private log. If that cannot be written, nothing is said: least of all to the server."""
    line = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z round {round}: {text}\n"
    with contextlib.suppress(OSError, ValueError):
        path = log_of(home, client)
        make_folder(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", errors="replace") as log:
            log.write(line)
