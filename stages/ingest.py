"""`ingest`: a participant's own images as a dataset that all stages read. It stays where it is written.

Classes and image size are the federation's, as its public test set has them: two clients that number their classes
differently would train one model on two meanings.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from artifacts.errors import InputError, UsageError
from artifacts.kinds import Custody
from artifacts.metadata import Metadata
from artifacts.places import PRIVATE, client_of
from artifacts.publish import prepare
from stages.data.dataset_images import dataset_params, load_dataset, save_dataset
from stages.data.images import LabelledImages
from stages.data.sources import load
from stages.progress import Summary
from stages.versions import versions

_PUBLIC = "public"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a source is read, as `partition` has it."""

    image_size: int | None = None
    channels: int | None = None
    image_column: str | None = None
    label_column: str | None = None


def ingest(
    source: str, out: Path, *, reading: Reading, like: Path | None = None, client: str | None = None,
    force: bool = False,
) -> Summary:  # fmt: skip
    """Write the source's images (of a folder with splits, the training split) to `out`, in `private/` or `public/`."""
    folder = out.absolute().parent.name
    if folder not in (PRIVATE, _PUBLIC):
        raise UsageError(f"{out}: write a client's data into its private/, a test set for everybody into public/.")
    custody: Custody = "private" if folder == PRIVATE else "public"
    owner = client_of(out, client) if custody == "private" else None
    prepare(out, custody, force=force)
    found = load(
        source, image_size=reading.image_size, channels=reading.channels, image_column=reading.image_column,
        label_column=reading.label_column,
    ).train  # fmt: skip
    # Whom a row belongs to is no business of any stage after this.
    content = LabelledImages(found.images, found.labels, found.class_names)
    if like is not None:
        content = _like(content, load_dataset(like).content, source, like)
    metadata = Metadata(
        kind="dataset", stage="ingest", custody=custody, client=owner, params=dataset_params(content),
        versions=versions("numpy", "pyarrow", "pillow"),
    )  # fmt: skip
    save_dataset(out, content, metadata, force=force)
    return {"out": str(out), "custody": custody, "examples": len(content), "classes": len(content.class_names)}


def _like(content: LabelledImages, example: LabelledImages, source: str, like: Path) -> LabelledImages:
    """The same images under the example's classes, by name; `InputError` where they do not fit."""
    if content.images.shape[1:] != example.images.shape[1:]:
        ours, theirs = list(content.images.shape[1:]), list(example.images.shape[1:])
        raise InputError(f"{source} has images [c, h, w] {ours}, {like} has {theirs}: give --image-size or --channels.")
    number = {name: index for index, name in enumerate(example.class_names)}
    unknown = sorted({content.class_names[label] for label in np.unique(content.labels)} - number.keys())
    if unknown:
        raise InputError(f"{source} has the class {unknown[0]!r}, which {like} does not know: {', '.join(number)}.")
    numbers = np.array([number.get(name, -1) for name in content.class_names], dtype=np.int64)
    return LabelledImages(content.images, numbers[content.labels], example.class_names)
