"""`evaluate RUN --gap`: how much better the server's model is on the clients' training data than on the test data.

DP-FedSAM, Tables 1 and 3 («differential value»): a model that fits its training data only has a large gap. Training
accuracy is over the examples of all clients together, at the server's model, which is what the federation has made of
them; synthetic data that a client also trained on does not count. It sees every client's private data at once, which
only a simulation can: what it writes is private.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from artifacts.errors import InputError
from artifacts.places import RunFolder
from artifacts.publish import prepare_private
from artifacts.writing import atomic
from stages.data.dataset_images import Dataset, open_dataset, refuse_empty
from stages.evaluate.heterogeneity import clients_data, server_models
from stages.execution.progress import Report, Summary, silent
from stages.models.file import check_images_fit, network_of, read_model, to_module
from stages.run_folder.files import TEST

if TYPE_CHECKING:
    import torch

    from stages.execution.torch_setup import Device
    from stages.methods.scores import Scores

_DIGITS = 6


def evaluate_gap(
    run: Path,
    out: Path,
    *,
    rounds: Sequence[int] = (),
    batch_size: int = 500,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Measure the server model of each of `rounds` (the last one if none is named)."""
    prepare_private(out)
    folder = RunFolder(run)
    models = server_models(folder, rounds)
    train = [(path, open_dataset(path)) for path in clients_data(folder)]
    test = folder.root / TEST
    tested = open_dataset(test)
    refuse_empty(test, tested.content, "evaluate on")
    if not sum(len(dataset.content) for _, dataset in train):
        raise InputError(f"{folder.clients}: no client has any images, so that there is no training accuracy.")

    from stages.execution.torch_setup import set_up

    where = set_up(device)
    measured: dict[str, Any] = {}
    for number, (round, path) in enumerate(sorted(models.items())):
        report(number, len(models), f"round {round}")
        measured[str(round)] = _measure(path, train, (test, tested), batch_size, where)
    report(len(models), len(models), "")
    summary = {
        "custody": "private",
        "clients": len(train),
        "num_train": sum(len(dataset.content) for _, dataset in train),
        "num_test": len(tested.content),
        "rounds": measured,
    }
    atomic.write_json(out, summary, force=force)
    return {"out": str(out), **summary}


def _measure(
    model: Path,
    train: Sequence[tuple[Path, Dataset]],
    test: tuple[Path, Dataset],
    batch_size: int,
    where: torch.device,
) -> dict[str, float]:
    import torch

    from stages.data.device_images import DeviceImages
    from stages.methods.scores import score

    server = read_model(model)
    _, shape = network_of(server.metadata, model)
    for path, dataset in (*train, test):
        check_images_fit(path, dataset.metadata, shape)
    module = to_module(server, where)

    def scores(dataset: Dataset) -> Scores:
        return score(
            module,
            DeviceImages(dataset.content.images, where),
            torch.from_numpy(dataset.content.labels).to(where),
            num_classes=shape.num_classes,
            batch_size=batch_size,
            report=silent,
        )

    each = [(scores(dataset), len(dataset.content)) for _, dataset in train if len(dataset.content)]
    counts = np.array([count for _, count in each])
    accuracy, loss = (
        float(np.average([getattr(found, name) for found, _ in each], weights=counts)) for name in ("accuracy", "loss")
    )
    tested = scores(test[1])
    values = {
        "train_accuracy": accuracy,
        "test_accuracy": tested.accuracy,
        "gap": accuracy - tested.accuracy,
        "train_loss": loss,
        "test_loss": tested.loss,
        "loss_gap": tested.loss - loss,
    }
    return {name: round(value, _DIGITS) for name, value in values.items()}
