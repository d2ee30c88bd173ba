"""`account`: what has left costs in ε, from the files alone; and `account plan`, before anything leaves. Free of torch.

A file costs ∞ unless its events cover every byte of it that depends on private data (privacy contract, rule 1).
"""

from __future__ import annotations

import csv as csv_format
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError, UsageError
from artifacts.publish import prepare
from artifacts.writing import atomic
from stages.execution.progress import Report, Summary, silent
from stages.privacy import renyi
from stages.privacy.accountant import (
    INFINITE,
    Accountant,
    Epsilon,
    Orders,
    adjacency_of,
    calibrated,
    epsilon,
    planned,
)
from stages.privacy.events import UNITS, Adjacency, alone, distinct
from stages.privacy.utility import Setting, utility
from stages.run_folder.totals import epsilon_after, epsilon_json, events_for, one_number, total_for, uncovered

if TYPE_CHECKING:
    from stages.run_folder.charges import Charged  # `plan` reads no file, and pyarrow takes a third of a second to load

_MOST_POINTS = 50  # of a curve: a loss distribution takes a tenth of a second
_COLUMNS = ("client", "unit", "round", "epsilon_pld", "epsilon_rdp", "rest_pld", "rest_rdp")
CurveRow = tuple[str, str, int, Epsilon, Epsilon]


