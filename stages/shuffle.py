"""`shuffle`: the clients' synthetic datasets, mixed over all contributors and split into parts (Fedssyn, lines 8–9).

The images are never in memory as a whole: of each row a few numbers are, the image itself goes through a file. Each
input is read twice, which is the least: for its digest, without which no order may be drawn, and for its images. A part
is hashed as it is written. No row's origin can be found out from its part, its place in it, the row groups or the
metadata.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from artifacts.digests import sha256_hex
from artifacts.errors import InputError, UsageError
from artifacts.formats import dataset_rows, dataset_stream, dataset_writing
from artifacts.formats.dataset_stream import DatasetStream
from artifacts.formats.parquet_layout import ROWS_PER_GROUP
from artifacts.kinds import DATASET_PARAMS
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from artifacts.places import OUTBOX, Place
from artifacts.publish import prepare, publish_staged
from artifacts.writing import atomic, scratch
from stages.data.png import check_plain
from stages.data.spill import Plan, Spill
from stages.declared import check_params
from stages.execution.progress import Report, Summary, silent
from stages.execution.randomness import numpy_stream
from stages.execution.versions import versions
from stages.models.next_model import events_of, recording
from stages.run_folder.files import numbered_clients

_PART = re.compile(r"synthetic-[0-9]+\.parquet")
_SPILL = "shuffle"


def shuffle(
    datasets: Sequence[Path], out: Path, *, parts: int, seed: int, force: bool = False, report: Report = silent
) -> Summary:
    """Mix the datasets into `parts` files in the outbox `out`; nothing is written if any of them is refused."""
    names = _check_outputs(datasets, out, parts)
    place = Place(out.absolute().parent)
    scratch.sweep(place.private, _SPILL)
    inputs = _scan(datasets, report)
    rows = sum(len(found) for found in inputs)
    if not rows:
        raise InputError(f"{'the dataset holds' if len(inputs) == 1 else 'the datasets hold'} no rows to shuffle.")
    if parts > rows:
        raise UsageError(f"--parts {parts} is more than the {rows} rows that there are. Give at most {rows}.")
    metadata = _metadata([found.metadata for found in inputs])
    # The digests of the inputs are in the stream's name: the seed alone (0, if none is given) must not be enough to
    # compute the order again, and with it the origin of each row. Nobody but the server has all the inputs.
    mixture = sha256_hex("".join(found.sha256 for found in inputs).encode())
    rng = numpy_stream(seed, stage="shuffle", round=metadata.round, of=mixture)
    with scratch.scratch(place.private, _SPILL) as folder:
        plan, inputs = _draw(inputs, parts, rng)
        staged = _mix(plan, inputs, folder, metadata, names, report)
        references = [lineage.by_digest(found, "dataset") for found in inputs]
        with recording(names[0]):
            for _, sha256, path in staged:
                atomic.refuse_other(path, sha256, force=force)
            for temporary, sha256, path in staged:
                # Written before the part: a part in an outbox always has its record.
                lineage.write_record(place.private / f"{path.stem}.lineage.json", path, references, force=force)
                publish_staged(temporary, sha256, path, metadata, force=force)
    return {
        "out": str(out),
        "parts": parts,
        "datasets": len(inputs),
        "rows": rows,
        "rows_per_part": rows // parts if rows % parts == 0 else f"{rows // parts} or {rows // parts + 1}",
        "bytes_in": sum(found.size for found in inputs),
        "bytes_out": sum(path.stat().st_size for _, _, path in staged),
    }


def _check_outputs(datasets: Sequence[Path], out: Path, parts: int) -> list[Path]:
    """Where the parts will be, if they may; before any input is read."""
    if parts < 1:
        raise UsageError(f"--parts must be at least 1, found {parts}.")
    if not datasets:
        raise UsageError("shuffle needs at least one dataset.")
    if out.absolute().name != OUTBOX:
        raise UsageError(f"--out {out} must be a folder named {OUTBOX}/: the parts leave, and its ledger records them.")
    for path in datasets:
        if path.absolute().parent == out.absolute():
            raise UsageError(f"--out {out} is the outbox that {path} came out of. Give the server's own.")
    paths = [out / f"synthetic-{number}.parquet" for number in numbered_clients(parts)]
    for path in paths:
        prepare(path, "downlink")
    found = {path.name for path in out.iterdir() if _PART.fullmatch(path.name)} if out.is_dir() else set()
    strangers = sorted(found - {path.name for path in paths})
    if strangers:
        raise InputError(f"{out} holds {strangers[0]} of a shuffle into more parts. Remove it first.")
    return paths


def _scan(datasets: Sequence[Path], report: Report) -> list[DatasetStream]:
    """Each dataset; refused by name if it does not belong. By client, so that their order is free."""
    owners: dict[str, DatasetStream] = {}
    first: DatasetStream | None = None
    for number, path in enumerate(datasets, start=1):
        found = dataset_stream.begin(path)
        owner = _contributor(found)
        if owner in owners:
            raise InputError(f"{path} and {owners[owner].path} are both from client {owner!r}: a client counts once.")
        first = found if first is None else first  # not `or`: one without rows is false
        _check_alike(found, first)
        owners[owner] = found
        report(number, len(datasets), f"checked {path.name}")
    return [owners[owner] for owner in sorted(owners)]


def _contributor(found: DatasetStream) -> str:
    """The client that sent the file, by what the file says and by the folder that it is in."""
    path, metadata = found.path, found.metadata
    if metadata.custody == "private":
        raise InputError(
            f"{path} is private data, which never leaves its client. Shuffle what `synthesize` made of it."
        )
    if metadata.custody != "outbound" or metadata.client is None:
        raise InputError(f"{path} is a {metadata.custody} dataset; one that a client sent (outbound) is needed.")
    check_params(path, metadata)
    place = Place.of(path)
    if place is not None and place.outbox == path.absolute().parent and place.base.parent.name == "clients":
        folder = place.base.name
        if folder != metadata.client:
            raise InputError(f"{path} says it is from client {metadata.client!r}, but is in the outbox of {folder!r}.")
    return metadata.client


def _check_alike(found: DatasetStream, first: DatasetStream) -> None:
    for name in sorted(DATASET_PARAMS):
        ours, theirs = found.metadata.params[name], first.metadata.params[name]
        if ours != theirs:
            what = name.replace("_", " ")
            raise InputError(f"{found.path} has other {what} than {first.path}: {ours}, not {theirs}.")
    if found.metadata.round != first.metadata.round:
        rounds = f"{found.metadata.round}, not {first.metadata.round}"
        raise InputError(f"{found.path} is of another round than {first.path}: {rounds}.")


def _metadata(inputs: Sequence[Metadata]) -> Metadata:
    """The same for each part: no inputs, client, seed or count that would tell who contributed.

    The number of parts is left out too: it is mostly the number of clients. Of the clients' events there is one of each
    kind, whose id says nothing of whose they were; the clients' own stay in their files.
    """
    return Metadata(
        kind="dataset",
        stage="shuffle",
        custody="downlink",
        round=inputs[0].round,
        params={name: inputs[0].params[name] for name in DATASET_PARAMS},
        privacy=events_of([metadata.privacy for metadata in inputs]),
        disclosures=_disclosures(inputs),
        simulation=any(metadata.simulation for metadata in inputs),
        versions=versions("numpy", "pyarrow"),
    )


def _disclosures(inputs: Sequence[Metadata]) -> tuple[str, ...]:
    """What the inputs disclose about private data and the mixture still discloses about one client's.

    - `derived_images`, `real_image_init` and whatever else is about an image: mixing does not change an image.
    - `class_counts` and `num_examples` of one client: the parts tell the sum over the contributors only. With one
      contributor that is its own number, with two each subtracts its own and has the other's. From three on a
      contributor alone learns no other's (all others together still do; so they would with any aggregate).
    - `class_set`: a class that is not in the mixture is in no client's data, so it stays; and it takes the place of
      `class_counts`, whose zeros say the same.
    """
    stated = {name for metadata in inputs for name in metadata.disclosures}
    if len(inputs) >= 3:
        if "class_counts" in stated:
            stated.add("class_set")
        stated -= {"class_counts", "num_examples"}
    return tuple(sorted(stated))


def _draw(inputs: list[DatasetStream], parts: int, rng: np.random.Generator) -> tuple[Plan, list[DatasetStream]]:
    """Draw the order. Returns the inputs too, sharing the plan's memory.

    The permutation is uniform: `rng.shuffle` is Fisher and Yates' (the last place gets one of all n rows with equal
    chance, the place before it one of the n − 1 others, …: n! ways of drawing, one for each permutation, each of
    chance 1/n!; numpy draws the bounded integers by rejection, without bias). The spill carries out this very
    permutation and adds no randomness of its own. Cutting it into parts at fixed places changes nothing.
    """
    labels = np.concatenate([found.labels for found in inputs])
    lengths = np.concatenate([found.lengths for found in inputs])
    rows = len(labels)
    bounds = np.cumsum([0, *(len(found) for found in inputs)]).tolist()
    shared = [
        replace(found, labels=labels[a:b], lengths=lengths[a:b])
        for found, a, b in zip(inputs, bounds, bounds[1:], strict=False)
    ]
    if rows > np.iinfo(np.uint32).max:
        raise InputError(f"{rows} rows are more than one shuffle takes.")
    source = np.arange(rows, dtype=np.uint32)
    rng.shuffle(source)
    groups, end = [], 0
    for part in range(parts):
        first, end = end, end + rows // parts + (part < rows % parts)
        size = ROWS_PER_GROUP
        groups.append([(start, min(start + size, end)) for start in range(first, end, size)])
    return Plan(source, labels, lengths, groups), shared


def _mix(
    plan: Plan, inputs: list[DatasetStream], folder: Path, metadata: Metadata, names: list[Path], report: Report
) -> list[tuple[Path, str, Path]]:
    """Carry the plan out: inputs → spill → parts, staged in `folder`. Of each: where it is, its digest, its name."""
    total, row = len(plan.source), 0
    staged: list[tuple[Path, str, Path]] = []
    with atomic.explained(folder), Spill(folder / "rows", plan) as spill:
        for found in inputs:
            first = row
            for images in found.images():
                _check_images(images, found, row - first)
                spill.put(row, images)
                row += len(images)
                report(row, 2 * total, f"mixing {found.path.name}")
        number = 0
        for path, groups in zip(names, plan.parts, strict=True):
            rows = plan.source[groups[0][0] : groups[-1][1]]
            numbers = range(number, number + len(groups))
            temporary = folder / path.name
            images_of_part = (spill.take(n) for n in numbers)
            columns = plan.labels[rows], plan.lengths[rows]
            staged.append((temporary, dataset_writing.stage(temporary, *columns, images_of_part, metadata), path))
            number += len(groups)
            report(total + groups[-1][1], 2 * total, f"wrote {path.name}")
    return staged


def _check_images(images: pa.BinaryArray, found: DatasetStream, first: int) -> None:
    """PNGs of the declared size with room for nothing but pixels: anywhere else a client could mark its rows."""
    shape = dataset_rows.image_shape(found.metadata)
    for row, image in enumerate(images.to_pylist(), start=first):
        try:
            check_plain(image, shape)
        except ValueError as error:
            raise InputError(f"{found.path}, row {row}: {error}. Get the file again.") from error
