"""Images from torchvision's datasets, in the layout that torchvision itself downloads.

torchvision checks the digests of CIFAR's files before it unpickles them; the others' idx files are plain numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from stages.data.conform import Form, collect
from stages.data.images import LabelledImages


class TorchvisionFiles(NamedTuple):
    """A dataset: torchvision's class, where it lies under `--root`, and what is known without it."""

    dataset: str
    folder: str
    shape: tuple[int, int, int]
    num_classes: int | None  # of EMNIST each split has its own


_GREY, _COLOUR = (1, 28, 28), (3, 32, 32)
SETS = {
    "mnist": TorchvisionFiles("MNIST", "MNIST/raw", _GREY, 10),
    "fashion-mnist": TorchvisionFiles("FashionMNIST", "FashionMNIST/raw", _GREY, 10),
    "emnist": TorchvisionFiles("EMNIST", "EMNIST/raw", _GREY, None),
    "cifar10": TorchvisionFiles("CIFAR10", "cifar-10-batches-py", _COLOUR, 10),
    "cifar100": TorchvisionFiles("CIFAR100", "cifar-100-python", _COLOUR, 100),
}
EMNIST_CLASSES = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}


def load_torchvision(
    name: str, root: Path, download: bool, emnist_split: str, form: Form
) -> tuple[LabelledImages, LabelledImages]:
    """The training and test splits. `emnist_split` is for `emnist` only; nothing is fetched without `download`."""
    return (
        _split(name, root, True, download, emnist_split, form),
        _split(name, root, False, download, emnist_split, form),
    )


def _split(name: str, root: Path, train: bool, download: bool, emnist_split: str, form: Form) -> LabelledImages:
    folder = root / SETS[name].folder
    try:
        dataset = _open(name, root, train, download, emnist_split)
        labels: NDArray[np.int64] = np.asarray(dataset.targets).astype(np.int64)
        images: NDArray[np.uint8] = np.asarray(dataset.data)
        class_names = tuple(dataset.classes)
    except Exception as error:  # torchvision asserts, and raises nearly everything
        raise _explained(name, folder, download, error) from error
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    if name == "emnist":
        images = images.transpose(0, 1, 3, 2)  # NIST stored them column by column
        if emnist_split == "letters":
            labels, class_names = labels - 1, class_names[1:]  # its labels are 1…26, and 0 is named «N/A»
    try:
        return LabelledImages(collect(images, len(images), form), labels, class_names)
    except ValueError as error:
        raise InputError(f"{folder}: {error}.") from error


def _open(name: str, root: Path, train: bool, download: bool, emnist_split: str) -> Any:
    from stages.nets.torchvision_door import torchvision

    kind = getattr(torchvision().datasets, SETS[name].dataset)
    options = {"split": emnist_split} if name == "emnist" else {}
    return kind(root=root, train=train, download=download, **options)


def _explained(name: str, folder: Path, download: bool, error: Exception) -> InputError:
    reason = str(error).partition("\n")[0] or type(error).__name__
    if download:
        return InputError(f"{name} could not be downloaded to {folder}, or cannot be read there: {reason}.")
    if "not found" in reason:
        return InputError(f"{name} is not in {folder}, or not whole; add --download to fetch it, or mend --root.")
    return InputError(f"{name} in {folder} is damaged ({reason}); remove it and add --download to fetch it.")
