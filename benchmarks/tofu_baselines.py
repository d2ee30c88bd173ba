"""TOFU against plain compression: one update of LeNet-5 after five epochs; bytes, cosine and processor seconds.

All through the stage functions, so bytes are those of the files and the cosine is the receiver's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import SHARED_DATA, Row, Setting, seconds

from fedsynth_cli.app import run as command
from stages.encode import encode
from stages.registry import ENCODERS

TITLE = "TOFU and plain compression at equal bytes"
_TOFU = (
    {"method": "tofu", "images": 16, "pixels": "uint8"},
    {"method": "tofu", "images": 64, "pixels": "uint8"},
    {"method": "tofu", "images": 64, "pixels": "float32"},
)
_PLAIN = (
    *({"method": "quantised", "bits": bits, "rounding": "nearest"} for bits in (1, 2, 4)),
    *({"method": "quantised", "bits": bits, "rounding": "stochastic"} for bits in (2, 4, 8)),
    *({"method": "topk", "keep": keep} for keep in (0.01, 0.05, 0.1)),
    *({"method": "lowrank", "rank": rank} for rank in (1, 2, 4, 8)),
    *({"method": "public-images", "images": images} for images in (64, 256)),
)


def measure(setting: Setting) -> Iterator[Row]:
    run, whole = setting.folder / "equal-bytes", not setting.smoke and SHARED_DATA.is_dir()
    source = ["fashion-mnist", "--root", SHARED_DATA, "--clients", "10"] if whole else ["digits", "--clients", "5"]
    training = ["--batch-size", "64", "--learning-rate", "0.1"]
    first, model = run / "public/model-0000.safetensors", run / "server/private/model-0001.safetensors"
    mine, other = run / "clients/00", run / "clients/01"
    before, message = other / "private/update-0001.safetensors", other / "outbox/message-0001.safetensors"
    update = mine / "private/update-0002.safetensors"
    epochs = "5" if whole else "1"
    _do("partition", *source, "--scheme", "iid", "-o", run)
    _do("init-model", "--arch", "lenet5" if whole else "mlp", "--like", run / "public/test.parquet", "-o", first)
    _do("train-client", first, other / "private/data.parquet", "--local-epochs", epochs, *training, "-o", before)
    _do("encode", first, before, "-o", message)
    _do("decode", first, message, "--apply", "-o", model)
    _do("train-client", model, mine / "private/data.parquet", "--local-epochs", "1", *training, "-o", update)
    few: dict[str, Any] = {"images": 4, "iterations": 2, "least_cosine": 0} if setting.smoke else {}
    for given in (*({**one, **few} for one in _TOFU[: 1 if setting.smoke else None]), *_PLAIN):
        params: Any = ENCODERS.from_mapping(given)
        out = mine / "outbox/compressed-0002.safetensors"
        start = time.process_time()
        made = encode(model, update, out, params=params, force=True)
        taken = time.process_time() - start
        yield Row(
            what=", ".join(f"{key} {value}" if key != "method" else str(value) for key, value in given.items()),
            ours=f"cosine {made['cosine']:.3f} in {seconds(taken)}",
            theirs=f"{made['bytes']:,} bytes",
            raw={"cosine": made["cosine"], "bytes": made["bytes"], "seconds": taken},
        )


def _do(*words: str | Path) -> None:
    if command([*map(str, words), "--quiet"]):
        raise RuntimeError(f"{words[0]} failed")
