"""What left costs one unit (a record, a person, a client): the events of all files, read as events about it.

A file without an event for a unit has no ε for it, and says why (privacy contract, rules 5, 31 and 32). Free of torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from stages.privacy.accountant import INFINITE, Epsilon, Orders, across, epsilon
from stages.privacy.events import UNITS, PrivacyEvent, Unit, distinct, for_unit, for_unit_in_all

if TYPE_CHECKING:
    from stages.run_folder.charges import Charged  # pyarrow takes a third of a second to load

# The files of each participant; by whom, and the unit under which `account` prints them.
Groups = Mapping[tuple[str, str], list["Charged"]]

_WHOLE = {"person": "all that one person has", "client": "whole clients"}


def events_for(files: Iterable[Charged], unit: str) -> list[PrivacyEvent]:
    """The files' events as events about this unit; what says nothing about it makes its file uncovered."""
    found = (for_unit(event, cast(Unit, unit)) for file in files for event in file.events)
    return distinct(event for event in found if event is not None)


def uncovered(file: Charged, unit: str) -> str:
    """Why the file has no ε for this unit: noise for single records hides no person, noise for people no client."""
    if file.uncovered or not unit:
        return file.uncovered
    bare = next((event for event in file.events if for_unit(event, cast(Unit, unit)) is None), None)
    if bare is None:
        return ""
    if UNITS.index(bare.unit) > UNITS.index(cast(Unit, unit)):
        return f"its noise is too little to say anything about one {unit}"
    kinds = {"record": "single records", "person": "single people"}
    return f"some of its noise is for {kinds[bare.unit]}, not for {_WHOLE[unit]}"


def epsilon_after(
    files: Sequence[Charged], unit: str, number: int, delta: float, orders: Orders = "fine"
) -> tuple[Epsilon, Epsilon]:
    """ε of the files of the first `number` rounds, and of those of their events that there are."""
    so_far = [file for file in files if file.round <= number]
    rest = epsilon(events_for(so_far, unit), delta=delta, orders=orders)
    return (INFINITE if any(uncovered(file, unit) for file in so_far) else rest), rest


def total_for(unit: str, groups: Groups, delta: float, orders: Orders) -> dict[str, Any]:
    """Over all that left (rules 5 and 31): the maximum if people are disjoint, else the composition.

    What the server added noise to is one more release of everybody's data. Its other events are the clients' own, and
    count here only where no client's files are at hand.
    """
    clients = {who: files for (who, _), files in groups.items() if who != "server"}
    server = next((files for (who, _), files in groups.items() if who == "server"), [])
    noised = [event for event in events_for(server, unit) if event.trust == "server" or not clients]
    each = [[*events_for(files, unit), *noised] for files in clients.values()] or [noised]
    disjoint, _ = across(each, delta=delta, orders=orders, of_all=noised)
    together, sent_on_in_all = _in_all(unit, clients, server, delta, orders)
    bare = [(file, why) for files in (*clients.values(), server) for file in files if (why := uncovered(file, unit))]
    if bare:
        disjoint, together = INFINITE, INFINITE
    hidden = any(uncovered(file, unit) for file in server)
    sent_on = INFINITE if hidden else epsilon(events_for(server, unit), delta=delta, orders=orders)
    return {
        "unit": unit,
        "if_disjoint": epsilon_json(disjoint),
        "if_one_is_in_all": epsilon_json(together),
        # To all but the server, which is trusted with what the clients sent: what it sent on, by all of its events.
        "trusting_the_server": epsilon_json(sent_on) if server else None,
        "trusting_the_server_if_in_all": epsilon_json(INFINITE if hidden else sent_on_in_all) if server else None,
        "why": f"{bare[0][0].where}: {bare[0][1]}" if bare else None,
    }


def _in_all(
    unit: str, clients: dict[str, list[Charged]], server: Sequence[Charged], delta: float, orders: Orders
) -> tuple[Epsilon, Epsilon]:
    """ε for someone who may be in the data of all clients at hand: of all that left, and of what the server sent on.

    ∞ where noise covers a sum over clients and none of them is at hand: how many share a person cannot be seen.
    """

    def read(files: Iterable[Charged]) -> list[PrivacyEvent | None]:
        events = distinct(event for file in files for event in file.events)
        # What is about smaller units has no ε here anyway, and is named by `uncovered`.
        return [for_unit_in_all(event, cast(Unit, unit), len(clients)) for event in events if _covers(event, unit)]

    at_server = read(server)
    noised = [event for event in at_server if event is None or event.trust == "server" or not clients]
    lists = [[*read(files), *noised] for files in clients.values()] or [noised]
    found = []
    for parts, of_all in ((lists, noised), ([at_server], at_server)):
        whole = [[event for event in part if event is not None] for part in parts]
        shared = [event for event in of_all if event is not None]
        lost = any(event is None for part in parts for event in part)
        found.append(INFINITE if lost else across(whole, delta=delta, orders=orders, of_all=shared)[1])
    # In an aggregate, events of several clients that are alike are one (`events.merged`): right for a unit in one
    # client's data. For one in all of them, what the clients' files say is the bound.
    if any(event is not None and event.trust == "nobody" for event in at_server):
        found[1] = found[0] if clients else INFINITE
    return found[0], found[1]


def _covers(event: PrivacyEvent, unit: str) -> bool:
    return UNITS.index(event.unit) >= UNITS.index(cast(Unit, unit))


def one_number(unit: str, groups: Groups, delta: float, orders: Orders) -> dict[str, Any]:
    """One number for this unit over everything that left, and why it is ∞ (rule 31).

    A record is in one client's data, and a client is itself: what counts is the one that spent most. A person may be
    known to all clients: what they sent adds up (rule 5).
    """
    total = total_for(unit, groups, delta, orders)
    in_all = unit == "person"
    files = {who: files for (who, _), files in groups.items()}
    reasons: dict[str, list[str]] = {}
    for file in (file for mine in files.values() for file in mine):
        if why := uncovered(file, unit):
            reasons.setdefault(why, []).append(file.where)
    number = total["if_one_is_in_all" if in_all else "if_disjoint"]
    if not reasons and number["pld"] == "inf":
        reasons["the noise covers a sum over clients, and in how many of them one person is cannot be seen here"] = []
    return {
        "unit": unit,
        "epsilon": number,
        "if_disjoint": total["if_disjoint"],
        "trusting_the_server": total["trusting_the_server_if_in_all" if in_all else "trusting_the_server"],
        "files": sum(map(len, files.values())),
        "why": [{"reason": reason, "files": where} for reason, where in reasons.items()],
    }


def epsilon_json(value: Epsilon) -> dict[str, float | str]:
    """Numbers; «inf» where there is none, which JSON has no number for."""
    return {name: "inf" if math.isinf(v) else v for name, v in (("pld", value.pld), ("rdp", value.rdp))}
