"""A reviewed copy: what a person left of the images that a generator drew.

Any tool may have written it, as Parquet with `image` and `label`, in any order. It says which images may leave; the
images themselves are drawn again, so that nothing can ride along.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from stages.data.conform import Form
from stages.data.images import LabelledImages
from stages.data.parquet_source import Columns, load_parquet


def reviewed_rows(drawn: LabelledImages, copy: Path) -> NDArray[np.int64]:
    """The rows of `drawn` that the copy holds, each once. A row that was never drawn is refused."""
    left, *_ = load_parquet(copy, Columns(), Form())
    unused: dict[tuple[bytes, int], list[int]] = {}
    for row in reversed(range(len(drawn))):
        unused.setdefault(_identity(drawn, row), []).append(row)
    kept = []
    for row in range(len(left)):
        rows = unused.get(_identity(left, row))
        if not rows:
            raise InputError(
                f"{copy}, row {row}: not an image that this generator drew with this label, seed and count. A reviewed "
                "copy may leave images out, and changes none."
            )
        kept.append(rows.pop())
    return np.sort(np.array(kept, np.int64))


def _identity(data: LabelledImages, row: int) -> tuple[bytes, int]:
    image = data.images[row]
    return str(image.shape).encode() + image.tobytes(), int(data.labels[row])
