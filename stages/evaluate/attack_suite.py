"""`evaluate MODEL FILE… --attack suite`: every attack that fits a file, and one table for an auditor.

Updates, messages and proxies: Inverting Gradients as one gradient, unrolled over the local steps, and with batch norm's
averages as a prior; the inputs of a linear first layer; label counts; who was in the update. Synthetic sets: who is
near to what was published. The model: LiRA with shadow models. It looks at private images: what it writes is private,
and a decision by it about what leaves has looked at them too (privacy contract, rule 16).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.digests import sha256_file
from artifacts.errors import InputError
from artifacts.formats import Format, format_named, tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.publish import prepare_private
from artifacts.writing import atomic
from stages.data.dataset_images import load_dataset
from stages.data.images import LabelledImages, to_pixels
from stages.evaluate.accuracy import read_fitting_model
from stages.evaluate.attack_files import other_images, read_attacked, rounded
from stages.evaluate.sacro_target import prepare_target, write_target
from stages.execution.progress import Report, Summary
from stages.execution.randomness import numpy_stream, stream_seed
from stages.models.file import check_images_fit, network_of, to_module
from stages.nets.params import InputShape

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.execution.torch_setup import Device
    from stages.methods.inverting_gradients import Attack
    from stages.methods.membership import Found

_MOST_LOOKED_FOR = 8
_NOTE = "An attack that fails proves nothing: a better one may not. For a guarantee use differential privacy."
Pixels = NDArray[np.float32]


@dataclass(frozen=True)
class LocalWork:
    """What the attacker knows of a client's training; of one step the size does not matter."""

    steps: int = 1
    batch_size: int | None = None
    rate: float = 0.1


@dataclass(frozen=True)
class Shadows:
    """How many shadow models are trained, and how."""

    models: int = 8
    steps: int = 200
    batch_size: int = 32
    rate: float = 0.1


@dataclass(eq=False)
class _Suite:
    """What all attacks share: the model, the private images, and others that no client has."""

    start: TensorArtifact
    shape: InputShape
    private: LabelledImages
    others: LabelledImages
    looked_for: int
    attack: Attack
    work: LocalWork
    seed: int
    where: Any
    report: Report

    def module(self) -> nn.Module:
        return to_module(self.start, self.where)

    def tensors(self, content: LabelledImages) -> tuple[Tensor, Tensor]:
        import torch

        return (torch.from_numpy(to_pixels(content.images)).to(self.where),
                torch.from_numpy(content.labels.copy()).to(self.where))  # fmt: skip

    def alike(self, images: Pixels) -> dict[str, Any]:
        """How near the images come to private ones, and how many are nearer to theirs than to any other."""
        from stages.methods.inverting_gradients import likeness, mean_squares

        found = likeness(images, to_pixels(self.private.images))
        beside = mean_squares(images[found.rows], to_pixels(self.others.images)).min(axis=1)
        values = {"psnr": found.psnr.mean(), "psnr_best": found.psnr.max(), "ssim": found.ssim.mean()}
        return {**{k: rounded(v) for k, v in values.items()}, "identified": int((found.mse < beside).sum())}

    def inverted(self, name: str, update: dict[str, Tensor], *, unroll: bool, prior: Any = None) -> dict[str, Any]:
        import torch

        from stages.methods.gradient_leaks import unrolled
        from stages.methods.inverting_gradients import inverted

        module, change = self.module(), None
        labels = torch.from_numpy(self.private.labels[: self.looked_for].copy()).to(self.where)
        if unroll:
            size = self.work.batch_size or self.looked_for
            change = partial(unrolled, steps=self.work.steps, rate=self.work.rate, batch_size=size)
        result = inverted(
            module, update, labels, (self.looked_for, self.shape.channels, self.shape.height, self.shape.width),
            attack=self.attack, change=change, prior=prior or None,
            report=lambda done, total, _cost: self.report(done, total, name),
            generator=torch.Generator().manual_seed(stream_seed(self.seed, stage="evaluate", of="attack")),
        )  # fmt: skip
        return {"attack": name, **self.alike(result.images.cpu().numpy()), "cosine": rounded(result.cosine)}


