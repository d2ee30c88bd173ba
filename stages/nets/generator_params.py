"""What a generator makes, and how large its network is. Free of torch: `--help` reads it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class ImageShape:
    """The images that a generator makes. One class is enough: a client may know no other."""

    least_classes: ClassVar[int] = 1

    channels: int
    height: int
    width: int
    num_classes: int

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = self.least_classes if field.name == "num_classes" else 1
            if type(value) is not int or value < least:
                raise ValueError(f"{field.name} must be a whole number of at least {least}, found {value!r}")


@dataclass(frozen=True, kw_only=True)
class UNetSize:
    """Level i is 2^i times smaller than the image and `base_width` · `multipliers[i]` channels wide."""

    base_width: int
    multipliers: tuple[int, ...]
    residual_blocks: int
    attention_from: int
    dropout: float
