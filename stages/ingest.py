"""`ingest`: a participant's own images as a dataset that all stages read. It stays where it is written.

Classes and image size are the federation's, as its public test set has them: two clients that number their classes
differently would train one model on two meanings.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from artifacts.errors import InputError, UsageError
from artifacts.identity import keys
from artifacts.kinds import Custody
from artifacts.metadata import Metadata
from artifacts.places import PRIVATE, Place, client_of
from artifacts.publish import prepare
from stages.charging.spending import understood
from stages.data.conform import Form
from stages.data.dataset_images import dataset_params, save_dataset
from stages.data.images import LabelledImages
from stages.data.labelled_folder import LabelledScans, load_labelled
from stages.data.medical import ScanReading
from stages.data.params import Fit
from stages.data.schema import Schema, read_schema, schema_like
from stages.data.sources import Source, load
from stages.execution.progress import Summary
from stages.execution.versions import versions
from stages.privacy.events import PrivacyEvent, distinct
from stages.words import counted

_log = logging.getLogger("fedsynth")
_PUBLIC = "public"
_RECORDS = ("partition", "ingest")  # the stages whose rows are the records themselves


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a source is read, as `partition` has it."""

    image_size: int | None = None
    fit: Fit | None = None
    channels: int | None = None
    bits: int | None = None
    image_column: str | None = None
    label_column: str | None = None
    unit_column: str | None = None
    skip_bad: bool = False
    labels: Path | None = None
    scans: ScanReading = ScanReading()


def ingest(
    source: str, out: Path, *, reading: Reading, like: Path | None = None, schema: Path | None = None,
    client: str | None = None, force: bool = False,
) -> Summary:  # fmt: skip
    """Write the source's images (of a folder with splits, the training split) to `out`, in `private/` or `public/`.

    `like`, a public dataset, or `schema`, a file that was agreed on, fixes classes and image size. The result says so,
    and only then may it be trained on (privacy contract, rule 28). What files of fedsynth's among the source cost and
    disclosed goes with their images (rule 30). `reading.unit_column` names whose each row is: people become numbers,
    which stay in the private file, and `--unit person` protects all that one of them has (rule 32).
    """
    folder = out.absolute().parent.name
    if folder not in (PRIVATE, _PUBLIC):
        raise UsageError(f"{out}: write a client's data into its private/, a test set for everybody into public/.")
    custody: Custody = "private" if folder == PRIVATE else "public"
    owner = client_of(out, client) if custody == "private" else None
    prepare(out, custody)
    if reading.unit_column is not None and custody == "public":
        raise UsageError("--unit-column says whose each row is, which stays private: write into NAME/private/.")
    if like is not None and schema is not None:
        raise UsageError("--like and --schema both say what the classes are: give one.")
    given = like or schema
    fixed = None if given is None else schema_like(given) if like is not None else read_schema(given)
    origins: tuple[Metadata, ...] = ()
    text = 0
    if reading.labels is not None:
        read = _labelled(source, out, reading, fixed)
        found, left_out_paths, text = read.content, read.left_out, read.text_not_said
    else:
        if reading.scans != ScanReading():
            raise UsageError("--window, --slices and --blank are for scans with a CSV of labels: give --labels.")
        loaded = _loaded(source, reading, fixed)
        found, left_out_paths, origins = loaded.train, loaded.left_out, loaded.origins
    past = _past(origins, custody, source)
    content = LabelledImages(found.images, found.labels, found.class_names, units=found.units)
    if fixed is not None:
        content = _fitted(content, fixed, source, str(given))
    metadata = replace(
        past, kind="dataset", stage="ingest", custody=custody, client=owner, params=dataset_params(content),
        inputs=(fixed.reference,) if fixed is not None else (), versions=versions("numpy", "pyarrow", "pillow"),
    )  # fmt: skip
    save_dataset(out, content, metadata, force=force)
    left_out = {"left_out": [str(path) for path in left_out_paths]} if reading.skip_bad else {}
    if text:
        _log.warning(
            "warning: %s does not say whether text is burnt into its pixels. Look at the images before you train on "
            "them; --blank makes a part of every one black.", counted(text, "DICOM or NIfTI file"),
        )  # fmt: skip
    return {
        "out": str(out), "custody": custody, "examples": len(content), "classes": len(content.class_names),
        **({} if content.units is None else {"people": int(content.units.max()) + 1}), **left_out,
    }  # fmt: skip


