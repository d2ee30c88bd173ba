"""`train-generator`: a class-conditional generator of the client's images. It is private and never leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError, UsageError, VerificationError
from artifacts.formats import any_file, tensors_file
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from artifacts.places import client_of
from artifacts.publish import prepare
from artifacts.writing import atomic
from stages.charging.private_training import check_unit, refuse_repetition
from stages.charging.spending import record_event
from stages.data.dataset_images import (
    DescribedDataset,
    chosen,
    describe_dataset,
    joined,
    joined_for,
    load_described,
    refuse_empty,
)
from stages.data.images import counted
from stages.data.schema import require_fixed
from stages.execution.progress import Report, Summary, silent
from stages.execution.randomness import numpy_stream, stream_seed
from stages.execution.versions import versions
from stages.generators.checkpoint import Checkpoint
from stages.generators.file import CLASS_COUNTS, generator_params
from stages.generators.private import PrivateTraining
from stages.methods.params.generator import GeneratorTraining
from stages.nets.generator_params import ImageShape

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from stages.execution.torch_setup import Device
    from stages.methods.generator_training import Generator, MeanMatching, PartGradient, TrainingState
    from stages.methods.image_rows import ImageRows

CHECKPOINT_EVERY = 100


def train_generator(
    data: Sequence[Path],
    out: Path,
    *,
    params: GeneratorTraining,
    seed: int,
    keep_at: Sequence[int] = (),
    key: Path | None = None,
    client: str | None = None,
    device: Device = "auto",
    checkpoint_every: int = CHECKPOINT_EVERY,
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Train on a share ρ of the client's images and write the generator. Killed, it goes on where it was.

    `keep_at` names steps after which the generator is written too, as `NAME-00500.safetensors`: one training, looked at
    several times. `checkpoint_every` steps the state is saved beside the output, never if 0; it changes no byte of the
    result. Under differential privacy `key` is the client's, by default that of the folder written to.
    """
    prepare(out, "private")
    name = client_of(out, client)
    described = [describe_dataset(path) for path in data]
    shape, class_names = _kind_of_images(data, described)

    import torch

    from stages.data.device_images import DeviceImages
    from stages.execution.torch_setup import arithmetic, set_up
    from stages.methods.generator_training import MeanMatching, batch_gradients, first_state, train

    where = set_up(device)
    try:
        family = params.build(shape)
    except ValueError as error:
        raise UsageError(f"--family {params.family}: {error}.") from error
    params = _with_noise(params)
    if params.is_private:
        # Before anything is charged: the number of steps is public here.
        _check_records(data, described)
        check_unit(params, data, [dataset.metadata for dataset in described])
        _kept_paths(out, keep_at, params.num_steps(0))
    metadata = Metadata(
        kind="generator",
        stage="train-generator",
        method=params.family,
        custody="private",
        client=name,
        params=generator_params(params, shape, class_names),
        inputs=tuple(lineage.by_digest(dataset, "data") for dataset in described),
        seed=seed,
        versions=versions(
            "torch",
            *params.libraries,
            *(["numpy", "scipy"] if params.is_private else []),  # they make the noise
        ),
        arithmetic=arithmetic(where),
    )

    def generator_of(of: str) -> torch.Generator:
        return torch.Generator().manual_seed(stream_seed(seed, stage="train-generator", client=name, of=of))

    any_file.refuse_other(out, metadata, force=force)
    private = PrivateTraining.begin(params, metadata, out, key, data) if params.is_private else None
    datasets = load_described(data, described, blank=private is not None)
    content, all_labels, people = (*joined(datasets), None) if private is None else joined_for(datasets, params.unit)
    if private is None:
        refuse_empty(data[0], content, "train on")
        order = numpy_stream(seed, stage="train-generator", client=name, of="subset").permutation(len(content))
        rows = np.sort(order[: params.num_examples(len(content))])
        metadata = dataclasses.replace(metadata, counts={"num_examples": len(rows)})
    else:
        rows = private.subset(np.arange(len(content)) if people is None else people, params.data_fraction)
        metadata = dataclasses.replace(metadata, simulation=private.spending.key.simulation)
    num_steps = params.num_steps(len(rows))
    kept_paths = _kept_paths(out, keep_at, num_steps)
    images = DeviceImages(chosen(content, rows), where)
    labels = torch.from_numpy(all_labels[rows]).to(where)

    def public_of(step: int) -> torch.Generator:
        return generator_of(f"step {step}")

    gradients: Callable[[int], PartGradient]
    if private is None:
        gradients = batch_gradients(
            family, images, labels, params.batch_size, public_of,
            micro_batch=params.micro_batch, precision=params.precision,
        )  # fmt: skip
    else:
        units = None if people is None else counted(people[rows])
        gradients = private.gradients(family, images, labels, units, shape.num_classes, public_of)

    def of_step(step: int) -> Metadata:
        """What the generator after so many steps says of itself."""
        if step == num_steps:
            return metadata
        shorter = dataclasses.replace(params, epochs=None, steps=step)
        return dataclasses.replace(metadata, params=generator_params(shorter, shape, class_names))

    checkpoint = Checkpoint(out, metadata, where, num_steps, private.spending.mark if private else None)
    initial = {key: tensor.to(where) for key, tensor in family.initial(generator_of("initial weights")).items()}
    if isinstance(family, MeanMatching):
        initial |= _targets(
            family, initial, images, labels, people if people is None else counted(people[rows]), private
        )
    first = first_state(initial, params.optimisation())
    saved = checkpoint.load(first, force=force)
    for step, path in kept_paths.items():
        prepare(path, "private")
        any_file.refuse_other(path, of_step(step), force=force or saved is not None)

    def write(state: TrainingState, path: Path, *, force: bool) -> str:
        """The generator after so many steps, as a file of its own. Under DP it follows from the state alone."""
        kept = _kept(family, state, *((images, labels) if private is None else (images[:0], labels[:0])))
        tensors = {n: t.detach().cpu().numpy() for n, t in kept.items()}
        about = of_step(state.step)
        if private is None:
            tensors |= {CLASS_COUNTS: np.bincount(all_labels[rows], minlength=len(class_names)).astype(np.int64)}
        else:
            about = dataclasses.replace(about, privacy=private.released(tensors, state.step))
        return tensors_file.write(path, tensors, about, force=force)

    written: list[Path] = []

    def after_step(state: TrainingState, losses: Mapping[str, Tensor]) -> None:
        if state.step in kept_paths:
            write(state, kept_paths[state.step], force=force or saved is not None)
            written.append(kept_paths[state.step])
        if checkpoint_every and state.step % checkpoint_every == 0 and state.step < num_steps:
            checkpoint.save(state)
        if report is not silent:  # else the losses need not be fetched from the device
            report(state.step, num_steps, _stated(losses))

    try:
        end = train(
            family,
            params=params.optimisation(),
            start=saved or first,
            num_steps=num_steps,
            gradients=gradients,
            after_step=after_step,
        )
        digest = write(end, out, force=force)
    except ValueError as error:
        raise InputError(f"training diverged: {error}. Lower --learning-rate.") from error
    except VerificationError:
        # Another result under noise that was given out already: nothing of it may stay (privacy contract, 8).
        for path in [*written, checkpoint.path]:
            atomic.remove(path)
        raise
    checkpoint.remove()
    stated: dict[str, Any] = {"images": len(rows)} if private is None else private.stated(num_steps)
    return {
        "out": str(out),
        "sha256": digest,
        "client": name,
        "family": params.family,
        **stated,
        "steps": num_steps,
        "resumed_from": saved.step if saved else 0,
        "parameters": sum(tensor.numel() for tensor in initial.values()),
        "custody": "private",
        **({"kept": [str(path) for path in kept_paths.values()]} if kept_paths else {}),
    }


