"""Many clients on one machine or a Ray cluster, by Flower's simulation: the same apps, one folder that all share."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.errors import FedsynthError, InputError
from artifacts.writing import locks
from stages import plugins
from stages.execution.progress import Report, Summary, silent
from stages.federate.server import serve_held
from stages.federate.terms import FILE, agreed
from stages.federate.virtual import VirtualChannel, virtual_client
from stages.recipes.perform import perform
from stages.recipes.recipe import Recipe
from stages.recipes.runner import begin, clients_of
from stages.recipes.step import Step

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

_WAIT = 24 * 3600.0
_BY_HAND = ("identity", "roster")


def simulate(recipe: Recipe, out: Path, *, seed: int, cpus: int, report: Report = silent) -> Summary:
    """Run the recipe in the folder `out` over virtual nodes, going on where an earlier run stopped."""
    # Read by Flower and Ray when they are imported: they report to nobody.
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    # Read by the nodes, which are processes of their own.
    os.environ[plugins.VARIABLE] = os.pathsep.join(plugin.name for plugin in plugins.loaded())
    try:
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation
    except ImportError as error:
        raise InputError("Flower with Ray is not installed. Run: pip install 'fedsynth[flower]'") from error
    with locks.held(out, "fedsynth federate"):
        steps = begin(recipe, out, seed)
        for step in steps:
            if step.command in _BY_HAND:
                perform(step, out)
        terms = agreed(recipe, tuple(clients_of(out)), seed=seed, wait=_WAIT, most_bytes=2**31)
        (out / FILE).write_text(terms.to_yaml())
        result: list[Summary | FedsynthError] = []
        app = ServerApp()

        def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
            try:
                channel = VirtualChannel(grid, terms)
                result.append(serve_held(terms, out, channel, log=logging.getLogger("flwr").info, report=report))
            except FedsynthError as error:
                result.append(error)

        app.main()(main)
        # A cluster that is there already has its own cores.
        init_args = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": cpus}
        run_simulation(
            server_app=app,
            client_app=virtual_client(out.absolute()),
            num_supernodes=_most_at_a_time(steps),
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": init_args},
        )
        if not result:
            raise InputError("Flower's simulation ended before the run did; its log says why. Run again to go on.")
        if isinstance(result[0], FedsynthError):
            raise result[0]
        return result[0]


def _most_at_a_time(steps: Sequence[Step]) -> int:
    """As many nodes as clients work in one round: any node does for any client.

    Flower looks through all messages for each of its nodes, ten times a second. With a node for each of a thousand
    clients it does little else.
    """
    at_work: dict[int, set[str]] = {}
    for step in steps:
        if step.owner != "server" and step.command not in _BY_HAND:
            at_work.setdefault(step.round, set()).add(step.owner)
    return max(map(len, at_work.values()), default=1)
