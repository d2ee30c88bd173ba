"""`run --shrink`: a recipe's whole pipeline on a handful of images, in seconds.

To see that a preset for hours on a GPU is laid out right before it is begun. Images keep the size, the channels and the
classes of the source; networks are narrow, trainings and searches a step or two, rounds at most two. All else is as the
preset says: schemes, algorithms, noise, sampling rates, encodings, secure aggregation. The accuracy means nothing.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.errors import FedsynthError
from artifacts.writing import atomic
from stages.data.attributes import parse_attributes
from stages.data.images import LabelledImages
from stages.data.png import encode_png
from stages.data.sources import load
from stages.recipes.phases import PLATEAU
from stages.recipes.plan import check
from stages.recipes.recipe import Recipe, assigned, canonical
from stages.registry import SOURCES

FOLDER = "shrunk-source"
_ROUNDS, _PER_CLASS, _TEST_PER_CLASS = 2, 8, 2
_LEAST_SECURE = 3  # in a round: from the sum of two each knows what the other sent

# The most of each that a shrunk run takes. A rate for batches of 256 would diverge on noise in batches of eight.
_MOST: dict[str, dict[str, float]] = {
    "partition": {"clients": 4},
    "train-generator": {
        "steps": 2, "epochs": 1, "batch_size": 4, "base_width": 8, "residual_blocks": 1, "filters": 4,
        "hidden_size": 16, "latent_size": 4,
    },
    "synthesize": {"count": 10, "sampling_steps": 2},
    "init-model": {"width": 8},
    "train-client": {"local_epochs": 1, "local_steps": 2, "batch_size": 8, "learning_rate": 0.01},
    "encode": {
        "images_per_class": 1, "least_images": 1, "iterations": 2, "batches": 1, "trajectories": 2, "points": 2,
        "image_steps": 1, "model_steps": 1, "radius_steps": 2, "radius_examples": 8, "batch_size": 8, "images": 4,
        "least_cosine": 0.0,
    },
    "aggregate": {"server_steps": 2, "server_epochs": 1, "batch_size": 8},
}  # fmt: skip


def shrunk(recipe: Recipe, out: Path) -> Recipe:
    """The recipe, made small; its source is written under `out`, from the real one where that can be read."""
    axes = {target: values[:1] for target, values in recipe.sweep.items()}
    first = next((target for target in axes if target != "seed"), None)
    if first is not None and len(recipe.sweep[first]) > 1:
        axes[first] = [recipe.sweep[first][0], recipe.sweep[first][-1]]
    values: dict[str, Any] = {}
    made = check(_first_point(recipe))
    for command, params in made.items():
        effective = params.to_json()  # a parameter that has no effect may not be given
        for name, usual in _MOST.get(command, {}).items():
            found, most = effective.get(name), usual
            if name == "clients" and recipe.secure:
                most = max(usual, math.ceil(_LEAST_SECURE / recipe.participation))
            if isinstance(found, int | float) and not isinstance(found, bool) and found > most:
                values[f"{command}.{name}"] = most
    clients = values.get("partition.clients")
    least = recipe.section("encode").get("least_clients")
    if clients is not None and least is not None:
        # The same share of the clients must stay, and so the noise of each stays what it is for.
        values["encode.least_clients"] = max(2, math.ceil(clients * least / recipe.section("partition")["clients"]))
    if clients is not None and getattr(made.get("aggregate"), "adaptive_clip", False):
        # The count's noise σ_b stays what it is: with less, the count would cost more than the updates.
        share = recipe.section("partition")["clients"] / clients
        values["aggregate.count_noise"] = made["aggregate"].count_noise * share
    values |= _schedule(recipe)
    values["partition.source"] = str(_write_source(recipe.section("partition"), out / FOLDER))
    for name in ("root", "download", "emnist_split"):
        if name in recipe.section("partition"):
            values[f"partition.{name}"] = None
    small = assigned(recipe, values, source="--shrink")
    return _with_sweep(small, axes)


def _first_point(recipe: Recipe) -> Recipe:
    from stages.recipes.sweep import points

    return points(recipe, 0)[0].recipe if recipe.sweep else recipe


def _with_sweep(recipe: Recipe, axes: Mapping[str, list[Any]]) -> Recipe:
    """The same axes with fewer values, none of them above what a shrunk run takes."""
    from dataclasses import replace

    small = {}
    for target, values in axes.items():
        found = [
            # What a value brings with it is made small too.
            {key: _at_most(target if key == "value" else canonical(key), v) if key != "target" else v
             for key, v in value.items()}
            if isinstance(value, Mapping)
            else _at_most(target, value)
            for value in values
        ]  # fmt: skip
        small[target] = [value for number, value in enumerate(found) if value not in found[:number]]
    return replace(recipe, sweep=small)


def _at_most(target: str, value: Any) -> Any:
    command, _, name = target.rpartition(".")
    most = _MOST.get(command, {}).get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(value, most) if is_number and most is not None else value


def _schedule(recipe: Recipe) -> dict[str, Any]:
    """Two rounds, each of TOFU's phases in one of them: the change comes in the second."""
    values: dict[str, Any] = {"rounds": min(recipe.rounds, _ROUNDS)}
    if recipe.switch1 is not None and recipe.switch1 != PLATEAU:
        values["switch1"] = 1
    if recipe.switch2 is not None and recipe.switch2 != PLATEAU:
        values["switch2"] = values["rounds"]
    return values


