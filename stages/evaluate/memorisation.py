"""`evaluate SYNTHETIC REAL…`: does a synthetic set repeat the images that its generator was trained on?

It looks at private images, so whatever it writes is private. Leaving images out because of what it shows would end any
differential privacy (privacy contract, rule 16), and under differential privacy it decides nothing: the guarantee does
not depend on what one set happens to look like. Free of torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.publish import prepare_private
from artifacts.writing import atomic
from stages.data.dataset_images import Dataset, joined, open_dataset, refuse_empty
from stages.execution.progress import Report, Summary, silent
from stages.methods.memorisation import Nearest, nearest, nearest_other, share_nearer_by_class
from stages.pictures.pairs import Pair, pairs_picture

_QUANTILES = {"min": 0.0, "p01": 0.01, "p05": 0.05, "median": 0.5}
_PAIRS = 12
_NOTE = (
    "A hint, not a proof. Under differential privacy it decides nothing: the guarantee holds whatever is here, and "
    "leaving images out because of it would end the guarantee."
)


def evaluate_memorisation(
    synthetic: Path,
    real: Sequence[Path],
    out: Path,
    *,
    held_out: Path | None = None,
    pairs: Path | None = None,
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Distances of synthetic images to their nearest real ones, beside those of real images that nobody trained on.

    The reference counts in the classes that the synthetic images have, and `share_nearer` compares within a class.
    Without `held_out` the real images themselves are the reference, each with the others (leave one out).
    """
    for path in (out, pairs):
        if path is not None:
            prepare_private(path)
    made = open_dataset(synthetic)
    trained_on = [open_dataset(path) for path in real]
    fresh = open_dataset(held_out) if held_out is not None else None
    _check_not_empty(synthetic, made)
    for path, dataset in zip(real, trained_on, strict=True):
        _check_fits(path, dataset, synthetic, made)
    if held_out is not None and fresh is not None:
        _check_fits(held_out, fresh, synthetic, made)
    images, labels = joined(trained_on)
    if fresh is None and len(images) < 2:
        raise InputError(f"{real[0]} holds one image, which has no neighbour. Give --held-out, or more real images.")
    report(0, 2, "synthetic images")
    found = nearest(made.content.images, images)
    report(1, 2, "held-out images" if fresh is not None else "real images")
    reference, labels = (
        (nearest(fresh.content.images, images), fresh.content.labels) if fresh is not None
        else (nearest_other(images), labels)
    )  # fmt: skip
    report(2, 2, "")
    # A client may have few classes: images of the others are far from its data whatever its generator does.
    kept = np.isin(labels, made.content.labels)
    reference, labels = reference.only(kept), labels[kept]
    nearer = share_nearer_by_class(found, made.content.labels, reference, labels)
    if nearer is None:
        raise InputError(f"{held_out or real[0]} has no image of the classes that {synthetic} has: nothing compares.")
    closest = np.argsort(found.distances, kind="stable")[:_PAIRS]
    summary: dict[str, Any] = {
        "custody": "private",
        "reference": "held-out" if fresh is not None else "leave-one-out",
        "num_synthetic": len(found.distances),
        "num_real": len(images),
        "num_reference": len(reference.distances),
        "share_nearer": round(nearer, 6),
        "copies": int((found.distances == 0).sum()),
        "reference_copies": int((reference.distances == 0).sum()),
        **_quantiles("synthetic", found),
        **_quantiles("reference", reference),
        "closest": [_located(row, found, trained_on) for row in closest],
        "note": _NOTE,
    }
    if pairs is not None:
        near = zip(made.content.images[closest], images[found.rows[closest]], found.distances[closest], strict=True)
        shown = [Pair(image, neighbour, float(distance)) for image, neighbour, distance in near]
        words = "held-out real images" if fresh is not None else "real images, each with the others"
        drawing = pairs_picture(shown, found.distances, reference.distances, words)
        atomic.write(pairs, [drawing], force=force, custody="private")
    atomic.write_json(out, summary, force=force)
    return {"out": str(out), **summary}


def _check_not_empty(path: Path, dataset: Dataset) -> None:
    refuse_empty(path, dataset.content, "compare")


def _check_fits(path: Path, dataset: Dataset, synthetic: Path, made: Dataset) -> None:
    """Images of one size and kind, of the same classes: else the files are not about the same thing."""
    _check_not_empty(path, dataset)
    found, wanted = dataset.content.images.shape[1:], made.content.images.shape[1:]
    if found != wanted:
        raise InputError(
            f"{path} does not fit {synthetic}: its images are {_size(found)}, the synthetic ones {_size(wanted)}."
        )
    if dataset.content.class_names != made.content.class_names:
        mine, theirs = (", ".join(names)[:60] for names in (dataset.content.class_names, made.content.class_names))
        raise InputError(f"{path} does not fit {synthetic}: its classes are {mine}; the synthetic ones {theirs}.")


def _size(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def _quantiles(of: str, found: Nearest) -> dict[str, float]:
    values: NDArray[np.float64] = np.quantile(found.distances, list(_QUANTILES.values()))
    return {f"{of}_{name}": round(float(value), 6) for name, value in zip(_QUANTILES, values, strict=True)}


def _located(row: int, found: Nearest, datasets: Sequence[Dataset]) -> dict[str, Any]:
    """Which rows are so near to each other; the real file by its place on the command line, from 1."""
    left, file = int(found.rows[row]), 0
    while left >= len(datasets[file].content):
        left -= len(datasets[file].content)
        file += 1
    distance = round(float(found.distances[row]), 6)
    return {"row": int(row), "real_file": file + 1, "real_row": left, "distance": distance}
