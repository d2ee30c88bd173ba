"""The schema of a dataset (class names and their order, image size, channels), and whether a public file fixed it.

What is read off private images is private: one image of a rare class adds a name. So the stages that promise an ε, and
those that train for a federation, take private data only if its schema came from a file that is public or was agreed
before (privacy contract, rule 28).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from artifacts import limits
from artifacts.digests import sha256_hex
from artifacts.errors import InputError
from artifacts.formats import dataset_file
from artifacts.formats.plain_data import read_mapping
from artifacts.ledgers import lineage
from artifacts.metadata import InputRef, Metadata

ROLE = "schema"
PUBLIC_CUSTODY = ("public", "downlink")  # of the files that may fix a schema
_KEYS = ("classes", "channels", "height", "width")


@dataclass(frozen=True)
class Schema:
    """What a public file fixes; `reference` names that file in the metadata of whatever is read by it."""

    class_names: tuple[str, ...]
    shape: tuple[int, int, int]
    reference: InputRef


def read_schema(path: Path) -> Schema:
    """A YAML or TOML file with `classes` (a list of names), `channels`, `height` and `width`."""
    found = read_mapping(path)
    unknown, missing = sorted(found.keys() - set(_KEYS)), [key for key in _KEYS if key not in found]
    if unknown or missing:
        wrong = f"unknown key {unknown[0]!r}" if unknown else f"no {missing[0]!r}"
        raise InputError(f"{path}: {wrong}; a schema has exactly {', '.join(_KEYS)}.")
    classes, sides = found["classes"], [found[key] for key in _KEYS[1:]]
    if not isinstance(classes, list) or not classes or len({str(name) for name in classes}) != len(classes):
        raise InputError(f"{path}: classes must be a list of different names, found {classes!r}.")
    if any(type(side) is not int or side < 1 for side in sides):
        raise InputError(f"{path}: channels, height and width must be whole numbers of at least 1, found {sides}.")
    channels, height, width = sides
    reference = InputRef(role=ROLE, kind="dataset", sha256=sha256_hex(limits.read_bytes(path, limits.TEXT)))
    return Schema(tuple(str(name) for name in classes), (channels, height, width), reference)


def is_fixed(metadata: Metadata) -> bool:
    """Whether nothing in the dataset's schema was read off private images by `ingest`.

    A simulation divides a public source; what was sent has shown its schema already; what was made from records has
    theirs, and the stage that made it asked this question where it promised an ε.
    """
    asked = metadata.custody == "private" and metadata.stage == "ingest"
    return not asked or any(reference.role == ROLE for reference in metadata.inputs)


def require_fixed(paths: Iterable[Path], sources: Iterable[Metadata]) -> None:
    """Refuse a dataset whose class names, image size or channels come from the private images themselves."""
    for path, metadata in zip(paths, sources, strict=True):
        if metadata.kind == "dataset" and not is_fixed(metadata):
            raise InputError(
                f"the classes and the image size of {path} were read off private images, so they would tell about "
                "them. Ingest it again with --like (the federation's public test set) or --schema (a file that was "
                "agreed on). Nothing was read."
            )


def schema_like(path: Path) -> Schema:
    """The schema of a public dataset. One that is private, or read off private images itself, fixes nothing."""
    found = dataset_file.read_sealed(path)
    if found.metadata.custody not in PUBLIC_CUSTODY:
        raise InputError(f"{path} is {found.metadata.custody}: a schema comes from a public file. Give the test set.")
    params = found.metadata.params
    shape = (params["channels"], params["height"], params["width"])
    return Schema(tuple(params["class_names"]), shape, lineage.by_digest(found, ROLE))
