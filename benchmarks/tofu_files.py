"""TOFU's proxies as files: what fewer bits a pixel cost, and what the proxy of the round before is worth as a start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import SHARED_DATA, TINY_NET, Row, Setting

from fedsynth_cli.app import run as command
from stages.methods.params.tofu import TofuEncoding
from stages.proxies.encoder import encode_proxy
from stages.recipes.recipe import change, load_recipe
from stages.recipes.runner import run

TITLE = "TOFU's proxies as files"
_ROUND = 10


def measure(setting: Setting) -> Iterator[Row]:
    yield from _pixels(setting)
    yield from _starts(setting)


def _pixels(setting: Setting) -> Iterator[Row]:
    """One update of LeNet-5 on FashionMNIST, or of a small network on digits."""
    whole = not setting.smoke and SHARED_DATA.is_dir()
    run = setting.folder / "pixels"
    source = ["fashion-mnist", "--root", SHARED_DATA, "--clients", "10"] if whole else ["digits", "--clients", "5"]
    arch, images, steps = ("lenet5", 64, 125) if whole else ("mlp", 4, 5)
    training = ["--local-epochs", "1", "--batch-size", "64", "--learning-rate", "0.1"]
    model, update = run / "public/model-0000.safetensors", run / "clients/00/private/update-0001.safetensors"
    data, out = run / "clients/00/private/data.parquet", run / "clients/00/outbox/proxy-0001.safetensors"
    _do("partition", *source, "--scheme", "iid", "-o", run)
    _do("init-model", "--arch", arch, "--like", run / "public/test.parquet", "-o", model)
    _do("train-client", model, data, *training, "-o", update)
    for pixels in ("float32", "float16", "uint8"):
        made = encode_proxy(
            model, update, out, params=_params(images=images, pixels=pixels, iterations=steps), device="cpu", force=True
        )
        yield _row(f"{arch}, {images} images, pixels as {pixels}", made, f"{made['bytes']:,} bytes")


def _starts(setting: Setting) -> Iterator[Row]:
    """A client's update of a later round of the recipe `tofu`, from noise and from its proxy of the round before."""
    folder, last = setting.folder / "starts", 2 if setting.smoke else _ROUND
    small = (*TINY_NET, "partition.clients=2", "encode.iterations=2") if setting.smoke else ()
    run(change(load_recipe("tofu"), small, last), folder, seed=0, workers=1 if setting.smoke else os.cpu_count() or 1)
    client = folder / "clients/00"
    model = client / f"private/model-{last - 1:04}.safetensors"
    update = client / f"private/update-{last:04}.safetensors"
    before = client / f"outbox/proxy-{last - 1:04}.safetensors"
    out = client / "outbox/again.safetensors"
    for steps in (2,) if setting.smoke else (15, 60):
        for init, previous in (("noise", None), ("previous", before)):
            params = _params(images=16, iterations=steps, init=init)
            made = encode_proxy(model, update, out, params=params, previous=previous, device="cpu", force=True)
            yield _row(f"digits, round {last}, {steps} steps from {init}", made, "16 images")


def _params(**given: Any) -> TofuEncoding:
    return TofuEncoding.from_mapping(given)


def _row(what: str, made: dict[str, Any], beside: str) -> Row:
    raw = {"cosine": made["cosine"], "bytes": made["bytes"]}
    return Row(what=what, ours=f"cosine {made['cosine']:.3f}", theirs=beside, raw=raw)


def _do(*words: str | int | Path) -> None:
    if command([*map(str, words), "--quiet"]):
        raise RuntimeError(f"{words[0]} failed")
