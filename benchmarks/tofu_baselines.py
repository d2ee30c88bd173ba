"""TOFU against plain compression at equal bytes: updates of LeNet-5 after 0, 1, 5 and 20 epochs of FashionMNIST.

All through the stage functions, so bytes are those of the files and the cosine is the receiver's. Beside each of TOFU's
files is, of every other method, the one with the highest cosine among those that are no larger. The epochs are those of
another client; then a client trains an epoch of its own, and its update is encoded. At full size three seeds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import SHARED_DATA, Row, Setting, seconds

from fedsynth_cli.app import run as command
from stages.encode import encode
from stages.registry import ENCODERS

TITLE = "TOFU and plain compression at equal bytes"
_TOFU: tuple[dict[str, Any], ...] = (
    {"method": "tofu", "images": 16, "pixels": "uint8"},
    {"method": "tofu", "images": 64, "pixels": "uint8"},
)
_PLAIN: tuple[dict[str, Any], ...] = (
    *({"method": "quantised", "bits": bits, "rounding": "nearest"} for bits in range(1, 9)),
    *({"method": "quantised", "bits": bits, "rounding": "stochastic"} for bits in range(2, 9)),
    *({"method": "topk", "keep": keep} for keep in (0.01, 0.02, 0.03, 0.035, 0.05, 0.1, 0.13)),
    *({"method": "lowrank", "rank": rank} for rank in range(1, 13)),
    *({"method": "public-images", "images": images} for images in (64, 256)),
)
_METHODS = ("quantised", "topk", "lowrank", "public-images")


@dataclass(frozen=True)
class _Made:
    given: Mapping[str, Any]
    cosine: float
    size: int
    taken: float


def measure(setting: Setting) -> Iterator[Row]:
    whole = not setting.smoke and SHARED_DATA.is_dir()
    for epochs in (0, 1, 5, 20) if whole else (0, 1):
        found = []
        for seed in (0, 1, 2) if setting.full else (0,):
            folder = setting.folder / f"equal-bytes-{epochs}-{seed}"
            found.append(_all_methods(folder, epochs, str(seed), whole=whole, smoke=setting.smoke))
        for number, given in enumerate(_TOFU[: 1 if setting.smoke else None]):
            tofu = [made[number] for made in found]
            what = f"after {epochs} epochs, tofu, {given['images']} images"
            yield _row(what, tofu, "", None)
            for method in _METHODS:
                best = [_best(made, method, of.size) for made, of in zip(found, tofu, strict=True)]
                there = [one for one in best if one is not None]
                if len(there) == len(found):
                    yield _row(f"after {epochs} epochs, {_spelt(there[0].given)}", there, "tofu", tofu)


def _best(made: Sequence[_Made], method: str, most: int) -> _Made | None:
    fitting = [one for one in made if one.given["method"] == method and one.size <= most]
    return max(fitting, key=lambda one: one.cosine, default=None)


def _row(what: str, ours: Sequence[_Made], against: str, theirs: Sequence[_Made] | None) -> Row:
    cosines = [one.cosine for one in ours]
    return Row(
        what=what,
        against=f"{ours[0].size:,} bytes" if theirs is None else f"{against}, {theirs[0].size:,} bytes",
        ours=f"{_spread(cosines)} in {seconds(statistics.median(one.taken for one in ours))}",
        theirs="" if theirs is None else _spread([one.cosine for one in theirs]),
        raw={"cosines": cosines, "bytes": [one.size for one in ours], "seconds": [one.taken for one in ours]},
    )


def _spread(cosines: Sequence[float]) -> str:
    ends = f" ({min(cosines):.3f} to {max(cosines):.3f})" if len(cosines) > 1 else ""
    return f"{statistics.mean(cosines):.3f}{ends}"


def _spelt(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" if key != "method" else str(value) for key, value in given.items())


def _all_methods(run: Path, epochs: int, seed: str, *, whole: bool, smoke: bool) -> list[_Made]:
    """One update by all methods, TOFU's first."""
    source = ["fashion-mnist", "--root", SHARED_DATA, "--clients", "10"] if whole else ["digits", "--clients", "5"]
    training = ["--batch-size", "64", "--learning-rate", "0.1", "--seed", seed]
    model = run / "public/model-0000.safetensors"
    mine, other = run / "clients/00", run / "clients/01"
    _do("partition", *source, "--scheme", "iid", "--seed", seed, "-o", run)
    arch = "lenet5" if whole else "mlp"
    _do("init-model", "--arch", arch, "--like", run / "public/test.parquet", "--seed", seed, "-o", model)
    if epochs:
        before, message = other / "private/update-0001.safetensors", other / "outbox/message-0001.safetensors"
        later = run / "server/private/model-0001.safetensors"
        data = other / "private/data.parquet"
        _do("train-client", model, data, "--local-epochs", str(epochs), *training, "-o", before)
        _do("encode", model, before, "-o", message)
        _do("decode", model, message, "--apply", "-o", later)
        model = later
    update = mine / "private/update.safetensors"
    _do("train-client", model, mine / "private/data.parquet", "--local-epochs", "1", *training, "-o", update)
    few: dict[str, Any] = {"images": 4, "iterations": 2, "least_cosine": 0} if smoke else {}
    made = []
    for given in (*({**one, **few} for one in _TOFU[: 1 if smoke else None]), *_PLAIN):
        params: Any = ENCODERS.from_mapping(given)
        start = time.process_time()
        stated = encode(model, update, mine / "outbox/compressed.safetensors", params=params, force=True)
        made.append(_Made(given, stated["cosine"], stated["bytes"], time.process_time() - start))
    return made


def _do(*words: str | Path) -> None:
    if command([*map(str, words), "--quiet"]):
        raise RuntimeError(f"{words[0]} failed")
