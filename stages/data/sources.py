"""Where images come from: a name that everybody knows, a Parquet file or folder, or a folder of class folders.

A path may be a URL: what it names is fetched first.

Whatever the source, the result is the same: bytes as they are, of one shape, with labels. Nothing is estimated from
them (see `images`), and nothing is downloaded unless that was asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.errors import InputError, UsageError
from artifacts.metadata import Metadata
from artifacts.storage.fetched import fetched
from artifacts.storage.url import is_url
from stages.data.attributes import parse_attributes
from stages.data.conform import Form
from stages.data.folder_source import first_image as first_in_folder
from stages.data.folder_source import load_folder
from stages.data.images import LabelledImages
from stages.data.named_source import NamedSource, SourceRequest
from stages.data.params import Fit
from stages.data.parquet_source import Columns, is_parquet, load_parquet
from stages.data.parquet_source import first_image as first_in_parquet
from stages.registry import SOURCES

_PARQUET_OPTIONS = {"--id-column", "--unit-column", "--by", "--image-column", "--label-column", "--bits", "--skip-bad"}


@dataclass(frozen=True)
class Source:
    """The images to divide among clients, and the test images where the source has some of its own.

    `origins` are the metadata of those of its files that fedsynth made: they say what was spent and disclosed already.
    `read_by` are the parameters of this kind of source as they were used, given or not. `left_out` are files that could
    not be used, where that was allowed.
    """

    train: LabelledImages
    test: LabelledImages | None
    origins: tuple[Metadata, ...] = ()
    read_by: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.test is not None and self.test.images.shape[1:] != self.train.images.shape[1:]:
            raise ValueError(
                f"the training images [c, h, w] are {list(self.train.images.shape[1:])} and the test images "
                f"{list(self.test.images.shape[1:])}; give --image-size or --channels"
            )


def load(
    source: str,
    *,
    root: Path | None = None,
    download: bool = False,
    id_column: str | None = None,
    unit_column: str | None = None,
    by: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    emnist_split: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    fit: Fit = "stretch",
    channels: int | None = None,
    bits: int | None = None,
    skip_bad: bool = False,
) -> Source:
    """Read a source.

    `root` is the folder of torchvision's datasets; `download` allows them to be fetched into it. The column options
    are those of Parquet; `id_column` or `by` fills `train.ids`, `unit_column` fills `train.units`. `image_size` is a
    side of squares, or height and width. What is no name in `SOURCES` is a path; a folder of such a name is written
    `./digits`. An option that the source has no use for is a `UsageError`.
    """
    given = {
        "--root": root is not None,
        "--download": download,
        "--id-column": id_column is not None,
        "--unit-column": unit_column is not None,
        "--by": by is not None,
        "--image-column": image_column is not None,
        "--label-column": label_column is not None,
        "--emnist-split": emnist_split is not None,
        "--bits": bits is not None,
        "--skip-bad": skip_bad,
    }
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    form = Form(size=size, channels=channels, fit=fit, bits=bits, skip_bad=skip_bad)
    origins: tuple[Metadata, ...] = ()
    read_by: dict[str, str] = {}
    left_out: tuple[Path, ...] = ()
    test: LabelledImages | None
    if source in SOURCES.words:
        named: NamedSource = SOURCES.from_mapping({"source": source})
        read_by = named.read_by(emnist_split)
        _refuse_unused(source, given, named.takes)
        attributes = parse_attributes(by) if by is not None else ()
        train, test = named.read(
            SourceRequest(form=form, root=root, download=download, emnist_split=emnist_split, by=attributes)
        )
    elif is_url(source):
        with fetched(source) as path:
            return load(
                str(path), root=root, download=download, id_column=id_column, unit_column=unit_column, by=by,
                image_column=image_column, label_column=label_column, emnist_split=emnist_split, image_size=image_size,
                fit=fit, channels=channels, bits=bits, skip_bad=skip_bad,
            )  # fmt: skip
    else:
        path = _existing(source)
        if is_parquet(path):
            _refuse_unused(source, given, _PARQUET_OPTIONS)
            columns = Columns(
                image=image_column or "image",
                label=label_column or "label",
                id=id_column,
                unit=unit_column,
                attributes=parse_attributes(by) if by is not None else (),
            )
            read_by = {"image_column": columns.image, "label_column": columns.label}
            train, test, origins, left_out = load_parquet(path, columns, form)
        else:
            _refuse_unused(source, given, {"--bits", "--skip-bad"})
            train, test, left_out = load_folder(path, form)
    try:
        return Source(train, test, origins, read_by, left_out)
    except ValueError as error:
        raise InputError(f"{source}: {error}.") from error


def first_shape(section: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Channels, height and width of the images, by the first one; None where only reading them all can say.

    `section` is what a recipe says about `partition`: the source, and the form in which its images are wanted.
    """
    source, column = str(section.get("source")), section.get("image_column") or "image"
    shape: tuple[int, ...] | None
    if source in SOURCES.words:
        named: NamedSource = SOURCES.from_mapping({"source": source})
        shape = named.shape
    else:
        try:
            path = _existing(source)
            shape = (first_in_parquet(path, str(column)) if is_parquet(path) else first_in_folder(path)).shape
        except (InputError, UsageError):  # reading all of it says what is wrong
            return None
    size, channels = section.get("image_size"), section.get("channels")
    if shape is None or not isinstance(size, int | None) or not isinstance(channels, int | None):
        return None
    return channels or shape[0], size or shape[1], size or shape[2]


def plugin_of(source: str) -> dict[str, str]:
    """Which plug-in the source is by, as a record states it; empty where it is by none."""
    found = SOURCES.chosen({"source": source}).plugin if source in SOURCES.words else None
    return {"plugin": str(found)} if found is not None else {}


def _existing(source: str) -> Path:
    path = Path(source)
    if path.is_dir() or (path.is_file() and path.suffix == ".parquet"):
        return path
    if path.exists():
        raise InputError(
            f"{source}: neither a .parquet file nor a folder. fedsynth reads images only: give a Parquet file with a "
            "column of images, or a folder with one folder of image files for each class."
        )
    if "/" in source or path.suffix:
        raise InputError(f"{source}: no such file or folder.")
    raise UsageError(
        f"unknown source {source!r}; known: {', '.join(SOURCES.words)}, a Parquet file, a folder of images."
    )


def _refuse_unused(source: str, given: dict[str, bool], used: Collection[str]) -> None:
    unused = [option for option, is_given in given.items() if is_given and option not in used]
    if unused:
        raise UsageError(f"{unused[0]} does not apply to the source {source}.")