def _write_source(section: Mapping[str, Any], folder: Path) -> Path:
    """A few images of each class, as Parquet: real ones, or noise of the same size if the data is not here."""
    try:
        found = load(str(section["source"]), root=_root(section), **_reading(section))
        train = _few(found.train, _PER_CLASS, 0)
        test = _few(found.test if found.test is not None else found.train, _TEST_PER_CLASS, _PER_CLASS)
    except FedsynthError:
        form = _form(section)
        if form is None:
            raise
        train, test = _noise(*form, _PER_CLASS, 0), _noise(*form, _TEST_PER_CLASS, 1)
    columns = [attribute.column for attribute in parse_attributes(section["by"])] if section.get("by") else []
    for split, data in (("train", train), ("test", test)):
        people = {section["unit_column"]: split} if section.get("unit_column") else {}
        atomic.write(folder / f"{split}.parquet", [_parquet(data, columns, people)], force=True)
    return folder


def _root(section: Mapping[str, Any]) -> Path | None:
    return Path(section["root"]) if section.get("root") else None


def _reading(section: Mapping[str, Any]) -> dict[str, Any]:
    names = ("emnist_split", "image_column", "label_column")
    return {name: section[name] for name in names if section.get(name) is not None}


def _few(data: LabelledImages, count: int, skipped: int) -> LabelledImages:
    """So many images of each class, in the order of the source, after the first `skipped` where there are more."""
    rows = []
    for label in np.unique(data.labels):
        members = np.flatnonzero(data.labels == label)
        rows.append(members[skipped:][:count] if len(members) > skipped else members[-count:])
    return data.take(np.sort(np.concatenate(rows)))


def _form(section: Mapping[str, Any]) -> tuple[tuple[int, int, int], int] | None:
    """The shape of a source's images and the number of its classes, if it says so itself."""
    if section["source"] not in SOURCES.words:
        return None
    named = SOURCES.from_mapping({"source": section["source"]})
    classes = named.num_classes(section.get("emnist_split"))
    return (named.shape, classes) if named.shape is not None and classes is not None else None


def _noise(shape: tuple[int, int, int], classes: int, count: int, seed: int) -> LabelledImages:
    labels = np.repeat(np.arange(classes, dtype=np.int64), count)
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), *shape), dtype=np.uint8)
    return LabelledImages(images, labels, tuple(str(label) for label in range(classes)))


def _parquet(data: LabelledImages, attributes: Sequence[str], people: Mapping[str, str]) -> bytes:
    """As Hugging Face writes it. Attributes by which clients are divided are made up, each in two values a class.

    So are people: two images of a class are one's, under a name that begins as `people` says of the column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pictures = [{"bytes": encode_png(_plain(image)), "path": None} for image in data.images]
    rank = np.array([np.count_nonzero(data.labels[:row] == label) for row, label in enumerate(data.labels)])
    made_up: dict[str, Any] = {name: (rank >> number) % 2 for number, name in enumerate(attributes)}
    for name, begin in people.items():
        made_up[name] = [f"{begin} {label} {number // 2}" for label, number in zip(data.labels, rank, strict=True)]
    table = pa.table({"image": pa.array(pictures, kind), "label": pa.array(data.labels, pa.int64()), **made_up})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _plain(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return image[0] if len(image) == 1 else image.transpose(1, 2, 0)
