"""`evaluate MODEL FILE… --attack inverting-gradients --against DATA`: what an update or its proxy discloses of images.

TOFU, Sec. 3.1 and Fig. 2: the attack of Geiping et al. 2020 on a client's update as it is, and on what its proxy is
for. Each image that it finds is held against the private one nearest to it, beside yardsticks: noise, other images, and
the mean of the class, which is what a label alone discloses. It looks at private images: what it writes is private.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError, UsageError
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.publish import prepare_private
from artifacts.writing import atomic
from stages.data.dataset_images import load_dataset
from stages.data.images import LabelledImages, to_pixels
from stages.evaluate.accuracy import read_fitting_model
from stages.evaluate.attack_files import Attacked, other_images, read_attacked, rounded
from stages.evaluate.attack_suite import LocalWork, Shadows, evaluate_suite
from stages.execution.progress import Report, Summary, silent
from stages.execution.randomness import numpy_stream, stream_seed
from stages.models.file import to_module
from stages.pictures.attack import AttackRow, Shown, attack_picture

if TYPE_CHECKING:
    from torch import Tensor

    from stages.execution.torch_setup import Device
    from stages.methods.inverting_gradients import Inverted, Likeness

STEPS, TOTAL_VARIATION, RESTARTS = 1000, 1e-3, 2
_DRAWS = 20  # of noise, and of other images
_NOTE = (
    "An attack that fails proves nothing: a better one may not. One that succeeds proves that the file discloses "
    "single images."
)
Pixels = NDArray[np.float32]


def evaluate_attack(
    model: Path,
    files: Sequence[Path],
    out: Path,
    *,
    against: Path,
    held_out: Path | None = None,
    images: int | None = None,
    labels: Literal["known", "inferred"] = "inferred",
    attack_steps: int = STEPS,
    total_variation: float = TOTAL_VARIATION,
    restarts: int = RESTARTS,
    attack: Literal["inverting-gradients", "suite"] = "inverting-gradients",
    local_steps: int = 1,
    local_batch: int | None = None,
    local_rate: float = 0.1,
    shadow_models: int = 8,
    shadow_steps: int = 200,
    sacro: Path | None = None,
    seed: int = 0,
    picture: Path | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Attack each of `files`; as many images as `against` holds are looked for, unless `images` says how many.

    `held_out` are images that no client has: what others look like, and whether what was found is nearer to the true
    image than to any of them.
    """
    for path in (out, picture):
        if path is not None:
            prepare_private(path)
    if not 0 <= total_variation < math.inf:
        raise UsageError(f"--total-variation is a number from 0, found {total_variation:g}.")
    if attack == "suite":
        if held_out is None:
            raise UsageError("--attack suite needs --held-out: images that no client has, to tell members from others.")
        if picture is not None:
            raise UsageError("--picture goes with --attack inverting-gradients.")
        from stages.methods.inverting_gradients import Attack

        return evaluate_suite(
            model, files, out, against=against, held_out=held_out, images=images, seed=seed, device=device,
            attack=Attack(attack_steps, total_variation, restarts), force=force, report=report,
            work=LocalWork(local_steps, local_batch, local_rate),
            shadows=Shadows(models=shadow_models, steps=shadow_steps, rate=local_rate), sacro=sacro,
        )  # fmt: skip
    if sacro is not None:
        raise UsageError("--sacro goes with --attack suite.")
    dataset = load_dataset(against)
    start, shape = read_fitting_model(model, against, dataset)
    content, count = dataset.content, images or len(dataset.content)
    if labels == "known" and count != len(content):
        raise UsageError(f"--labels known: {count} images are looked for, but {against} has {len(content)} labels.")
    others = None if held_out is None else other_images(held_out, shape, count)
    targets = [read_attacked(path, start) for path in files]

    import torch

    from stages.execution.torch_setup import set_up
    from stages.methods.inverting_gradients import Attack, inferred_labels, inverted, last_bias, likeness

    where = set_up(device)
    module = to_module(start, where)
    true = to_pixels(content.images)
    size = (count, shape.channels, shape.height, shape.width)
    given: Tensor | None = torch.from_numpy(content.labels.copy()).to(where)
    soft = labels == "inferred" and count >= shape.num_classes
    found: list[tuple[Attacked, Inverted, Likeness]] = []
    for number, target in enumerate(targets):
        update = {name: torch.from_numpy(np.array(part)).to(where) for name, part in target.artifact.tensors.items()}

        def tell(done: int, total: int, cost: float, number: int = number) -> None:
            report(number * total + done, len(targets) * total, f"cost {cost:.3f}")

        if labels == "inferred":
            given = None if soft else inferred_labels(update[last_bias(module)[0]], count)
        try:
            result = inverted(
                module, update, given, size, attack=Attack(attack_steps, total_variation, restarts),
                generator=torch.Generator().manual_seed(stream_seed(seed, stage="evaluate", of="attack")), report=tell,
            )  # fmt: skip
        except ValueError as error:
            raise InputError(f"{target.artifact.path} cannot be attacked: {error}.") from error
        found.append((target, result, likeness(result.images.cpu().numpy(), true)))
    first = targets[0].artifact
    summary: dict[str, Any] = {
        "custody": "private",
        "attack": "inverting-gradients",
        "round": first.metadata.round,
        "num_private": len(content),
        "images": count,
        "labels": "optimised with the images" if soft else labels,
        "attack_steps": attack_steps,
        "total_variation": total_variation,
        "restarts": restarts,
        "seed": seed,
        "held_out": None if others is None else len(others),
        "yardsticks": _yardsticks(true, content, count, others, numpy_stream(seed, stage="evaluate", of="yardsticks")),
        "files": [_described(*each, first, content, others) for each in found],
        "note": _note(dataset.metadata.client, targets),
    }
    if picture is not None:
        rows = _rows(summary, found, content, others)
        atomic.write(picture, [attack_picture(rows)], force=force, custody="private")
    atomic.write_json(out, summary, force=force)
    return {"out": str(out), **summary}


