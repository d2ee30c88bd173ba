"""`train-client`: one round of local training. Model and private data in, private update out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts import lineage, tensors_file
from artifacts.errors import InputError
from artifacts.metadata import Metadata
from artifacts.places import client_of
from artifacts.publish import prepare
from stages.data.dataset_images import LoadedDataset, joined, load_dataset
from stages.data.images import to_pixels
from stages.methods.params.local_training import LocalTraining
from stages.model_file import network_of, read_model, round_of, to_module
from stages.nets.params import InputShape
from stages.progress import Report, Summary, silent
from stages.randomness import stream_seed
from stages.versions import versions

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.methods.local_training import LocalAlgorithm
    from stages.torch_setup import Device


def train_client(
    model: Path,
    data: Sequence[Path],
    out: Path,
    *,
    params: LocalTraining,
    seed: int,
    client: str | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Train the model on the client's data and write the update, start minus end, which stays private."""
    prepare(out, "private", force=force)
    name = client_of(out, client)
    start = read_model(model)
    round = round_of(start) + 1
    datasets = [load_dataset(path) for path in data]
    _, shape = network_of(start.metadata, model)
    for path, dataset in zip(data, datasets, strict=True):
        check_images_fit(path, dataset, shape)
    images, labels = joined(datasets)
    if not len(labels):
        raise InputError(f"{data[0]} holds no images: there is nothing to train on.")

    import torch

    from stages.methods.local_training import train_locally
    from stages.torch_setup import set_up

    where = set_up(device)
    module = to_module(start, where)

    def stream(of: str) -> int:
        return stream_seed(seed, stage="train-client", client=name, round=round, of=of)

    result = train_locally(
        module,
        torch.from_numpy(to_pixels(images)).to(where),
        torch.from_numpy(labels).to(where),
        params=params,
        algorithm=_algorithm(params, module),
        round=round,
        batch_generator=torch.Generator().manual_seed(stream("batches")),
        dropout_generator=torch.Generator(where).manual_seed(stream("dropout")),
        report=_ignore
        if report is silent
        else lambda done, total, loss: report(done, total, f"loss {loss.item():.3f}"),
    )
    metadata = Metadata(
        kind="update",
        stage="train-client",
        method=params.algorithm,
        custody="private",
        client=name,
        round=round,
        params=params.to_json(),
        counts={"num_examples": len(labels), "local_steps": result.num_steps},
        inputs=(lineage.by_digest(start, "model"), *(lineage.by_digest(d, "data") for d in datasets)),
        seed=seed,
        versions=versions("torch"),
    )
    try:
        tensors = {name: tensor.cpu().numpy() for name, tensor in result.update.items()}
        digest = tensors_file.write(out, tensors, metadata, force=force)
    except ValueError as error:
        raise InputError(f"training diverged: {error}. Lower --learning-rate.") from error
    return {"out": str(out), "sha256": digest, "client": name, "round": round, "custody": "private"}


def _ignore(done: int, total: int, loss: Tensor) -> None:
    """Nobody watches: the loss need not be fetched from the device at every step."""


def check_images_fit(path: Path, dataset: LoadedDataset, shape: InputShape) -> None:
    """The images have the size, channels and classes that the model was made for."""
    found = tuple(dataset.metadata.params[k] for k in ("channels", "height", "width", "num_classes"))
    wanted = (shape.channels, shape.height, shape.width, shape.num_classes)
    if found != wanted:
        raise InputError(
            f"{path} does not fit the model: its images are {found[0]}×{found[1]}×{found[2]} in {found[3]} "
            f"classes, the model takes {wanted[0]}×{wanted[1]}×{wanted[2]} in {wanted[3]}."
        )


def _algorithm(params: LocalTraining, module: nn.Module) -> LocalAlgorithm:
    from stages.methods.fedavg import FedAvg
    from stages.methods.fedprox import FedProx

    if params.algorithm == "fedprox":
        return FedProx(list(module.parameters()), params.proximal_weight)
    return FedAvg()
