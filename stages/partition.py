"""`partition`: a simulation's run folder. A public dataset is divided among clients; the test split is public."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.errors import InputError, UsageError
from artifacts.formats.plain_data import read_json
from artifacts.identity import keys
from artifacts.kinds import Custody
from artifacts.metadata import Metadata, MetadataError, check_client_name
from artifacts.places import RunFolder
from artifacts.storage.fetched import without_options
from artifacts.writing import atomic
from stages.data.dataset_images import dataset_params, save_dataset
from stages.data.images import LabelledImages
from stages.data.mixing import hold_out, mix
from stages.data.params import PartitionParams
from stages.data.people import one_row_each, rows_of
from stages.data.schemes import Rows, divide, split_test
from stages.data.sources import load, plugin_of
from stages.execution.progress import Report, Summary, silent
from stages.execution.randomness import numpy_stream
from stages.execution.versions import versions
from stages.keygen import settle
from stages.pictures.class_counts import class_counts_picture
from stages.run_folder.files import numbered_clients

CENTRAL = "central"
"""The party without data of its own that `--central` makes a place for; it trains on what others send."""


def partition(
    source: str,
    out: Path,
    *,
    params: PartitionParams,
    seed: int,
    root: Path | None = None,
    download: bool = False,
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Write the run folder `out`, which the caller holds (see `locks`).

    Its record, `simulation/partition.json`, comes last: without it, run again.
    """
    run = RunFolder(out)
    record = run.simulation / "partition.json"
    found = load(
        source,
        root=root,
        download=download,
        id_column=params.id_column,
        unit_column=params.unit_column,
        by=params.by,
        image_size=params.image_size,
        fit=params.fit,
        bits=params.bits,
        channels=params.channels,
        image_column=params.image_column,
        label_column=params.label_column,
        emnist_split=params.emnist_split,
    )
    params = dataclasses.replace(params, **found.read_by)
    replace = force or not _is_done(record, source, params, seed)
    strange = next((about for about in found.origins if about.custody != "public"), None)
    if strange is not None:
        raise InputError(
            f"{source} is a {strange.custody} dataset of fedsynth's: a part of it would become the public test set. "
            "Partition a public source; `ingest` brings in a client's own data."
        )
    try:
        train, test = (found.train, found.test) if found.test is not None else _test_set(found.train, params, seed)
        # What is dealt out: rows, or people with all that they have.
        dealt = train if train.units is None else one_row_each(train)
        parts = divide(dealt, params, numpy_stream(seed, stage="partition", of="clients"))
    except ValueError as error:
        raise UsageError(f"--scheme {params.scheme}: {error}.") from error
    names = _client_names(dealt, parts, params)
    if params.mix:
        parts = mix(parts, params.mix, numpy_stream(seed, stage="partition", of="mixing"))
    kept, held_out = (
        {name: rows_of(train, some) for name, some in each.items()} for each in _held_out(names, parts, params, seed)
    )
    strangers = sorted(set(run.client_names()) - set(names) - ({CENTRAL} if params.central else set()))
    if strangers:
        raise InputError(f"{run.clients} holds the client {strangers[0]!r} of another partition. Choose another --out.")
    test = dataclasses.replace(test, units=None)
    _write(run.public / "test.parquet", test, "public", None, params, seed, force=replace)
    settle(run.server.key, keys.simulated(seed, "server"), force=replace)
    with atomic.explained(run.server.outbox):
        atomic.make_folder(run.server.outbox)
    for number, name in enumerate(names, start=1):
        private = _make_place(run, name, seed, force=replace)
        _write(private / "data.parquet", train.take(kept[name]), "private", name, params, seed, force=replace)
        aside = private / "held-out.parquet"
        if len(held_out[name]):
            _write(aside, train.take(held_out[name]), "private", name, params, seed, force=replace)
        else:
            atomic.remove(aside)  # of another --held-out
        report(number, len(names), f"client {name}")
    if params.central:
        _make_place(run, CENTRAL, seed, force=replace)
    counts = np.stack([train.take(rows).class_counts() for rows in kept.values()])
    picture = run.simulation / "partition.png"
    atomic.write(picture, [class_counts_picture(counts, train.class_names)], force=True)
    about: dict[str, Any] = {
        "source": without_options(source),
        **plugin_of(source),
        "seed": seed,
        "params": params.to_json(),
        "class_names": list(train.class_names),
        "test_examples": len(test),
        "clients": {name: [int(n) for n in row] for name, row in zip(names, counts, strict=True)},
        "held_out_examples": {name: len(rows) for name, rows in held_out.items() if len(rows)},
    }
    atomic.write(record, [json.dumps(about, indent=2, ensure_ascii=False).encode() + b"\n"], force=force)
    return {
        "out": str(out),
        "clients": len(names),
        "classes": len(train.class_names),
        "train_examples": int(counts.sum()),
        "held_out_examples": sum(map(len, held_out.values())),
        "test_examples": len(test),
        "picture": str(picture),
    }


