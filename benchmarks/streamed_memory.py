"""What looks at a dataset should take no more memory for 200,000 images of 64×64 than for 10,000.

Peak memory of each command, a process of its own, on random images, whose PNGs are as long as PNGs get. The network is
small: what a training needs beside its data is not measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from measuring import Row, Setting, megabytes, peak_memory

from artifacts.formats import dataset_writing
from artifacts.metadata import Metadata
from stages.data.png import encode_png
from stages.init_model import init_model
from stages.keygen import keygen
from stages.registry import NETWORKS

TITLE = "Memory of what looks at a dataset, by the number of images"
GOAL = 1.1
_SIDE, _POOL = 64, 100
_FEDLAP = "encode {model} {data} --method fedlap --images-per-class 1 --points 1 --batches 5 --image-steps 1"
_FEDDM = "encode {model} {data} --method feddm --images-per-class 1 --iterations 5"
_NOISY = "--noise-multiplier 1 --sampling-rate {rate}"
_COMMANDS = {
    "train-client, 100 steps of 32": "train-client {model} {data} --local-steps 100 -o {private}/update.safetensors",
    "train-generator, 20 steps of 32": (
        "train-generator {data} --family vae --filters 4 --hidden-size 8 --steps 20 --batch-size 32 "
        "-o {private}/generator.safetensors"
    ),
    "FedLAP's encode, 5 batches of 256": f"{_FEDLAP} --radius-steps 5 -o {{outbox}}/fedlap.safetensors",
    "the same under DP": f"{_FEDLAP} {_NOISY} -o {{outbox}}/fedlap-dp.safetensors",
    "FedDM's encode, 5 batches of 256 a class": f"{_FEDDM} -o {{outbox}}/feddm.safetensors",
    "the same under DP, 5 of 256 in all": f"{_FEDDM} {_NOISY} -o {{outbox}}/feddm-dp.safetensors",
    "evaluate": "evaluate {model} {data} -o {private}/metrics.json",
}


def measure(setting: Setting) -> Iterator[Row]:
    few, many = (100, 200) if setting.smoke else (10_000, 200_000)
    names = list(_COMMANDS)[-1:] if setting.smoke else list(_COMMANDS)
    places = {count: _prepared(setting.folder / f"images-{count}", count) for count in (few, many)}
    for name in names:
        peaks = {count: peak_memory(_command(name, place)) for count, place in places.items()}
        yield Row(
            what=f"{name}: {many:,} images",
            against=f"{few:,} images",
            ours=megabytes(peaks[many]),
            theirs=megabytes(peaks[few]),
            ratio=peaks[many] / peaks[few],
            goal=GOAL,
            raw={"few": peaks[few], "many": peaks[many]},
        )


def _prepared(folder: Path, count: int) -> dict[str, object]:
    """A client with so many images, and a model for them: what the commands name."""
    home, model = folder / "clients/00", folder / "model.safetensors"
    data = home / "private/data.parquet"
    keygen(home / "private/client.key")
    _write_images(data, count)
    init_model(data, model, params=NETWORKS.from_mapping({"arch": "convnet", "width": 8, "depth": 2}), seed=0)
    return {"model": model, "data": data, "private": data.parent, "outbox": home / "outbox", "rate": 256 / count}


def _write_images(path: Path, count: int) -> None:
    """Drawn from a few random ones, so that writing takes no time."""
    rng = np.random.default_rng(0)
    pool = [encode_png(rng.integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8)) for _ in range(_POOL)]
    images, lengths = pa.array(pool, pa.binary()), np.array([len(png) for png in pool])
    params = {"num_classes": 2, "channels": 3, "height": _SIDE, "width": _SIDE, "class_names": ["a", "b"]}
    about = Metadata(kind="dataset", stage="partition", custody="private", client="00", params=params, versions={})
    rows = rng.integers(0, _POOL, count)
    groups = (images.take(pa.array(rows[first : first + 1000])) for first in range(0, count, 1000))
    dataset_writing.stage(path, rows % 2, lengths[rows], groups, about)


def _command(name: str, place: dict[str, object]) -> list[str]:
    program = [sys.executable, "-c", "from fedsynth_cli.app import main; main()"]
    return [*program, *_COMMANDS[name].format_map(place).split(), "--quiet"]
