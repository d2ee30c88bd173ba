"""`evaluate --attack suite --sacro FOLDER`: a model's probabilities as SACRO-ML loads them, for its attacks.

Probabilities on private records are private, and so is the folder. CSV without a header, and no pickle.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.publish import prepare_private
from artifacts.writing import atomic
from stages.export.formats.sacro import ARRAYS

if TYPE_CHECKING:
    from torch import Tensor, nn

_TARGET = "target.yaml"


def prepare_target(folder: Path) -> None:
    prepare_private(folder / _TARGET)


def write_target(
    folder: Path, module: nn.Module, name: str, members: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor],
    *, force: bool,
) -> None:  # fmt: skip
    """Probabilities and labels of members («train») and of others («test»), and the file that names them."""
    import yaml

    arrays: dict[str, NDArray[Any]] = {}
    for side, (images, labels) in (("train", members), ("test", others)):
        arrays[f"proba_{side}"] = _probabilities(module, images)
        arrays[f"y_{side}"] = labels.cpu().numpy()
    right = {
        side: float((arrays[f"proba_{side}"].argmax(1) == arrays[f"y_{side}"]).mean()) for side in ("train", "test")
    }
    target = {
        "dataset_name": name,
        "dataset_module_path": "",
        "features": {},
        "generalisation_gap": right["train"] - right["test"],
        "safemodel": [],
        **{f"{array}_path": f"{array}.csv" if array in arrays else "" for array in ARRAYS},
    }
    files: Mapping[str, bytes] = {
        **{f"{array}.csv": _csv(values) for array, values in arrays.items()},
        _TARGET: yaml.safe_dump(target, sort_keys=False, allow_unicode=True).encode(),
    }
    for file, content in files.items():
        atomic.write(folder / file, [content], force=force, custody="private")


def _probabilities(module: nn.Module, images: Tensor, batch_size: int = 500) -> NDArray[np.float64]:
    import torch

    module.eval()
    with torch.no_grad():
        parts = [torch.softmax(module(some).double(), 1) for some in images.split(batch_size)]
    found: NDArray[np.float64] = torch.cat(parts).cpu().numpy()
    return found


def _csv(values: NDArray[Any]) -> bytes:
    text = io.StringIO()
    np.savetxt(text, values, delimiter=",", fmt="%.17g")
    return text.getvalue().encode()
