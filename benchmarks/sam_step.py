"""A sharpness-aware local step against a plain one: two gradients, one norm, weights kept and put back.

Both sides are `train_locally` itself, on the same batches of 32. Two gradients make 2; what is above that is
the price of ours. Below 2 is possible: the optimiser's step and the loop are paid once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from measuring import Row, Setting, compared, take_turns

from stages.execution.torch_setup import set_up
from stages.methods.fedavg import FedAvg
from stages.methods.local_training import batch_gradients, batches, train_locally
from stages.methods.params.fedavg import FedAvgTraining
from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.registry import NETWORKS

TITLE = "A step of SAM"
_GOAL = 2.2
_BATCH = 32
# The size of the images, the number of steps, the network.
_CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "softmax, digits 8×8": (8, 100, {"arch": "softmax"}),
    "ConvNet 16×2, digits 8×8": (8, 30, {"arch": "convnet", "width": 16, "depth": 2}),
    "ConvNet 32×3, 28×28": (28, 3, {"arch": "convnet", "width": 32, "depth": 3}),
}
_SIDES: dict[str, dict[str, Any]] = {
    "plain": {},
    "SAM": {"sam_rho": 0.5},
    "adaptive SAM": {"sam_rho": 0.5, "adaptive_sam": True},
    "BLUR": {"update_bound": 0.2},
}


def measure(setting: Setting) -> Iterator[Row]:
    set_up("cpu")
    turns = 1 if setting.smoke else 15
    cases = dict(list(_CASES.items())[: 1 if setting.smoke else None])
    for name, (size, steps, net) in cases.items():
        sides = {side: _training(size, steps, net, values) for side, values in _SIDES.items()}
        taken = take_turns(sides, turns)
        for side in list(_SIDES)[1:]:
            goal = _GOAL if "SAM" in side else None
            yield compared(f"{name}: {steps} steps, {side}", "SGD", taken[side], taken["plain"], goal=goal)


def _training(size: int, steps: int, net: dict[str, Any], values: dict[str, Any]) -> Callable[[], None]:
    """Local training from the same weights each time."""
    params = FedAvgTraining(local_steps=steps, batch_size=_BATCH, learning_rate=0.01, momentum=0.5, **values)
    module = build(NETWORKS.from_mapping(net), InputShape(channels=1, height=size, width=size, num_classes=10))
    generator = torch.Generator().manual_seed(0)
    initialise(module, generator)
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    images = torch.rand((200, 1, size, size), generator=generator)
    labels = torch.randint(10, (200,), generator=generator)

    def train() -> None:
        module.load_state_dict(start)
        rows = batches(_BATCH, len(labels), steps, torch.Generator().manual_seed(0))
        gradients = batch_gradients(module, images, labels, rows, torch.Generator())
        train_locally(
            module, gradients, total=steps, params=params, algorithm=FedAvg(), round=1, report=lambda *_: None
        )

    return train