def _is_done(record: Path, source: str, params: PartitionParams, seed: int) -> bool:
    """Whether this very partition was made before; another one is refused."""
    if not record.exists():
        return False
    try:
        found = read_json(record)
        before = (found["source"], found["seed"], found["params"])
    except (OSError, ValueError, KeyError, TypeError):
        raise atomic.exists_error(record) from None
    if before != (without_options(source), seed, params.to_json()):
        raise atomic.exists_error(record)
    return True


def _make_place(run: RunFolder, name: str, seed: int, *, force: bool) -> Path:
    """A participant's folders and its key; returns the private one."""
    place = run.client(name)
    settle(place.key, keys.simulated(seed, f"client {name}"), force=force)
    with atomic.explained(place.outbox):
        atomic.make_folder(place.outbox)
    return place.private


def _held_out(
    names: list[str], parts: list[Rows], params: PartitionParams, seed: int
) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """By client, the rows that are trained on and those that are not."""
    kept, held_out = {}, {}
    for name, rows in zip(names, parts, strict=True):
        rng = numpy_stream(seed, stage="partition", client=name, of="held out")
        kept[name], held_out[name] = hold_out(rows, params.held_out, rng)
    return kept, held_out


def _test_set(data: LabelledImages, params: PartitionParams, seed: int) -> tuple[LabelledImages, LabelledImages]:
    """The public test set. With natural ids whole ids are held out, else whole people: nobody is on both sides."""
    rng = numpy_stream(seed, stage="partition", of="test split")
    count = len(data if data.units is None else one_row_each(data))  # which refuses anyone who is at two places
    if params.scheme != "natural" or data.ids is None:
        kept, held_out = (rows_of(data, some) for some in split_test(count, params.test_fraction, rng))
        return data.take(kept), data.take(held_out)
    people = sorted(set(data.ids))
    _, chosen = split_test(len(people), params.test_fraction, rng)
    public = np.isin(np.array(data.ids), [people[index] for index in chosen])
    return data.take(np.flatnonzero(~public)), data.take(np.flatnonzero(public))


def _client_names(train: LabelledImages, parts: list[Rows], params: PartitionParams) -> list[str]:
    if params.clients is not None or train.ids is None:
        return numbered_clients(len(parts))
    names = [train.ids[int(rows[0])] for rows in parts]
    option = f"--id-column {params.id_column}" if params.scheme == "natural" else f"--by {params.by}"
    for name in names:
        try:
            check_client_name(name)
            if params.central and name == CENTRAL:
                raise MetadataError(f"client name {name!r} is not allowed: --central makes one of that name")
        except MetadataError as error:
            raise InputError(f"{option}: {error}. Give --clients N to deal the ids to numbered clients.") from None
    return names


def _write(
    path: Path, content: LabelledImages, custody: Custody, client: str | None, params: PartitionParams, seed: int,
    *, force: bool,
) -> None:  # fmt: skip
    """Replace what a killed run left: the same source, parameters and seed give the same bytes."""
    metadata = Metadata(
        kind="dataset",
        stage="partition",
        method=params.scheme,
        custody=custody,
        client=client,
        params=dataset_params(content),
        seed=seed,
        versions=versions("numpy", "pyarrow", "pillow"),
    )
    save_dataset(path, content, metadata, force=force)
