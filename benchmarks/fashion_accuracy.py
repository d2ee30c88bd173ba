"""What a short run reaches on real images: FashionMNIST from ../shared/data, where it is, with the wall time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import rounds
from measuring import SHARED_DATA, Row, Setting, seconds

from stages.recipes.runner import run

ABOUT = "accuracy of FedAvg on FashionMNIST after a short run (only where ../shared/data is)"
_ROUNDS = 10


def measure(setting: Setting) -> Iterator[Row]:
    if setting.quick or not SHARED_DATA.is_dir():
        return
    recipe = replace(rounds.fashion_mnist(), rounds=_ROUNDS)
    workers = os.cpu_count() or 1
    start = time.perf_counter()
    summary = run(recipe, setting.folder / "fashion", seed=0, workers=workers)
    taken = time.perf_counter() - start
    yield Row(
        what=f"FashionMNIST, FedAvg, 10 clients, {_ROUNDS} rounds of 10 steps",
        against="(no peer)",
        ours=f"{summary['accuracy']:.1%} in {seconds(taken)}",
        theirs="",
        raw={"accuracy": summary["accuracy"], "seconds": taken, "workers": workers, "curve": summary["curve"]},
    )