def _targets(
    family: MeanMatching,
    weights: Mapping[str, Tensor],
    images: ImageRows,
    labels: Tensor,
    people: NDArray[np.int64] | None,
    private: PrivateTraining | None,
) -> dict[str, Tensor]:
    """What the generator is to match: the one look at the images, noised under differential privacy."""
    import torch

    from stages.privacy.mechanism import clipped_length

    limit = 1.0 if private is None else clipped_length(private.clip_norm)
    units = None if people is None else torch.from_numpy(people)
    sums, noise = family.class_sums(weights, images, labels, limit=limit, people=units), 0.0
    if private is not None:
        sums, noise = private.noised(sums)
    return {name: tensor.to(labels.device) for name, tensor in family.targets(sums, limit=limit, noise=noise).items()}


def _with_noise(params: GeneratorTraining) -> GeneratorTraining:
    """With the noise that a target ε asks for; the number of steps is public then."""
    if not params.is_private:
        return params
    steps = params.releases(params.num_steps(0))
    try:
        noisy = params.calibrated(steps)
        record_event(noisy, steps)  # which refuses what the accountants cannot count
    except ValueError as error:
        raise UsageError(f"{'--target-epsilon: ' if params.target_epsilon else ''}{error}.") from error
    return noisy


def _check_records(paths: Sequence[Path], datasets: Sequence[DescribedDataset]) -> None:
    """Under DP a row is a record, and every record is one row: else it would move a sum by more than the clip norm."""
    refuse_repetition(paths, [dataset.sha256 for dataset in datasets])
    require_fixed(paths, [dataset.metadata for dataset in datasets])
    for path, dataset in zip(paths, datasets, strict=True):
        about = dataset.metadata
        if about.travels or about.privacy or about.disclosures:
            raise InputError(
                f"{path} was made from records and holds none: one of theirs may be behind many of its rows, so "
                "that no ε for them would hold. Train on the records themselves."
            )


def _kept_paths(out: Path, keep_at: Sequence[int], num_steps: int) -> dict[int, Path]:
    for step in keep_at:
        if not 0 < step < num_steps:
            raise UsageError(f"--keep-at {step}: the training has {num_steps} steps, and the last is kept anyway.")
    return {step: out.with_stem(f"{out.stem}-{step:05}") for step in sorted(set(keep_at))}


def _kept(family: Generator, state: TrainingState, images: ImageRows, labels: Tensor) -> dict[str, Tensor]:
    return family.finished({name: tensor.detach() for name, tensor in state.result.items()}, images, labels)


def _stated(losses: Mapping[str, Tensor]) -> str:
    """`loss 0.183`, or the loss of each part where there are two."""
    if len(losses) == 1:
        return "".join(f"loss {loss.item():.3f}" for loss in losses.values())
    return ", ".join(f"{name} {loss.item():.3f}" for name, loss in losses.items())


def _kind_of_images(paths: Sequence[Path], datasets: Sequence[DescribedDataset]) -> tuple[ImageShape, tuple[str, ...]]:
    """Size and classes of the images; all datasets must agree."""
    first = datasets[0].metadata.params
    for path, dataset in zip(paths, datasets, strict=True):
        for key in ("channels", "height", "width", "class_names"):
            found, wanted = dataset.metadata.params[key], first[key]
            if found != wanted:
                raise InputError(f"{path} and {paths[0]} do not go together: {key} is {found!r} and {wanted!r}.")
    class_names = tuple(first["class_names"])
    size = {key: first[key] for key in ("channels", "height", "width")}
    return ImageShape(**size, num_classes=len(class_names)), class_names