def evaluate_suite(
    model: Path, files: Sequence[Path], out: Path, *, against: Path, held_out: Path, images: int | None,
    attack: Attack, work: LocalWork, shadows: Shadows, sacro: Path | None, seed: int, device: Device, force: bool,
    report: Report,
) -> Summary:  # fmt: skip
    """Attack each file by all that fits it, and the model by shadow models; `sacro` is a folder for SACRO-ML."""
    prepare_private(out)
    if sacro is not None:
        prepare_target(sacro)
    dataset = load_dataset(against)
    start, shape = read_fitting_model(model, against, dataset)
    content = dataset.content
    looked_for = min(images or _MOST_LOOKED_FOR, len(content))
    others = other_images(held_out, shape, looked_for)

    from stages.execution.torch_setup import set_up

    suite = _Suite(start, shape, content, others, looked_for, attack, work, seed, set_up(device), report)
    rows: list[dict[str, Any]] = []
    for path in files:
        of_file = _on_set(suite, path) if _is_set(path) else _on_update(suite, path)
        digest = sha256_file(path)
        rows += [{"file": str(path), "sha256": digest, **row} for row in of_file]
    if shadows.models:
        rows.append({"file": str(model), "sha256": start.sha256, **_on_model(suite, shadows)})
    summary: dict[str, Any] = {
        "custody": "private",
        "attack": "suite",
        "round": start.metadata.round,
        "num_private": len(content),
        "held_out": len(others),
        "images": looked_for,
        "attack_steps": attack.steps,
        "restarts": attack.restarts,
        "local_steps": work.steps,
        "shadow_models": shadows.models,
        "seed": seed,
        "rows": rows,
        "best": [_best(str(path), rows) for path in [*files, *([model] if shadows.models else [])]],
        "note": _NOTE,
    }
    if sacro is not None:
        both = (suite.tensors(suite.private), suite.tensors(suite.others))
        write_target(sacro, suite.module(), model.name, *both, force=force)
    atomic.write_json(out, summary, force=force)
    return {"out": str(out), **summary}


def _on_update(suite: _Suite, path: Path) -> list[dict[str, Any]]:
    import torch

    from stages.methods import gradient_leaks as leaks
    from stages.methods.inverting_gradients import last_bias

    found = read_attacked(path, suite.start)
    update = {name: torch.from_numpy(np.array(part)).to(suite.where) for name, part in found.artifact.tensors.items()}
    module = suite.module()
    tries: list[Callable[[], dict[str, Any]]] = [
        lambda: suite.inverted("inverting gradients", update, unroll=False),
    ]
    if suite.work.steps > 1:
        tries.append(lambda: suite.inverted("inverting gradients, unrolled", update, unroll=True))
    prior = leaks.BatchNormPrior(module, update, steps=suite.work.steps)
    if prior:
        tries.append(lambda: suite.inverted("with batch norm's averages", update, unroll=False, prior=prior))
    try:
        rows = [one() for one in tries]
    except ValueError as error:
        raise InputError(f"{path} cannot be attacked: {error}.") from error
    if found.own_images is not None:
        rows.append({"attack": "the proxy's own images", **suite.alike(found.own_images)})
    shape, pixels = suite.shape, suite.shape.channels * suite.shape.height * suite.shape.width
    inputs = leaks.linear_inputs(module, update, pixels)
    if inputs is not None and len(inputs):
        guesses = inputs.clamp(-1, 1).reshape(-1, shape.channels, shape.height, shape.width).float().cpu().numpy()
        rows.append({"attack": "inputs of the first layer", **suite.alike(guesses)})
    public, _ = suite.tensors(suite.others)
    with torch.no_grad():
        expected = torch.softmax(suite.module().eval()(public), 1).mean(0)
    shares = leaks.label_shares(update[last_bias(module)[0]], expected).cpu().numpy()
    true = leaks.true_shares(suite.private.labels, shape.num_classes)
    even = np.full(shape.num_classes, 1 / shape.num_classes)
    rows.append({"attack": "label counts", "wrong": rounded(leaks.total_variation_distance(shares, true)),
                 "wrong_by_guess": rounded(leaks.total_variation_distance(even, true))})  # fmt: skip
    inside, outside = (leaks.linked(module, update, *suite.tensors(side)) for side in (suite.private, suite.others))
    rows.append({"attack": "linkability", **_membership(inside, outside)})
    return rows


