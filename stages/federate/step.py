"""`federate step`: a federation without a network. Each party does what the files at hand allow, and ends.

Called again and again, by cron, Slurm or a person, at every party and in any order, it makes the files of `run`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from artifacts.places import SERVER
from artifacts.writing import locks
from artifacts.writing.locks import InUseError
from artifacts.writing.scratch import sweep_below
from stages.execution.progress import Report, Summary, silent
from stages.federate.channel import WaitsForOthers
from stages.federate.party import Party
from stages.federate.step_client import step_client
from stages.federate.step_server import step_server


def step(
    home: Path, drop: str, *, client: str | None = None, log: Callable[[str], None], report: Report = silent
) -> tuple[bool, Summary]:
    """Whether the federation is at its end for this party, and what was done."""
    party = Party.at(home, drop, client)
    try:
        with locks.held(party.place.private, "fedsynth federate step", name="step"):
            sweep_below(home)  # of a call that was killed: what it received is not received again
            if party.name == SERVER:
                summary = step_server(party, home, log=log, report=report)
            else:
                summary = step_client(party, home)
        state = "done"
    except (WaitsForOthers, InUseError) as reason:
        summary, state = {"why": str(reason)} if str(reason) else {}, "waiting"
    finally:
        for why in party.refused.values():
            log(why)
    return state == "done", {"party": party.name, "state": state, **summary, "refused": list(party.refused.values())}
