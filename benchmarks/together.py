"""A round of many small clients: `train-client --together` against one client after the other.

500 clients, 50 of them a round, 120 images of 28×28 each, batches of 32, two passes. The first rows are the training
alone, of the same clients from the same weights on either side; the last are whole rounds of `run` with one process,
files, messages and the server's part included. At full size the paper's CNN is among the networks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import process_tree
import torch
from measuring import Row, Setting, compared, cpu_seconds, seconds, take_turns

from stages.execution.torch_setup import set_up
from stages.methods.fedavg import FedAvg
from stages.methods.local_training import batch_gradients, batches, train_locally
from stages.methods.params.fedavg import FedAvgTraining
from stages.methods.stacked_training import ClientTask, train_stacked
from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.registry import NETWORKS

TITLE = "Clients trained together"
_GOAL = 1 / 3
_IMAGES, _BATCH, _TOGETHER = 120, 32, 25
_NETS: dict[str, dict[str, Any]] = {
    "softmax": {"arch": "softmax"},
    "mlp 64": {"arch": "mlp"},
    "strided 4, 2,202 parameters": {"arch": "strided", "width": 4},
    "strided 8, 5,994 parameters": {"arch": "strided", "width": 8},
    "the paper's CNN": {"arch": "emnist-cnn"},
}


def measure(setting: Setting) -> Iterator[Row]:
    set_up("cpu")
    clients = 2 if setting.smoke else 50
    names = list(_NETS)[: 1 if setting.smoke else None if setting.full else 4]
    for name in names:
        for way, values in {"SGD": {}, "SAM": {"sam_rho": 0.1}}.items():
            sides = _sides(_NETS[name], clients, values)
            taken = take_turns(sides, 1 if setting.smoke else 3, clock=cpu_seconds)
            goal = _GOAL if name.startswith(("strided", "the paper")) else None
            yield compared(
                f"{name}, {clients} clients, {way}: training, processor time", "one by one", taken["together"],
                taken["alone"], goal=goal,
            )  # fmt: skip
    if not setting.smoke and process_tree.THERE:
        yield from _whole_rounds(setting)


def _sides(net: dict[str, Any], clients: int, values: dict[str, Any]) -> dict[str, Callable[[], None]]:
    module = build(NETWORKS.from_mapping(net), InputShape(channels=1, height=28, width=28, num_classes=10))
    generator = torch.Generator().manual_seed(0)
    initialise(module, generator)
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    images = torch.rand((clients, _IMAGES, 1, 28, 28), generator=generator) * 2 - 1
    labels = torch.randint(10, (clients, _IMAGES), generator=generator)
    usual = {"local_epochs": 2, "batch_size": _BATCH, "learning_rate": 0.05, "momentum": 0.5}
    one, many = FedAvgTraining(**usual, **values), FedAvgTraining(**usual, together=_TOGETHER, **values)
    total = one.num_steps([_IMAGES])

    def rows(client: int) -> Iterator[torch.Tensor]:
        return batches(_BATCH, _IMAGES, total, torch.Generator().manual_seed(client))

    def alone() -> None:
        for client in range(clients):
            module.load_state_dict(start)
            gradients = batch_gradients(module, images[client], labels[client], rows(client), torch.Generator())
            train_locally(
                module, gradients, total=total, params=one, algorithm=FedAvg(), round=1, report=lambda *_: None
            )

    def together() -> None:
        module.load_state_dict(start)
        for first in range(0, clients, _TOGETHER):
            some = range(first, min(first + _TOGETHER, clients))
            tasks = [ClientTask(images[client], labels[client], rows(client), total) for client in some]
            train_stacked(module, tasks, places=_TOGETHER, rows=_BATCH, params=many, round=1, report=lambda *_: None)

    return {"alone": alone, "together": together}


def _whole_rounds(setting: Setting) -> Iterator[Row]:
    """500 clients with three digits each: what is paid for each client besides its training weighs most there."""
    rounds = 4
    used: dict[str, list[float]] = {}
    for name, extra in {"alone": (), "together": (f"train-client.together={_TOGETHER}",)}.items():
        settings = ("partition.clients=500", "participation=0.1", *extra)
        words = [
            sys.executable, "-c", "from fedsynth_cli.app import main; main()", "run", "fedavg", "--workers", "1",
            "--rounds", str(rounds), "--quiet", "-o", setting.folder / name,
            *(word for value in settings for word in ("--set", value)),
        ]  # fmt: skip
        used[name] = [process_tree.run(words, setting.folder / "log").processor]
    yield compared(
        f"run fedavg, digits, 500 clients, {rounds} rounds: processor time", "one by one", used["together"],
        used["alone"], spell=seconds,
    )  # fmt: skip