def _on_set(suite: _Suite, path: Path) -> list[dict[str, Any]]:
    """A synthetic set: a record near to one of its images may have been its source."""
    from stages.methods.membership import distances

    if format_named(path) is Format.DATASET:
        published = load_dataset(path)
        check_images_fit(path, published.metadata, suite.shape)
        images = to_pixels(published.content.images)
    else:
        images = np.array(tensors_file.read(path, kind="surrogate").tensors["images"])
        wanted = (suite.shape.channels, suite.shape.height, suite.shape.width)
        if images.shape[1:] != wanted:
            raise InputError(f"{path} holds images of {list(images.shape[1:])}; the model takes {list(wanted)}.")
    scores = [distances(to_pixels(side.images), images) for side in (suite.private, suite.others)]
    near = suite.alike(np.clip(images, -1, 1).astype(np.float32))
    return [{"attack": "membership by distance", **_membership(*scores)}, {"attack": "its own images", **near}]


def _on_model(suite: _Suite, shadows: Shadows) -> dict[str, Any]:
    import torch

    from stages.methods import membership
    from stages.nets.build import new_network

    network, shape = network_of(suite.start.metadata, suite.start.path)
    images, labels = (
        torch.cat(pair) for pair in zip(suite.tensors(suite.private), suite.tensors(suite.others), strict=True)
    )
    rng = numpy_stream(suite.seed, stage="evaluate", of="shadows")
    inside = membership.halves(len(labels), shadows.models, rng)
    found = []
    for number, rows in enumerate(inside):
        shadow = new_network(network, shape, stream_seed(suite.seed, stage="evaluate", of=f"shadow {number}")).to(
            suite.where
        )
        mine = torch.from_numpy(np.flatnonzero(rows)).to(suite.where)
        membership.fit(
            shadow, images[mine], labels[mine], steps=shadows.steps, batch_size=shadows.batch_size, rate=shadows.rate,
            generator=torch.Generator().manual_seed(stream_seed(suite.seed, stage="evaluate", of=f"order {number}")),
        )  # fmt: skip
        found.append(membership.confidence(shadow, images, labels))
        suite.report(number + 1, shadows.models, "shadow models")
    target = membership.confidence(suite.module(), images, labels)
    scores = membership.likelihood_ratios(target, np.stack(found), inside)
    members = len(suite.private)
    return {"attack": f"LiRA, {shadows.models} shadow models", **_membership(scores[:members], scores[members:])}


def _membership(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> dict[str, Any]:
    from stages.methods.membership import measured

    found: Found = measured(inside, outside)
    return {
        "auc": rounded(found.auc),
        "tpr": rounded(found.true_rate),
        "tpr_interval": [rounded(end) for end in found.interval],
        "fpr": rounded(found.false_rate),
        "identified": found.identified,
    }


def _is_set(path: Path) -> bool:
    if format_named(path) is Format.DATASET:
        return True
    return tensors_file.read_header(path)[0].kind == "surrogate"


def _best(path: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The attack that identifies most; then the one whose images, or whose members, are clearest."""
    mine = [row for row in rows if row["file"] == path]
    return max(mine, key=lambda row: (row.get("identified", 0), row.get("psnr", 0.0), row.get("auc", 0.0)))
