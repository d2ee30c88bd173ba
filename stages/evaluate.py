"""`evaluate`: how good a model is on a dataset. Flat JSON that DVC reads, a CSV curve across rounds, pictures."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts import atomic
from artifacts.errors import InputError, UsageError
from artifacts.kinds import Custody
from artifacts.places import RunFolder
from artifacts.publish import prepare
from artifacts.tensors_file import TensorArtifact
from stages.data.dataset_images import LoadedDataset, load_dataset
from stages.data.images import to_pixels
from stages.model_file import check_images_fit, network_of, read_model, round_of, to_module
from stages.nets.params import InputShape
from stages.pictures.confusion import confusion_picture
from stages.pictures.curve import curve_picture
from stages.progress import Report, Summary, silent

if TYPE_CHECKING:
    from stages.torch_setup import Device

_COLUMNS = ("round", "accuracy", "loss")
_RUN = RunFolder(Path())


def evaluate(
    model: Path,
    data: Path,
    out: Path,
    *,
    curve: Path | None = None,
    picture: Path | None = None,
    confusion: Path | None = None,
    batch_size: int = 500,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Write the metrics. They are private if the data is."""
    dataset = load_dataset(data)
    # Numbers computed from private data are private themselves.
    custody: Custody = "private" if dataset.metadata.custody == "private" else "public"
    for path in (out, curve, picture, confusion):
        if path is not None:
            prepare(path, custody, force=force or path in (curve, picture))
    trained, shape = read_fitting_model(model, data, dataset)
    content = dataset.content

    import torch

    from stages.methods.scores import score
    from stages.torch_setup import set_up

    where = set_up(device)
    scores = score(
        to_module(trained, where),
        torch.from_numpy(to_pixels(content.images)).to(where),
        torch.from_numpy(content.labels).to(where),
        num_classes=shape.num_classes,
        batch_size=batch_size,
        report=report,
    )
    metrics: dict[str, Any] = {
        "custody": custody,
        "round": round_of(trained),
        "num_examples": len(content),
        "accuracy": round(scores.accuracy, 6),
        "loss": round(scores.loss, 6),
    }
    for number, value in scores.by_class().items():
        metrics[f"accuracy_class_{content.class_names[number]}"] = round(value, 6)
    if confusion is not None:
        title = f"round {metrics['round']}: {scores.accuracy:.1%} right"
        atomic.write(confusion, [confusion_picture(scores.confusion, content.class_names, title)], force=force)
    if curve is not None:
        rows = _enter_in_curve(curve, metrics)
        if picture is not None:
            columns = list(zip(*rows, strict=True))
            drawing = curve_picture([int(r) for r in columns[0]], list(columns[1]), list(columns[2]))
            atomic.write(picture, [drawing], force=True)
    text = json.dumps(metrics, indent=2, ensure_ascii=False)
    atomic.write(out, [text.encode() + b"\n"], force=force)
    return {"out": str(out), **metrics}


def read_fitting_model(model: Path, data: Path, dataset: LoadedDataset) -> tuple[TensorArtifact, InputShape]:
    """The model and what it takes; `dataset` is what `data` holds, and has images that fit."""
    trained = read_model(model)
    _, shape = network_of(trained.metadata, model)
    check_images_fit(data, dataset.metadata, shape)
    if not len(dataset.content):
        raise InputError(f"{data} holds no images: there is nothing to evaluate on.")
    return trained, shape


def prepare_private(path: Path, *, force: bool) -> None:
    """For what is computed from private images: no outbox, nor the folders of a run that anyone may read."""
    prepare_kept(path, "private", force=force)


def prepare_kept(path: Path, custody: Custody, *, force: bool) -> None:
    """The same for whatever stays with one participant: private, or the server's own."""
    prepare(path, custody, force=force)
    if path.absolute().parent.name in (_RUN.public.name, _RUN.metrics.name):
        raise UsageError(
            f"{path}: a file that is {custody} may not stand in {path.parent.name}/. Choose another --out."
        )


def _enter_in_curve(path: Path, metrics: dict[str, Any]) -> list[tuple[float, ...]]:
    """Set this round's row, keep the others, sorted; under a lock, for evaluations that run side by side."""
    with atomic.explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        rows = {int(row[0]): row for row in _read_curve(path)}
        rows[metrics["round"]] = tuple(metrics[column] for column in _COLUMNS)
        ordered = [rows[number] for number in sorted(rows)]
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows((int(row[0]), *row[1:]) for row in ordered)
        atomic.write(path, [sink.getvalue().encode()], force=True)
        return ordered
    finally:
        os.close(folder)


def _read_curve(path: Path) -> list[tuple[float, ...]]:
    if not path.exists():
        return []
    try:
        header, *rows = csv.reader(path.read_text().splitlines())
        if tuple(header) != _COLUMNS:
            raise ValueError(f"its columns are {', '.join(header)}")
        return [tuple(float(cell) for cell in row) for row in rows]
    except (ValueError, OSError) as error:
        raise InputError(f"{path} is not a curve that evaluate wrote: {error}. Move it away.") from error
