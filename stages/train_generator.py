"""`train-generator`: a class-conditional generator of the client's images. It is private and never leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from artifacts import lineage, tensors_file
from artifacts.errors import InputError, UsageError
from artifacts.metadata import Metadata
from artifacts.places import client_of
from artifacts.publish import prepare
from stages.data.dataset_images import LoadedDataset, joined, load_dataset
from stages.data.images import LabelledImages, to_pixels
from stages.generator_checkpoint import Checkpoint
from stages.generator_file import CLASS_COUNTS, family_of, generator_params
from stages.methods.params.generator import GeneratorTraining
from stages.nets.generator_params import ImageShape
from stages.progress import Report, Summary, silent
from stages.randomness import numpy_stream, stream_seed
from stages.versions import versions

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from stages.methods.generator_training import Generator, TrainingState
    from stages.torch_setup import Device

CHECKPOINT_EVERY = 100


def train_generator(
    data: Sequence[Path],
    out: Path,
    *,
    params: GeneratorTraining,
    seed: int,
    client: str | None = None,
    device: Device = "auto",
    checkpoint_every: int = CHECKPOINT_EVERY,
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Train on a share ρ of the client's images and write the generator. Killed, it goes on where it was.

    `checkpoint_every` steps the state is saved beside the output, never if 0; it changes no byte of the result.
    """
    prepare(out, "private", force=force)
    name = client_of(out, client)
    datasets = [load_dataset(path) for path in data]
    content = _content(data, datasets)
    rows = numpy_stream(seed, stage="train-generator", client=name, of="subset").permutation(len(content))
    subset = content.take(np.sort(rows[: params.num_examples(len(content))]))
    _, channels, height, width = subset.images.shape
    shape = ImageShape(channels=channels, height=height, width=width, num_classes=len(subset.class_names))

    import torch

    from stages.methods.generator_training import first_state, train
    from stages.torch_setup import set_up

    where = set_up(device)
    try:
        family = family_of(params, shape)
    except ValueError as error:
        raise UsageError(f"--family {params.family}: {error}.") from error
    metadata = Metadata(
        kind="generator",
        stage="train-generator",
        method=params.family,
        custody="private",
        client=name,
        params=generator_params(params, shape, subset.class_names),
        counts={"num_examples": len(subset)},
        inputs=tuple(lineage.by_digest(dataset, "data") for dataset in datasets),
        seed=seed,
        versions=versions("torch", *(["diffusers"] if params.family == "ddpm" else [])),
    )

    def generator_of(of: str) -> torch.Generator:
        return torch.Generator().manual_seed(stream_seed(seed, stage="train-generator", client=name, of=of))

    num_steps = params.num_steps(len(subset))
    checkpoint = Checkpoint(out, metadata, where, num_steps)
    initial = {key: tensor.to(where) for key, tensor in family.initial(generator_of("initial weights")).items()}
    first = first_state(initial, params.optimisation())
    saved = checkpoint.load(first, force=force)

    def after_step(state: TrainingState, losses: Mapping[str, Tensor]) -> None:
        if checkpoint_every and state.step % checkpoint_every == 0 and state.step < num_steps:
            checkpoint.save(state)
        if report is not silent:  # else the losses need not be fetched from the device
            report(state.step, num_steps, _told(losses))

    images = torch.from_numpy(to_pixels(subset.images)).to(where)
    labels = torch.from_numpy(subset.labels).to(where)
    try:
        end = train(
            family,
            images,
            labels,
            params=params.optimisation(),
            start=saved or first,
            num_steps=num_steps,
            generator_of=lambda step: generator_of(f"step {step}"),
            after_step=after_step,
        )
        tensors = {key: tensor.detach().cpu().numpy() for key, tensor in _kept(family, end, images, labels).items()}
        digest = tensors_file.write(out, tensors | {CLASS_COUNTS: subset.class_counts()}, metadata, force=force)
    except ValueError as error:
        raise InputError(f"training diverged: {error}. Lower --learning-rate.") from error
    checkpoint.remove()
    return {
        "out": str(out),
        "sha256": digest,
        "client": name,
        "family": params.family,
        "images": len(subset),
        "steps": num_steps,
        "resumed_from": saved.step if saved else 0,
        "parameters": sum(tensor.numel() for tensor in initial.values()),
        "custody": "private",
    }


def _kept(family: Generator, end: TrainingState, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return family.finished({name: tensor.detach() for name, tensor in end.result.items()}, images, labels)


def _told(losses: Mapping[str, Tensor]) -> str:
    """`loss 0.183`, or the loss of each part where there are two."""
    if len(losses) == 1:
        return "".join(f"loss {loss.item():.3f}" for loss in losses.values())
    return ", ".join(f"{name} {loss.item():.3f}" for name, loss in losses.items())


def _content(paths: Sequence[Path], datasets: Sequence[LoadedDataset]) -> LabelledImages:
    """The images of all datasets together; they must be of one size and one set of classes."""
    first = datasets[0].metadata.params
    for path, dataset in zip(paths, datasets, strict=True):
        for key in ("channels", "height", "width", "class_names"):
            found, wanted = dataset.metadata.params[key], first[key]
            if found != wanted:
                raise InputError(f"{path} and {paths[0]} do not go together: {key} is {found!r} and {wanted!r}.")
    images, labels = joined(datasets)
    if not len(labels):
        raise InputError(f"{paths[0]} holds no images: there is nothing to train on.")
    return LabelledImages(images, labels, tuple(first["class_names"]))
