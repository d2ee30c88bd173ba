"""`synthesize`: images from a client's generator, as a dataset that may leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError, UsageError
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.ledgers import lineage
from artifacts.ledgers.gate import destination
from artifacts.metadata import Metadata
from artifacts.places import client_of, is_leaving
from artifacts.publish import prepare
from artifacts.writing import atomic
from stages.charging.spending import key_of, refuse_uncovered
from stages.data.dataset_images import dataset_params, save_dataset
from stages.data.images import LabelledImages, to_bytes
from stages.execution.progress import Report, Summary, silent
from stages.execution.randomness import stream_seed
from stages.execution.versions import versions
from stages.generators.file import class_counts_of, described, facts_of, read_generator, weights_of
from stages.generators.review import reviewed_rows
from stages.methods.labels import apportioned, labels_of, parsed_labels
from stages.methods.params.generator import GeneratorTraining
from stages.methods.params.synthesis import Synthesis, learnt_classes
from stages.nets.generator_params import ImageShape
from stages.pictures.contact_sheet import contact_sheets

if TYPE_CHECKING:
    import torch

    from stages.execution.torch_setup import Device

_BATCH = 250


def synthesize(
    generator: Path,
    out: Path,
    *,
    params: Synthesis,
    seed: int,
    drop: Sequence[int] = (),
    reviewed: Path | None = None,
    sheet: Path | None = None,
    key: Path | None = None,
    client: str | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Draw labelled images and write them: outbound and declared if into an outbox, private anywhere else.

    `drop` leaves out images by their number as drawn, which `sheet` shows; `reviewed` keeps those that a copy of the
    private file still holds. The file and the ledger then say that it was picked over, never what was left out.
    """
    leaves = is_leaving(out)
    prepare(out, "outbound" if leaves else "private")
    if sheet is not None:
        prepare(sheet, "private")
    name = client_of(out, client)
    source = read_generator(generator)
    if source.metadata.client != name:
        raise InputError(f"{generator} is the generator of client {source.metadata.client!r}, not of {name!r}.")
    training, shape, class_names = described(source.metadata, generator)
    private = bool(source.metadata.privacy)
    if facts_of(source.metadata) != {"family": params.family, "private": params.private}:
        raise UsageError(f"{generator}: these parameters of synthesize were made for another generator.")
    labels = _labels(params, source, class_names)
    kept = _kept(len(labels), drop)
    if len(drop) and reviewed is not None:
        raise UsageError("--drop and --reviewed exclude each other: give one.")
    sampling = _sampling(params, training)
    secret = keys.read(key_of(out, key)) if leaves or private else None

    from stages.execution.torch_setup import arithmetic, set_up

    where = set_up(device)
    images = _draw(source, training, shape, labels, sampling, _seeds(source, secret, seed), where, report)
    if reviewed is not None:
        kept = reviewed_rows(LabelledImages(images, labels, class_names), reviewed)
    if sheet is not None:
        shown = f"{len(kept)} of {len(labels)}" if len(kept) < len(labels) else f"{len(labels)}"
        title = f"client {name}, {training.family}: {shown} synthetic images"
        pages = contact_sheets(images[kept], labels[kept], kept, class_names, title)
        for path, page in zip(_pages(sheet, len(pages)), pages, strict=True):
            atomic.write(path, [page], force=force, custody="private")
    content = LabelledImages(images, labels, class_names).take(kept)
    about: dict[str, Any] = {**dataset_params(content), "labels": params.labels, **sampling}
    if len(kept) < len(labels) or reviewed is not None:
        about["picked"] = True  # to approve all is a choice too
    context = {"stage": "synthesize", "client": name, "params": about, "seed": seed, "rows": kept.tolist()}
    disclosures: set[str] = set()
    if not private or "picked" in about:
        # Whatever labels were asked for, images of a class that was never seen look like none: that discloses the set.
        # Under DP the events cover all that; but not what someone chose who has seen the data (privacy contract, 16).
        disclosures = {"derived_images", "class_set"} | ({"class_counts"} if params.labels == "frequency" else set())
    metadata = Metadata(
        kind="dataset",
        stage="synthesize",
        method=training.family,
        custody="outbound" if leaves else "private",
        client=name,
        params=about,
        inputs=(
            lineage.for_outbound(source, "generator", key=secret, context=context)
            if leaves and secret is not None
            else lineage.by_digest(source, "generator"),
        ),
        privacy=source.metadata.privacy,
        disclosures=tuple(sorted(disclosures)),
        seed=None if leaves else seed,
        # Noise under a key that a simulation derived stays what it is, no matter who draws the images.
        simulation=leaves and (source.metadata.simulation or (secret is not None and secret.simulation)),
        versions=versions("torch", *training.libraries, "numpy", "pyarrow", "pillow"),
        arithmetic=arithmetic(where),
    )
    if leaves:
        refuse_uncovered(key_of(out, key), metadata.privacy, metadata.disclosures, [generator])
    digest = save_dataset(out, content, metadata, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "bytes": destination(out).stat().st_size,
        "client": name,
        "images": len(content),
        "custody": metadata.custody,
        "disclosures": list(metadata.disclosures),
        **({"sheets": [str(path) for path in _pages(sheet, len(pages))]} if sheet is not None else {}),
    }


