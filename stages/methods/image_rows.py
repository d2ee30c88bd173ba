"""What a training needs of its images."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class ImageRows(Protocol):
    """Images by their row numbers, as a network takes them: a tensor, or what makes a batch when it is asked for."""

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Tensor: ...
