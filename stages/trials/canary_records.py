"""Records as canaries: a client's images have a number, and the loss of each is one coordinate of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import UsageError
from artifacts.formats import dataset_file, describe, format_named
from stages.data.dataset_images import load_dataset, save_dataset
from stages.data.images import LabelledImages
from stages.execution.progress import Report
from stages.privacy.events import PrivacyEvent, distinct
from stages.recipes.perform import perform
from stages.trials.attacker import LOUD, Attacker
from stages.trials.runs import Trial

_DIGITS = 256
_STEP = "noisy_gradient"  # which all of DP-SGD, generators and FedLAP call


def run_with_records(trial: Trial, attacker: Attacker, there: NDArray[np.bool_], report: Report) -> list[PrivacyEvent]:
    """All steps that lead to the subject's files with an ε; the events of those files."""
    world = trial.world("canaries")
    _plant(world.data, np.flatnonzero(there))
    found: list[PrivacyEvent] = []
    for number, step in enumerate(world.steps, start=1):
        if step.owner == world.subject:
            with planted(attacker):
                perform(step, world.root)
        else:
            perform(step, world.root)
        report(number, len(world.steps), step.command)
        for name in step.outputs:
            if f"clients/{world.subject}/outbox/" in name and format_named(name):
                about = describe(world.root / name).metadata
                found += [PrivacyEvent.from_json(event) for event in about.privacy]
    return distinct(found)


def _plant(data: Path, numbers: NDArray[np.int64]) -> None:
    """In place of the client's records, these canaries: black images with their number in the first pixels."""
    content = load_dataset(data).content
    images = np.zeros((len(numbers), *content.images.shape[1:]), np.uint8)
    flat = images.reshape(len(numbers), -1)
    for place in range(3):
        flat[:, place] = numbers // _DIGITS**place % _DIGITS
    labels = numbers % len(content.class_names)
    about = dataset_file.read_metadata(data)
    save_dataset(data, LabelledImages(images, labels, content.class_names), about, force=True)


@contextmanager
def planted(attacker: Attacker) -> Iterator[None]:
    """While it lasts, a record's loss is its canary's: a gradient along one coordinate. All else is as it is."""
    import torch
    from torch import Tensor

    from stages.generators.private import PrivateTraining
    from stages.methods import feddm, fedlap, merf, private_gradients, private_local_training

    def numbers(images: Tensor) -> Tensor:
        digits = ((images.flatten(-3)[..., :3] + 1) * 127.5).round().long()
        return digits[..., 0] + _DIGITS * digits[..., 1] + _DIGITS**2 * digits[..., 2]

    def of_gradients(whole: Any) -> Any:
        def noisy_gradient(_loss: Any, weights: Any, examples: Any, *, mechanism: Any, **options: Any) -> Any:
            size = sum(weight.numel() for weight in weights.values())
            places = torch.from_numpy(attacker.coordinates(size))
            loud = LOUD * mechanism.clip_norm

            def canary(own: Any, image: Tensor, *_: Any) -> Tensor:
                flat = torch.cat([own[name].flatten() for name in weights])
                value = torch.gather(flat, 0, places[numbers(image)][None]).sum()
                scaled: Tensor = loud * value
                return scaled

            found = whole(canary, weights, examples, mechanism=mechanism, **options)
            flat = torch.cat([found[name].flatten() for name in weights]).double().numpy()
            scale = mechanism.expected_size / mechanism.clip_norm
            attacker.saw(flat[places.numpy()] * scale, mechanism.noise_multiplier)
            return found

        return noisy_gradient

    def one_feature(images: Tensor, classes: int, size: int) -> Tensor:
        """A feature for each canary of a class: the class is the number's rest, the feature what is left of it."""
        if attacker.canaries > size * classes:
            raise UsageError(f"{size * classes} features are released: give at most that as --canaries.")
        found = torch.zeros(len(images), size, dtype=torch.float64)
        found[torch.arange(len(images)), numbers(images) // classes] = 1
        return found

    def by_class(sums: NDArray[np.float64], noise_multiplier: float) -> None:
        every = np.arange(attacker.canaries)
        attacker.saw(sums[every % len(sums), every // len(sums)], noise_multiplier)

    def embedded_alone(module: Any, _weights: Any, images: Tensor, *_: Any) -> Tensor:
        size = feddm.embedded_size(module)
        classes = int(module.classifier[-1].out_features)
        return one_feature(images, classes, size) * LOUD

    def noisy_mean(total: Any, mechanism: Any, noise: Any) -> Any:
        released = kept[feddm, "noisy_mean"](total, mechanism, noise)
        scale = mechanism.expected_size / mechanism.clip_norm
        by_class(released["sums"].astype(np.float64) * scale, mechanism.noise_multiplier)
        return released

    def features_length(clip_norm: float, count_share: float) -> float:
        length: float = kept[feddm, "features_length"](clip_norm, count_share)
        attacker.length = length / clip_norm
        return length

    def class_sums(family: Any, weights: Any, images: Any, labels: Any, **options: Any) -> Tensor:
        """DP-MERF clips nothing: a canary's feature is as long as its image's own features are."""
        attacker.length = (1 - merf.COUNT_SHARE**2) ** 0.5
        whole, classes = merf.Merf.embedded, len(weights[merf.MEANS])

        def embedded(family: Any, weights: Any, images: Tensor) -> Tensor:
            own: Tensor = whole(family, weights, images)
            lengths: Tensor = torch.linalg.vector_norm(own, dim=1, keepdim=True)
            return one_feature(images, classes, own.shape[1]) * lengths

        _put({(merf.Merf, "embedded"): embedded})
        try:
            found: Tensor = kept[merf.Merf, "class_sums"](family, weights, images, labels, **options)
        finally:
            _put({(merf.Merf, "embedded"): whole})
        return found

    def noised(private: Any, sums: Tensor) -> Any:
        found = kept[PrivateTraining, "noised"](private, sums)
        by_class(found[0].numpy() / private.clip_norm, private.params.noise_multiplier)
        return found

    others = {"embedded_alone": embedded_alone, "noisy_mean": noisy_mean, "features_length": features_length}
    steps: list[ModuleType] = [private_local_training, private_gradients, fedlap]
    kept: dict[tuple[ModuleType | type, str], Any] = {(module, _STEP): getattr(module, _STEP) for module in steps}
    kept |= {(feddm, name): getattr(feddm, name) for name in others}
    kept |= {(merf.Merf, "class_sums"): merf.Merf.class_sums, (PrivateTraining, "noised"): PrivateTraining.noised}
    instead: dict[tuple[ModuleType | type, str], Any] = {
        (module, _STEP): of_gradients(kept[module, _STEP]) for module in steps
    }
    instead |= {(feddm, name): other for name, other in others.items()}
    instead |= {(merf.Merf, "class_sums"): class_sums, (PrivateTraining, "noised"): noised}
    try:
        _put(instead)
        yield
    finally:
        _put(kept)


def _put(functions: Mapping[tuple[ModuleType | type, str], Any]) -> None:
    for (module, name), function in functions.items():
        setattr(module, name, function)