def account(
    targets: Sequence[Path],
    *,
    delta: float,
    orders: Orders = "fine",
    csv: Path | None = None,
    picture: Path | None = None,
    person: bool = False,
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """ε for each client and unit, of files, of a participant's folder or of a whole run.

    `person` adds one number for each unit that anyone may want to protect, over all that left (`one_number`).
    Any list of Rényi orders gives a bound. The fine one is the lowest; `papers` gives the figures that papers print.
    """
    _prepare(csv, picture, delta)
    from stages.run_folder.charges import read_charges

    found = read_charges(targets)
    try:
        distinct(event for file in found.charged for event in file.events)
        rows, curve = [], []
        groups = _groups(found.charged)
        for number, ((who, unit), files) in enumerate(groups.items(), start=1):
            rows.append(_row(who, unit, files, delta, orders))
            if csv is not None or picture is not None:
                curve += _curve(who, unit, files, delta, orders)
            report(number, len(groups), who)
        units = {unit for _, unit in groups} - {""}
        totals = [total_for(unit, groups, delta, orders) for unit in sorted(units)]
        everyone = {"units": [one_number(unit, groups, delta, orders) for unit in UNITS]} if person else {}
    except ValueError as error:
        raise InputError(f"{error}.") from error
    _write(csv, picture, curve, delta, force=force)
    found_for = {"clients": rows, "across_clients": totals, **everyone}
    return {"delta": delta, "orders": orders, **found_for, "notes": found.notes}


def plan(
    *,
    sampling_rate: float,
    steps: int,
    delta: float,
    noise_multiplier: float | None = None,
    target_epsilon: float | None = None,
    rounds: int = 1,
    adjacency: Adjacency = "add-or-remove",
    participation: float | None = None,
    by: Accountant = "pld",
    dimension: int | None = None,
    clip_norm: float | None = None,
    batch_size: float | None = None,
    orders: Orders = "fine",
    csv: Path | None = None,
    picture: Path | None = None,
    force: bool = False,
) -> Summary:
    """ε of `rounds` times `steps` sampled Gaussian steps, or the noise that keeps it within a target.

    `participation` adds what FedLAP-DP's Theorem A.8 says with its two rates, q₁ = C·q for the first step of a round.
    That is a calculation only: the outbox shows who took part (privacy contract, rule 4), so q₁ = q₂ here.
    `dimension`, `clip_norm` and `batch_size` (qN) together add what the noise leaves of a signal (`privacy.utility`).
    """
    _prepare(csv, picture, delta)
    if (noise_multiplier is None) == (target_epsilon is None):
        raise UsageError("account plan takes either --noise-multiplier or --target-epsilon.")
    try:
        sigma = noise_multiplier
        if sigma is None:
            sigma = calibrated(
                target_epsilon or 0.0, delta=delta, sampling_rate=sampling_rate, steps=rounds * steps,
                adjacency=adjacency, by=by,
            )  # fmt: skip

        def after(count: int) -> Epsilon:
            total = count * steps
            event = planned(
                sampling_rate=sampling_rate, noise_multiplier=sigma or 0.0, steps=total, adjacency=adjacency
            )
            return epsilon([event], delta=delta, orders=orders)

        result = after(rounds)
        two_rates = None
        if participation is not None:
            if not 0 < participation <= 1 or adjacency != "add-or-remove":
                raise ValueError("--participation must be above 0 and at most 1, and goes with add-or-remove")
            charges = [(participation * sampling_rate, sigma, rounds)]
            charges += [(sampling_rate, sigma, rounds * (steps - 1))] if steps > 1 else []
            two_rates = {"rdp": renyi.epsilon(charges, delta), "guarantee": False}
        useful = None
        if dimension is not None and clip_norm is not None and batch_size is not None:

            def noise_for(count: int) -> float:
                """With the same ε over so many steps."""
                return calibrated(
                    result.by(by), delta=delta, sampling_rate=sampling_rate, steps=count, adjacency=adjacency, by=by
                )

            setting = Setting(
                dimension=dimension, clip_norm=clip_norm, noise_multiplier=sigma, batch_size=batch_size,
                steps=rounds * steps,
            )  # fmt: skip
            useful = utility(setting, noise_for)
        curve: list[CurveRow] = []
        if csv is not None or picture is not None:
            curve = [("plan", "record", r, after(r), after(r)) for r in thinned(range(1, rounds + 1))]
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    _write(csv, picture, curve, delta, force=force)
    return {
        "epsilon": epsilon_json(result),
        "delta": delta,
        "noise_multiplier": sigma,
        "sampling_rate": sampling_rate,
        "steps": steps,
        "rounds": rounds,
        "adjacency": adjacency,
        "theorem_a8": two_rates,
        "calibrated_by": by if target_epsilon is not None else None,
        "utility": useful,
    }


def _groups(charged: Sequence[Charged]) -> dict[tuple[str, str], list[Charged]]:
    """Files by client and unit. Anyone who has no event at all has no unit; a file without one counts in all units."""
    units: dict[str, set[str]] = {}
    for file in charged:
        units.setdefault(file.who, set()).update(event.unit for event in file.events)
    groups: dict[tuple[str, str], list[Charged]] = {}
    for who in sorted(units):
        for unit in sorted(units[who]) or [""]:
            groups[who, unit] = [file for file in charged if file.who == who]
    return groups


def _row(who: str, unit: str, files: Sequence[Charged], delta: float, orders: Orders) -> dict[str, Any]:
    events = events_for(files, unit)
    bare = [{"file": file.where, "why": why} for file in files if (why := uncovered(file, unit))]
    rest = epsilon(events, delta=delta, orders=orders)
    return {
        "client": who,
        "unit": unit or None,
        "adjacency": adjacency_of(events) if events else None,
        "trusted": sorted({event.trust for event in events}),
        "files": len(files),
        "events": len(events),
        "epsilon": epsilon_json(INFINITE if bare else rest),
        "rest": epsilon_json(rest) if bare and events else None,
        "alone": (
            epsilon_json(_alone(files, unit, delta, orders))
            if who != "server" and any(e.shares > 1 for e in events)
            else None
        ),
        "uncovered": bare,
    }


def _alone(files: Sequence[Charged], unit: str, delta: float, orders: Orders) -> Epsilon:
    """ε to someone who sees the files one by one, with no more noise than each carries."""
    return epsilon([alone(event) for event in events_for(files, unit)], delta=delta, orders=orders)


def _curve(who: str, unit: str, files: Sequence[Charged], delta: float, orders: Orders) -> list[CurveRow]:
    rows = []
    for number in thinned(sorted({file.round for file in files})):
        rows.append((who, unit, number, *epsilon_after(files, unit, number, delta, orders)))
    return rows


def thinned(rounds: Sequence[int]) -> list[int]:
    """At most fifty of them, the first and the last always."""
    if len(rounds) <= _MOST_POINTS:
        return list(rounds)
    last = len(rounds) - 1
    return [rounds[i * last // (_MOST_POINTS - 1)] for i in range(_MOST_POINTS)]


def check_delta(delta: float | None) -> None:
    """For every command that states an ε: δ has no default, and none is no ε."""
    if delta is not None and not 0 < delta < 1:
        raise UsageError(f"--delta must lie between 0 and 1, found {delta!r}.")


def _prepare(csv: Path | None, picture: Path | None, delta: float) -> None:
    check_delta(delta)
    for path in (csv, picture):
        if path is not None:
            prepare(path, "public")


def _write(csv: Path | None, picture: Path | None, curve: Sequence[CurveRow], delta: float, *, force: bool) -> None:
    if csv is not None:
        sink = io.StringIO()
        writer = csv_format.writer(sink, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for who, unit, number, total, rest in curve:
            writer.writerow((who, unit, number, *epsilon_json(total).values(), *epsilon_json(rest).values()))
        atomic.write(csv, [sink.getvalue().encode()], force=force)
    if picture is not None:
        from stages.pictures.epsilon import Line, epsilon_picture

        # One picture, of one unit: the smallest.
        unit = next((unit for unit in UNITS if any(row[1] == unit for row in curve)), "client")
        lines = []
        for who in dict.fromkeys(row[0] for row in curve):
            mine = [row for row in curve if row[0] == who and row[1] in (unit, "")]
            if mine:
                rests = [row[4] for row in mine]
                infinite = math.isinf(mine[-1][3].pld)
                lines.append(Line([r[2] for r in mine], [e.pld for e in rests], [e.rdp for e in rests], infinite))
        atomic.write(picture, [epsilon_picture(lines, unit=unit, delta=delta)], force=force)
