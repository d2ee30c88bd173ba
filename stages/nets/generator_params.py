"""What a generator makes, and how large its network is. Free of torch: `--help` reads it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ImageShape:
    """The images that a generator makes. One class is enough: a client may know no other."""

    channels: int
    height: int
    width: int
    num_classes: int

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{field.name} must be a whole number of at least 1, found {value!r}")


@dataclass(frozen=True, kw_only=True)
class UNetSize:
    """Level i is 2^i times smaller than the image and `base_width` · `multipliers[i]` channels wide."""

    base_width: int
    multipliers: tuple[int, ...]
    residual_blocks: int
    attention_from: int
    dropout: float