def _class_means(labels: NDArray[np.int64], others: LabelledImages) -> Pixels:
    """The mean image of each label's class; of all, where the others have none of it."""
    pixels = to_pixels(others.images)
    mine = (pixels[others.labels == label] for label in labels)
    return np.stack([(some if len(some) else pixels).mean(axis=0) for some in mine])


def _yardsticks(
    true: Pixels, content: LabelledImages, count: int, others: LabelledImages | None, random: np.random.Generator
) -> dict[str, dict[str, float]]:
    """What those reach who never saw the update."""
    from stages.methods.inverting_gradients import likeness

    noise = [random.uniform(-1, 1, (count, *true.shape[1:])).astype(np.float32) for _ in range(_DRAWS)]
    guesses = {"noise": noise}
    if others is not None:
        drawn = [random.choice(len(others), count, replace=False) for _ in range(_DRAWS)]
        guesses["other_images"] = [to_pixels(others.images[rows]) for rows in drawn]
        guesses["class_means"] = [_class_means(content.labels, others)]
    found = {name: [likeness(guess, true) for guess in each] for name, each in guesses.items()}
    return {
        name: {key: rounded(np.mean([getattr(one, key).mean() for one in each])) for key in ("mse", "psnr", "ssim")}
        for name, each in found.items()
    }


def _described(
    target: Attacked,
    result: Inverted,
    alike: Likeness,
    first: TensorArtifact,
    content: LabelledImages,
    others: LabelledImages | None,
) -> dict[str, Any]:
    from stages.methods.inverting_gradients import likeness

    artifact = target.artifact
    stated: dict[str, Any] = {
        "file": str(artifact.path),
        "kind": artifact.metadata.kind,
        "client": artifact.metadata.client,
        "cosine_to_first": rounded(_cosine(artifact, first)),
        "attack_cosine": rounded(result.cosine),
        **_stated(alike, result.images.cpu().numpy(), others),
        "psnr_best": rounded(alike.psnr.max()),
    }
    pairs = zip(alike.rows, alike.true_rows, alike.mse, alike.psnr, alike.ssim, strict=True)
    labels = result.labels.tolist()
    stated["pairs"] = [
        {
            "private_row": int(true_row),
            "label": int(content.labels[true_row]),
            "attack_label": labels[row],
            **{key: rounded(value) for key, value in (("mse", mse), ("psnr", psnr), ("ssim", ssim))},
        }
        for row, true_row, mse, psnr, ssim in pairs
    ]
    if target.own_images is not None:
        own = likeness(target.own_images, to_pixels(content.images))
        stated["own_images"] = {"images": len(target.own_images), **_stated(own, target.own_images, others)}
    return stated


def _stated(alike: Likeness, images: Pixels, others: LabelledImages | None) -> dict[str, Any]:
    """Means over the pairs, and how many are nearer to their private image than to any other."""
    from stages.methods.inverting_gradients import mean_squares

    stated: dict[str, Any] = {key: rounded(getattr(alike, key).mean()) for key in ("mse", "psnr", "ssim")}
    if others is not None:
        beside = mean_squares(images[alike.rows], to_pixels(others.images)).min(axis=1)
        stated["identified"] = int((alike.mse < beside).sum())
    return stated


def _cosine(one: TensorArtifact, other: TensorArtifact) -> float:
    """Over what both have: a proxy says nothing of batch norm's averages."""
    names = sorted(one.tensors.keys() & other.tensors.keys())
    a, b = (np.concatenate([side.tensors[name].ravel().astype(np.float64) for name in names]) for side in (one, other))
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-300))


def _note(owner: str | None, targets: Sequence[Attacked]) -> str:
    foreign = any(owner is not None and target.artifact.metadata.client != owner for target in targets)
    return _NOTE + (f" The images are of client {owner}, some of the files are not." if foreign else "")


def _rows(
    summary: dict[str, Any],
    found: Sequence[tuple[Attacked, Inverted, Likeness]],
    content: LabelledImages,
    others: LabelledImages | None,
) -> list[AttackRow]:
    """The true images, then each attack in their order, then what those guess who know the classes alone."""
    from stages.methods.inverting_gradients import likeness

    true = to_pixels(content.images)
    rows = [AttackRow("private images", [(image, "") for image in true])]
    for (target, result, alike), stated in zip(found, summary["files"], strict=True):
        name, beside = f"attack on the\nraw {stated['kind']}", target.own_images
        own: Shown = ()
        if beside is not None:
            name = f"attack on a proxy,\n{len(beside)} images,\ncosine {stated['cosine_to_first']:.3f}"
            own = _placed(beside, likeness(beside, true), len(true))
        rows.append(AttackRow(name, _placed(result.images.cpu().numpy(), alike, len(true)), own))
    if others is not None:
        means = _class_means(content.labels, others)
        guesses = [(mean, f"{likeness(mean[None], image[None]).psnr[0]:.1f} dB") for mean, image in
                   zip(means, true, strict=True)]  # fmt: skip
        rows.append(AttackRow("no attack: mean of\nother images\nof the class", guesses))
    return rows


def _placed(images: Pixels, alike: Likeness, columns: int) -> Shown:
    """Each image in the column of the private one that it belongs to."""
    pairs = zip(alike.rows, alike.true_rows, alike.psnr, strict=True)
    places = {int(column): (images[row], f"{psnr:.1f} dB") for row, column, psnr in pairs}
    return [places.get(column, (None, "")) for column in range(columns)]