def _loaded(source: str, reading: Reading, fixed: Schema | None) -> Source:
    return load(
        source, image_size=_size(reading, fixed), fit=reading.fit or "stretch", channels=_channels(reading, fixed),
        bits=reading.bits, image_column=reading.image_column, label_column=reading.label_column,
        unit_column=reading.unit_column, skip_bad=reading.skip_bad,
    )  # fmt: skip


def _labelled(source: str, out: Path, reading: Reading, fixed: Schema | None) -> LabelledScans:
    """A folder whose classes are in a CSV. The client's key hides the order of people; in public there are none."""
    folder, place = Path(source), Place.of(out)
    if not folder.is_dir():
        raise InputError(f"{source}: --labels goes with a folder of images or scans, and there is none.")
    if reading.image_column is not None:
        raise UsageError("--image-column is for Parquet: the CSV has the column file.")
    if place is not None and not place.key.exists():
        raise UsageError(
            "--labels needs the client's key, so that nothing is left of the order of people: make it with "
            f"fedsynth keygen -o {place.key}."
        )
    size = _size(reading, fixed)
    form = Form(
        size=(size, size) if isinstance(size, int) else size, channels=_channels(reading, fixed),
        fit=reading.fit or "stretch", bits=reading.bits, skip_bad=reading.skip_bad,
    )  # fmt: skip
    assert reading.labels is not None
    return load_labelled(
        folder, reading.labels, form, scans=reading.scans, key=keys.read(place.key) if place is not None else None,
        label_column=reading.label_column or "label", unit_column=reading.unit_column,
    )  # fmt: skip


def _channels(reading: Reading, fixed: Schema | None) -> int | None:
    return reading.channels or (None if fixed is None else fixed.shape[0])


def _size(reading: Reading, fixed: Schema | None) -> int | tuple[int, int] | None:
    """As given; else the size that was agreed on."""
    if reading.bits is not None and not 1 <= reading.bits <= 16:
        raise UsageError(f"--bits must be from 1 to 16, found {reading.bits}.")
    if reading.image_size is not None:
        return reading.image_size
    if fixed is None and reading.fit is None:
        return None
    if fixed is None:
        raise UsageError(
            "--fit says how images are resized: give --image-size, or --like or --schema, which say to what."
        )
    return fixed.shape[1], fixed.shape[2]


def _past(origins: Sequence[Metadata], custody: Custody, source: str) -> Metadata:
    """What the files cost and disclosed until now, or a refusal: it must not get lost on the way into another file."""
    for metadata in origins:
        if custody == "public" and metadata.custody != "public":
            raise InputError(
                f"{source} holds a {metadata.custody} dataset of fedsynth's: ingested into public/ it would pass for "
                "public. Write it into private/."
            )
        bare = not (metadata.privacy or metadata.disclosures)
        if bare and metadata.custody != "public" and metadata.stage not in _RECORDS:
            raise InputError(
                f"{source} was made from private records by {metadata.stage}, and does not say what that cost or "
                "disclosed. Ingest the records themselves."
            )
    with understood(source):
        events = distinct(PrivacyEvent.from_json(event) for metadata in origins for event in metadata.privacy)
    return Metadata(
        kind="dataset", stage="ingest", custody="private", versions={},
        privacy=tuple(event.to_json() for event in events),
        disclosures=tuple(sorted({name for metadata in origins for name in metadata.disclosures})),
        simulation=any(metadata.simulation for metadata in origins),
    )  # fmt: skip


def _fitted(content: LabelledImages, schema: Schema, source: str, given: str) -> LabelledImages:
    """The same images under the schema's classes, by name; `InputError` where they do not fit."""
    if content.images.shape[1:] != schema.shape:
        ours, theirs = list(content.images.shape[1:]), list(schema.shape)
        raise InputError(
            f"{source} has images [c, h, w] {ours}, {given} has {theirs}: give --fit, --image-size or --channels."
        )
    number = {name: index for index, name in enumerate(schema.class_names)}
    unknown = sorted({content.class_names[label] for label in np.unique(content.labels)} - number.keys())
    if unknown:
        raise InputError(f"{source} has the class {unknown[0]!r}, which {given} does not know: {', '.join(number)}.")
    numbers = np.array([number.get(name, -1) for name in content.class_names], dtype=np.int64)
    return LabelledImages(content.images, numbers[content.labels], schema.class_names, units=content.units)
