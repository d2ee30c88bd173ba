"""`federate status`: how far a federation is, by the files of one home. Nothing is asked of others, nothing changes."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from artifacts.formats.plain_data import read_json
from artifacts.identity.roster import Roster, read_roster
from artifacts.places import SERVER, Place, RunFolder
from stages.execution.progress import Summary
from stages.federate.party import check_key, connected_file, place_of, recall
from stages.federate.step_client import ClientMemory
from stages.federate.step_server import ServerMemory
from stages.federate.terms import FILE, Terms, read_terms
from stages.recipes.round_steps import is_noised
from stages.run_folder.files import ROSTER, metrics_file, model_file


def status(home: Path, *, client: str | None = None, delta: float | None = None) -> Summary:
    """Of the party whose home this is. `delta`: at which ε of what left is computed, which takes some seconds."""
    terms = read_terms(home / FILE)
    name, place = place_of(home, client, terms)
    roster = read_roster(home / ROSTER) if (home / ROSTER).exists() else None
    if roster is not None and place.key.exists() and roster.of(name, "parcels") is not None:
        check_key(name, place, roster)
    last = max((round for round in range(terms.recipe.rounds + 1) if (home / model_file(round)).exists()), default=None)
    found: Summary = {"party": name, "home": str(home), "recipe": terms.recipe.name, "rounds": terms.recipe.rounds}
    found["last_round"] = last if last is not None else "none yet"
    found |= _of_server(home, place, terms, last) if name == SERVER else _of_client(place)
    found["clients"] = [_row(who, home, terms, roster, found) for who in terms.participants] if name == SERVER else []
    if delta is not None:
        left = home if name == SERVER else place.base
        found |= {"delta": delta, "epsilon": _epsilon(left, terms.recipe.rounds, delta)}
    return found


def _of_server(home: Path, place: Place, terms: Terms, last: int | None) -> Summary:
    memory: ServerMemory = recall(place, ServerMemory.read)
    measured = home / metrics_file(last or 0)
    received = sum(path.stat().st_size for path in home.glob("clients/*/outbox/*"))
    found: Summary = {"accuracy": read_json(measured)["accuracy"] if measured.exists() else "none yet"}
    found |= {"exchange": memory.exchange, "ended": memory.ended, "bytes_received": received}
    found["bytes_in_parcels"] = memory.sent_bytes
    if connected_file(place).exists():
        found["connected"] = list(map(str, read_json(connected_file(place))["connected"]))
    if is_noised(terms.recipe):
        # Who was drawn is the server's secret, and a page of status is soon shown to others.
        return found | {"waits_for": "not shown: who takes part is drawn in secret"}
    return found | {"waits_for": {who: [file, _time(when)] for who, (file, when) in memory.since.items()}}


def _row(who: str, home: Path, terms: Terms, roster: Roster | None, found: Summary) -> dict[str, Any]:
    """One client, as the server's files know it."""
    row: dict[str, Any] = {"client": who, "registered": roster is not None and roster.of(who, "parcels") is not None}
    if is_noised(terms.recipe):
        return row
    file, since = found["waits_for"].get(who, ("", ""))
    files = list(RunFolder(home).client(who).outbox.glob("*"))
    return row | {
        "waited_for_since": since, "file": file.rpartition("/")[2], "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
    }  # fmt: skip


def _of_client(place: Place) -> Summary:
    memory: ClientMemory = recall(place, ClientMemory.read)
    held = sorted(path.name for path in place.pending.glob("*")) if place.pending.is_dir() else []
    return {
        "exchange": memory.exchange, "last_answer": memory.status or "none yet", "ended": memory.ended,
        "waits_for_release": held, "bytes_sent": memory.sent_bytes, "bytes_received": memory.received_bytes,
    }  # fmt: skip


def _epsilon(folder: Path, rounds: int, delta: float) -> str:
    """Of all that left until now, of rounds that are not over as well."""
    from stages.run_folder.epsilon import run_epsilon

    if not any(folder.glob("outbox/*")) and not any(folder.glob("clients/*/outbox/*")):
        return "0: nothing has left"
    found = run_epsilon(folder, [rounds], delta=delta)
    value = found.at_end.pld
    return "∞" if math.isinf(value) or found.basis is None else f"{value:.3g} for {found.basis}"


def _time(when: float) -> str:
    return f"{datetime.fromtimestamp(when, UTC):%Y-%m-%d %H:%M:%S}Z"
