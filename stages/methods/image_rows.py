"""What a method needs of its images, which may be in memory or in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor


class ImageRows(Protocol):
    """Images by their row numbers, as a network takes them: a tensor, or what makes a batch when it is asked for."""

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Tensor: ...


class ImageArray(Protocol):
    """Images as bytes, [n, c, h, w]: an array, or what is indexed like one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> NDArray[np.uint8]: ...


def pieces(count: int, size: int | None) -> list[slice]:
    """The rows of a batch, `size` at a time, or all at once."""
    step = size or max(1, count)
    return [slice(first, first + step) for first in range(0, count, step)]
