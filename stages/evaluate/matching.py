"""`evaluate MODEL DATA --matching SURROGATE`: how near the gradients of a synthetic set are to those of the data.

FedLAP, Fig. 6: at the model's weights and along the way that descent on the set takes from there (Eq. 10), for each
parameter tensor the cosine between the two gradients and the ratio of their lengths, and the loss on both. It compares
with private data, without noise: what it writes is private, and a set that is chosen by it has no ε.
"""

from __future__ import annotations

import csv as csv_format
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from artifacts.errors import InputError, UsageError
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.publish import prepare_private
from artifacts.writing import atomic
from stages.data.dataset_images import open_dataset
from stages.evaluate.accuracy import read_fitting_model
from stages.execution.progress import Report, Summary, silent
from stages.methods.params.feddm import FedDmOptimisation
from stages.methods.params.fedlap import FedLapEncoding
from stages.models.file import to_module
from stages.pictures.matching import MatchingLine, matching_picture
from stages.surrogates.file import read_surrogate

if TYPE_CHECKING:
    from stages.execution.torch_setup import Device
    from stages.methods.matching_quality import Agreement, MatchedPoint

STEPS = 10
_DIGITS = 6
_COLUMNS = (
    "step", "distance", "tensor", "cosine", "norm_ratio", "norm_real", "norm_synthetic", "loss_real", "loss_synthetic",
)  # fmt: skip
_WHOLE = "all"


def evaluate_matching(
    model: Path,
    data: Path,
    out: Path,
    *,
    surrogate: Path,
    matching_steps: int = STEPS,
    learning_rate: float | None = None,
    csv: Path | None = None,
    picture: Path | None = None,
    batch_size: int = 500,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Measure at `matching_steps` + 1 points; the step size is the set's own unless it is given."""
    for path in (out, csv, picture):
        if path is not None:
            prepare_private(path)
    if learning_rate is not None and not 0 < learning_rate < math.inf:
        raise UsageError(f"--learning-rate is a number above 0, found {learning_rate:g}.")
    dataset = open_dataset(data)
    trained, shape = read_fitting_model(model, data, dataset)
    sent = read_surrogate(surrogate, trained, shape)
    rate = _rate(sent) if learning_rate is None else learning_rate

    import torch

    from stages.data.device_images import DeviceImages
    from stages.execution.torch_setup import set_up
    from stages.methods.matching_quality import matching_trajectory
    from stages.methods.surrogate_nets import Examples, LabelledSet

    where = set_up(device)
    content = dataset.content
    points = matching_trajectory(
        to_module(trained, where),
        LabelledSet(
            torch.from_numpy(sent.tensors["images"].astype(np.float32)).to(where),
            torch.from_numpy(sent.tensors["labels"].astype(np.int64)).to(where),
        ),
        Examples(DeviceImages(content.images, where), torch.from_numpy(content.labels).to(where)),
        steps=matching_steps,
        rate=rate,
        batch_size=batch_size,
        report=lambda done, total: report(done, total, "steps"),
    )
    for point in points:
        if not (math.isfinite(point.loss_real) and math.isfinite(point.whole.norm_synthetic)):
            raise InputError(
                f"after {point.steps} steps of {rate:g} on {surrogate} there is no finite loss any more. Lower "
                "--learning-rate."
            )
    owner = dataset.metadata.client
    foreign = owner is not None and owner != sent.metadata.client
    summary: dict[str, Any] = {
        "custody": "private",
        "client": sent.metadata.client,
        "round": sent.metadata.round,
        "method": sent.metadata.method,
        "num_examples": len(content),
        "images": len(sent.tensors["labels"]),
        "learning_rate": rate,
        "steps": matching_steps,
        "distance": _rounded(points[-1].distance),
        "cosine": _rounded(points[0].whole.cosine),
        "cosine_end": _rounded(points[-1].whole.cosine),
        "norm_ratio": _rounded(points[0].whole.norm_ratio),
        "norm_ratio_end": _rounded(points[-1].whole.norm_ratio),
        "without_gradient": [name for name, found in points[0].tensors.items() if found.cosine is None],
        "trajectory": [_described(point) for point in points],
        **({"note": f"The data is of client {owner}: the set was not made of it."} if foreign else {}),
    }
    if csv is not None:
        atomic.write(csv, [_as_csv(points)], force=force, custody="private")
    if picture is not None:
        title = f"client {sent.metadata.client}, round {sent.metadata.round}, {sent.metadata.method}, η = {rate:g}"
        atomic.write(picture, [matching_picture(_lines(points), title)], force=force, custody="private")
    atomic.write_json(out, summary, force=force)
    return {"out": str(out), **summary}


def _rate(sent: TensorArtifact) -> float:
    """η of Eq. 10 in the set's round; FedDM's clients take no steps, so the server's default."""
    about = sent.metadata
    if about.method != "fedlap":
        return FedDmOptimisation().learning_rate
    try:
        return FedLapEncoding.from_mapping(about.params).rate(about.round or 1)
    except ValueError as error:
        raise InputError(f"{sent.path} does not state its step size ({error}). Give --learning-rate.") from error


def _described(point: MatchedPoint) -> dict[str, Any]:
    return {
        "step": point.steps,
        "distance": _rounded(point.distance),
        "loss_real": _rounded(point.loss_real),
        "loss_synthetic": _rounded(point.loss_synthetic),
        **_spelled(point.whole),
        "tensors": {name: _spelled(found) for name, found in point.tensors.items()},
    }


def _spelled(found: Agreement) -> dict[str, float | None]:
    names = ("cosine", "norm_ratio", "norm_real", "norm_synthetic")
    return {name: _rounded(getattr(found, name)) for name in names}


def _as_csv(points: Sequence[MatchedPoint]) -> bytes:
    """One row a step and tensor, and one for all weights together, which also has the losses."""
    sink = io.StringIO()
    writer = csv_format.DictWriter(sink, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for point in points:
        stated = _described(point)
        place = {"step": stated["step"], "distance": stated["distance"]}
        losses = {name: stated[name] for name in ("loss_real", "loss_synthetic")}
        writer.writerow({**place, "tensor": _WHOLE, **_spelled(point.whole), **losses})
        writer.writerows({**place, "tensor": name, **found} for name, found in stated["tensors"].items())
    return sink.getvalue().encode()


def _lines(points: Sequence[MatchedPoint]) -> list[MatchingLine]:
    """The whole first; a tensor that never has a gradient is no line."""
    distances = [point.distance for point in points]
    kept = [name for name in points[0].tensors if any(point.tensors[name].cosine is not None for point in points)]
    series = {"all weights": [point.whole for point in points]}
    series |= {name: [point.tensors[name] for point in points] for name in kept}
    return [
        MatchingLine(name, distances, [found.cosine for found in each], [found.norm_ratio for found in each])
        for name, each in series.items()
    ]


def _rounded(value: float | None) -> float | None:
    """To six digits, not decimals: norms of gradients are small."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{_DIGITS}g}")
