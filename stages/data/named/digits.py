"""The handwritten digits inside scikit-learn's wheel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stages.data.conform import collect
from stages.data.images import LabelledImages
from stages.data.named_source import NamedSource, SourceRequest
from stages.hyperparameters import hyper
from stages.registry import SOURCES


@SOURCES.register
@dataclass(frozen=True, kw_only=True)
class Digits(NamedSource):
    """1,797 digits, 8×8; their 17 grey levels spread over 0…255."""

    source: Literal["digits"] = hyper("digits", "digits: 8×8, nothing is downloaded")

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1, 8, 8

    def read(self, asked: SourceRequest) -> tuple[LabelledImages, None]:
        from sklearn.datasets import load_digits

        bunch = load_digits()
        images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
        names = tuple(str(name) for name in bunch.target_names)
        return LabelledImages(collect(images, len(images), asked.form), bunch.target.astype(np.int64), names), None
