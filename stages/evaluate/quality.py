"""`evaluate SYNTHETIC REAL… --quality --features MODEL`: what synthetic images are worth, in the model's feature space.

The features are the input of the model's last layer: a model trained on public data, or one of the user's choice. It
looks at real images, so whatever it writes is private; choosing generators or images by it is a release of its own
(privacy contract, rule 16).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from artifacts.errors import InputError
from artifacts.publish import prepare_private
from artifacts.writing import atomic
from stages.data.dataset_images import Dataset, open_dataset, refuse_empty
from stages.data.images import to_pixels
from stages.execution.progress import Report, Summary, silent
from stages.methods.quality import Features, kid, learnt_accuracy, precision_and_recall
from stages.models.file import check_images_fit, network_of, read_model, to_module

if TYPE_CHECKING:
    from stages.execution.torch_setup import Device

_AT_ONCE = 500
_NOTE = (
    "In the feature space of the model that was given: no FID, and comparable with nothing measured in another. "
    "Private: choosing by it what is sent would have to be charged."
)


def evaluate_quality(
    synthetic: Path,
    real: Sequence[Path],
    out: Path,
    *,
    features: Path,
    held_out: Path | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Precision, recall, KID, and the accuracy on real images of a linear classifier that saw synthetic ones alone.

    With `held_out` the classifier is tested on these, and so is one that saw the real images: what there is to reach.
    """
    prepare_private(out)
    made, trained_on = open_dataset(synthetic), [open_dataset(path) for path in real]
    fresh = open_dataset(held_out) if held_out is not None else None
    named = [(synthetic, made), *zip(real, trained_on, strict=True)]
    named += [(held_out, fresh)] if held_out is not None and fresh is not None else []
    for path, dataset in named:
        refuse_empty(path, dataset.content, "compare")
        if dataset.content.class_names != made.content.class_names:
            raise InputError(f"{path} does not fit {synthetic}: the names of their classes differ.")
    embed = _embedding(features, named, device)
    report(0, 3, "features")
    ours, mine = embed(made), made.content.labels
    theirs = np.concatenate([embed(dataset) for dataset in trained_on])
    labels = np.concatenate([dataset.content.labels for dataset in trained_on])
    tested, wanted = (theirs, labels) if fresh is None else (embed(fresh), fresh.content.labels)
    report(1, 3, "classifiers")
    right = learnt_accuracy(ours, mine, tested, wanted)
    reference = None if fresh is None else learnt_accuracy(theirs, labels, tested, wanted)
    report(2, 3, "neighbours")
    classes = {
        name: {
            "num_synthetic": int((mine == number).sum()),
            "num_real": int((labels == number).sum()),
            "accuracy": None if right is None else _share(right[wanted == number]),
            **_compared(ours[mine == number], theirs[labels == number]),
        }
        for number, name in enumerate(made.content.class_names)
    }
    report(3, 3, "")
    summary: dict[str, Any] = {
        "custody": "private",
        "num_synthetic": len(ours),
        "num_real": len(theirs),
        "tested_on": "real" if fresh is None else "held-out",
        "accuracy": None if right is None else _share(right),
        "accuracy_of_real": None if reference is None else _share(reference),
        **_compared(ours, theirs),
        "classes": classes,
        "note": _NOTE,
    }
    atomic.write_json(out, summary, force=force)
    return {"out": str(out), **summary}


def _embedding(model: Path, datasets: Sequence[tuple[Path, Dataset]], device: Device) -> Callable[[Dataset], Features]:
    """Images to features: the input of the last layer of a network of ours, the outputs of any other module."""
    from stages.execution.torch_setup import set_up

    where = set_up(device)
    server = read_model(model)
    _, shape = network_of(server.metadata, model)
    for path, dataset in datasets:
        check_images_fit(path, dataset.metadata, shape)
    module = to_module(server, where).eval()

    import torch

    from stages.nets.net import Net

    @torch.no_grad()
    def embed(dataset: Dataset) -> Features:
        images = dataset.content.images
        found = []
        for first in range(0, len(images), _AT_ONCE):
            batch = torch.from_numpy(to_pixels(images[first : first + _AT_ONCE])).to(where)
            found.append((module.features(batch) if isinstance(module, Net) else module(batch)).flatten(1).cpu())
        return torch.cat(found).double().numpy()

    return embed


def _compared(synthetic: Features, real: Features) -> dict[str, float | None]:
    both, distance = precision_and_recall(synthetic, real), kid(synthetic, real)
    return {
        "precision": None if both is None else round(both[0], 6),
        "recall": None if both is None else round(both[1], 6),
        "kid": None if distance is None else round(distance, 6),
    }


def _share(right: np.ndarray[Any, Any]) -> float | None:
    return round(float(right.mean()), 6) if len(right) else None
