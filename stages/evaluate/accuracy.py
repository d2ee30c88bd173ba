"""`evaluate`: how good a model is on a dataset. Flat JSON that DVC reads, a CSV curve across rounds, pictures."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts import limits
from artifacts.digests import sha256_hex
from artifacts.errors import InputError, UsageError
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.kinds import Custody
from artifacts.publish import prepare
from artifacts.writing import atomic, locks
from stages.data.dataset_images import Dataset, open_dataset, refuse_empty
from stages.execution.progress import Report, Summary, silent
from stages.models.file import check_images_fit, network_of, read_model, round_of, to_module
from stages.nets.params import InputShape
from stages.pictures.confusion import confusion_picture
from stages.pictures.curve import curve_picture

if TYPE_CHECKING:
    from stages.execution.torch_setup import Device

_COLUMNS = ("round", "accuracy", "loss")


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
    if picture is not None and curve is None:
        raise UsageError("--picture needs --curve, whose rows it draws.")
    dataset = open_dataset(data)
    # Numbers computed from private data are private themselves.
    custody: Custody = "private" if dataset.metadata.custody == "private" else "public"
    for path in (out, curve, picture, confusion):
        if path is not None:
            prepare(path, custody)
    trained, shape = read_fitting_model(model, data, dataset)
    content = dataset.content

    import torch

    from stages.data.device_images import DeviceImages
    from stages.execution.torch_setup import set_up
    from stages.methods.scores import score

    where = set_up(device)
    scores = score(
        to_module(trained, where),
        DeviceImages(content.images, where),
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
    text = json.dumps(metrics, indent=2, ensure_ascii=False).encode() + b"\n"
    atomic.refuse_other(out, sha256_hex(text), force=force)  # before the curve is changed
    if confusion is not None:
        title = f"round {metrics['round']}: {scores.accuracy:.1%} right"
        drawing = confusion_picture(scores.confusion, content.class_names, title)
        atomic.write(confusion, [drawing], force=force, custody=custody)
    if curve is not None:
        # Evaluations of several rounds may run side by side.
        with locks.held(curve.parent, "evaluate", wait=True, name=f"lock-{curve.name}"):
            rows = _enter_in_curve(curve, metrics, custody)
            if picture is not None:
                columns = list(zip(*rows, strict=True))
                drawing = curve_picture([int(r) for r in columns[0]], list(columns[1]), list(columns[2]))
                atomic.write(picture, [drawing], force=True, custody=custody)
    atomic.write(out, [text], force=force, custody=custody)
    return {"out": str(out), **metrics}


def read_fitting_model(model: Path, data: Path, dataset: Dataset) -> tuple[TensorArtifact, InputShape]:
    """The model and what it takes; `dataset` is what `data` holds, and has images that fit."""
    trained = read_model(model)
    _, shape = network_of(trained.metadata, model)
    check_images_fit(data, dataset.metadata, shape)
    refuse_empty(data, dataset.content, "evaluate on")
    return trained, shape


def _enter_in_curve(path: Path, metrics: dict[str, Any], custody: Custody) -> list[tuple[float, ...]]:
    """Set this round's row, keep the others, sorted."""
    rows = {int(row[0]): row for row in _read_curve(path)}
    rows[metrics["round"]] = tuple(metrics[column] for column in _COLUMNS)
    ordered = [rows[number] for number in sorted(rows)]
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows((int(row[0]), *row[1:]) for row in ordered)
    atomic.write(path, [sink.getvalue().encode()], force=True, custody=custody)
    return ordered


def _read_curve(path: Path) -> list[tuple[float, ...]]:
    if not path.exists():
        return []
    try:
        header, *rows = csv.reader(limits.read_bytes(path, limits.RECORD).decode().splitlines())
        if tuple(header) != _COLUMNS:
            raise ValueError(f"its columns are not {', '.join(_COLUMNS)}")
        found = [tuple(float(cell) for cell in row) for row in rows]
        if any(len(row) != len(_COLUMNS) or not row[0].is_integer() for row in found):
            raise ValueError("a row does not begin with a round, or has other columns")
        return found
    except (ValueError, csv.Error, OSError) as error:
        raise InputError(f"{path} is not a curve that evaluate wrote: {error}. Move it away.") from error