def _weights(params: Synthesis, source: TensorArtifact, num_classes: int) -> list[int]:
    """In proportion to what images are made of each class."""
    if params.labels == "frequency":
        return [int(count) for count in class_counts_of(source, num_classes)]
    learnt = source.tensors[str(learnt_classes(params.family))].tolist() if params.labels == "learnt" else []
    # One that learnt nothing, because of its noise, makes images of noise: of all classes alike.
    return [int(known > 0) for known in learnt] if any(learnt) else [1] * num_classes


def _labels(params: Synthesis, source: TensorArtifact, class_names: Sequence[str]) -> NDArray[np.int64]:
    """The label of each image, in order of classes, or in the order given."""
    if params.label_list is None:
        assert params.count is not None  # Synthesis checked it
        return labels_of(apportioned(_weights(params, source, len(class_names)), params.count))
    try:
        labels = parsed_labels(params.label_list, class_names)
    except ValueError as error:
        raise UsageError(f"--label-list: {error}.") from error
    if not len(labels):
        raise UsageError("--label-list names no image: nothing would be made.")
    if params.count not in (None, len(labels)):
        raise UsageError(f"--count {params.count} and --label-list of {len(labels)} differ: leave one out.")
    return labels


def _kept(count: int, drop: Sequence[int]) -> NDArray[np.int64]:
    wrong = [number for number in drop if not 0 <= number < count]
    if wrong:
        raise UsageError(f"--drop {wrong[0]}: images are numbered from 0 to {count - 1}.")
    kept = np.setdiff1d(np.arange(count, dtype=np.int64), np.array(drop, np.int64))
    if not len(kept):
        raise UsageError("--drop leaves no image.")
    return kept


def _sampling(params: Synthesis, training: GeneratorTraining) -> dict[str, Any]:
    """Sampler and steps as the metadata state them; nothing for families that draw in one go."""
    if params.sampler is None:
        return {}
    longest = getattr(training, "timesteps", None)
    if longest is not None and params.sampling_steps is not None and params.sampling_steps > longest:
        raise UsageError(f"--sampling-steps {params.sampling_steps}: the generator was trained with {longest}.")
    return {"sampler": params.sampler, "sampling_steps": params.sampling_steps}


def _pages(sheet: Path, count: int) -> list[Path]:
    """`sheet.png`, `sheet-2.png`, …"""
    return [sheet, *(sheet.with_stem(f"{sheet.stem}-{number}") for number in range(2, count + 1))]


def _seeds(source: TensorArtifact, secret: Key | None, seed: int) -> Callable[[int], int]:
    """The seed of each batch's noise.

    The generator's digest, which nobody else knows, names the stream: the seed alone (0, if none is given) must not be
    enough to draw the noise again and have pairs of noise and image to attack the generator with. That digest depends
    on private data beyond what noise covers, so under DP the seeds follow from the key: without it they say nothing.
    """
    name = source.sha256
    if source.metadata.privacy and secret is not None:
        name = secret.derive(f"synthesize {name}").hex()
    client = source.metadata.client
    return lambda number: stream_seed(seed, stage="synthesize", client=client, of=f"batch {number} of {name}")


def _draw(
    source: TensorArtifact,
    training: GeneratorTraining,
    shape: ImageShape,
    labels: NDArray[np.int64],
    sampling: dict[str, Any],
    seed_of: Callable[[int], int],
    where: torch.device,
    report: Report,
) -> NDArray[np.uint8]:
    """The images, a batch at a time; each batch has a stream of its own."""
    import torch

    try:
        family = training.build(shape)
    except ValueError as error:
        raise InputError(f"{source.path} describes a generator that cannot be built: {error}.") from error
    weights = weights_of(source, family, where)
    options = {"sampler": sampling["sampler"], "steps": sampling["sampling_steps"]} if sampling else {}
    images = []
    for number, first in enumerate(range(0, len(labels), _BATCH)):
        these = torch.from_numpy(labels[first : first + _BATCH]).to(where)

        def tell(done: int, total: int, first: int = first, size: int = len(these)) -> None:
            report(first + size * done // total, len(labels), f"{sampling.get('sampler', training.family)}")

        drawn = family.sample(weights, these, torch.Generator().manual_seed(seed_of(number)), report=tell, **options)
        try:
            images.append(to_bytes(drawn.cpu().numpy()))
        except ValueError as error:
            raise InputError(f"{source.path} makes no images: {error}. Train it anew.") from error
    return np.concatenate(images)
