"""Neighbours of a client's data: one record more, and the records that a careless program would stumble over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from artifacts.formats import dataset_file, tensors_file
from stages.data.dataset_images import load_dataset, save_dataset
from stages.data.images import LabelledImages

Edit = Callable[[Path], None]  # changes a client's dataset in place
_HUGE = 1e37  # a weight with which any image has a loss that is not finite


@dataclass(frozen=True, kw_only=True)
class Change:
    """Two data sets one record or client apart, made from the same one by two edits.

    `crafted`: the first model has weights with which no gradient is finite, in both worlds or in the second alone; then
    values are not compared. `leaves_out`: in the second world the client was not drawn.
    """

    name: str
    before: Edit
    after: Edit
    crafted: Literal["both", "second"] | None = None
    leaves_out: bool = False


def changes_for(units: Sequence[str], *, hides_who: bool) -> list[Change]:
    """The neighbours that must not be distinguishable, by whom the ε is for.

    `hides_who`: also who takes part. With noise in shares, and under masks, that is known (rule 4).
    """
    found = [
        Change(name="one record more", before=_as_it_is, after=_one_more),
        Change(name="a record of a class that nobody had", before=_without_a_class, after=_new_class),
        Change(name="an outlier", before=_as_it_is, after=_outlier),
    ]
    if "person" in units:
        found.append(Change(name="one person more, with several records", before=_as_it_is, after=_one_person_more))
    found += [
        Change(name="an image that cannot be decoded", before=_as_it_is, after=_undecodable),
        Change(name="no records at all", before=_as_it_is, after=_nobody),
    ]
    if {"record", "person"} & {*units}:
        found.append(Change(name="a gradient that is not finite", before=_nobody, after=_only_one, crafted="both"))
    if "client" in units:
        found.append(Change(name="an update that is not finite", before=_as_it_is, after=_as_it_is, crafted="second"))
        if hides_who:
            found.append(Change(name="one client less", before=_as_it_is, after=_as_it_is, leaves_out=True))
    return found


def craft_model(path: Path) -> None:
    """Weights of the same signs, all huge: finite numbers, and no training with them ends in finite ones."""
    found = tensors_file.read(path)
    huge = {
        name: np.where(tensor < 0, -_HUGE, _HUGE).astype(tensor.dtype) if tensor.dtype.kind == "f" else tensor
        for name, tensor in found.tensors.items()
    }
    tensors_file.write(path, huge, found.metadata, force=True)


def _as_it_is(data: Path) -> None:
    """The client's data as `partition` dealt them out."""


def _one_more(data: Path) -> None:
    content = load_dataset(data).content
    _save(data, _with(content, np.roll(content.images[:1], 1, axis=-1), int(content.labels[0])))


def _one_person_more(data: Path) -> None:
    """Three records that are one person's, whom nobody knew."""
    content = load_dataset(data).content
    for shift in (1, 2, 3):
        more = np.roll(content.images[:1], shift, axis=-1)
        content = _with(content, more, int(content.labels[0]), of_the_last=shift > 1)
    _save(data, content)


def _rare(content: LabelledImages) -> int:
    """The class with the fewest records, among those that there are."""
    labels, counts = np.unique(content.labels, return_counts=True)
    return int(labels[np.argmin(counts)])


def _without_a_class(data: Path) -> None:
    content = load_dataset(data).content
    _save(data, content.take(np.flatnonzero(content.labels != _rare(content))))


def _new_class(data: Path) -> None:
    content = load_dataset(data).content
    rare = _rare(content)
    _save(data, content.take(np.flatnonzero((content.labels != rare) | (np.cumsum(content.labels == rare) == 1))))


def _outlier(data: Path) -> None:
    content = load_dataset(data).content
    odd = np.zeros_like(content.images[:1])
    odd[..., ::2] = 255
    _save(data, _with(content, odd, int(content.labels[0])))


def _undecodable(data: Path) -> None:
    artifact = dataset_file.read(data)
    pngs = [png.as_py() for png in artifact.pngs]
    labels = np.append(artifact.labels, artifact.labels[:1])
    units = None if artifact.units is None else np.append(artifact.units, artifact.units.max() + 1)
    cut = pngs[0][: len(pngs[0]) // 2]
    dataset_file.write(data, [*pngs, cut], labels, artifact.metadata, units=units, force=True)


def _nobody(data: Path) -> None:
    _save(data, load_dataset(data).content.take(np.arange(0)))


def _only_one(data: Path) -> None:
    _save(data, load_dataset(data).content.take(np.arange(1)))


def _with(
    content: LabelledImages,
    image: np.ndarray[tuple[int, ...], np.dtype[np.uint8]],
    label: int,
    *,
    of_the_last: bool = False,
) -> LabelledImages:
    """A record more: where records are people's, of somebody new, or of the last who came."""
    units = content.units
    if units is not None:
        units = np.append(units, units.max() + (not of_the_last))
    return LabelledImages(
        np.concatenate([content.images, image]), np.append(content.labels, label), content.class_names, units=units
    )


def _save(path: Path, content: LabelledImages) -> None:
    save_dataset(path, content, dataset_file.read_metadata(path), force=True)
