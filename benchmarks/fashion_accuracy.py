"""What a short run reaches on real images, and the time that it takes, start-up and evaluation included.

FashionMNIST, ten clients, the 32-wide ConvNet, ten local steps a round, one seed, as many workers as cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import rounds
from measuring import SHARED_DATA, TINY_NET, Row, Setting, seconds

from stages.recipes.recipe import change, load_recipe
from stages.recipes.runner import run

TITLE = "FedAvg on FashionMNIST"
_ROUNDS = 10


def measure(setting: Setting) -> Iterator[Row]:
    if setting.smoke:
        data, recipe, workers = "digits", change(load_recipe("fedavg"), TINY_NET, 1), 1
    elif SHARED_DATA.is_dir():
        data, recipe, workers = "FashionMNIST", replace(rounds.fashion_mnist(), rounds=_ROUNDS), os.cpu_count() or 1
    else:
        return
    start = time.perf_counter()
    summary = run(recipe, setting.folder / "run", seed=0, workers=workers)
    taken = time.perf_counter() - start
    yield Row(
        what=f"{data}, FedAvg, {recipe.rounds} rounds",
        ours=f"{summary['accuracy']:.1%} in {seconds(taken)}",
        raw={"accuracy": summary["accuracy"], "seconds": taken, "workers": workers, "curve": summary["curve"]},
    )
