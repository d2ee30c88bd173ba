"""What a source that has a name declares. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stages.data.conform import Form
from stages.data.images import LabelledImages
from stages.hyperparameters import HyperParameters, hyper


@dataclass(frozen=True, kw_only=True)
class NamedSource(HyperParameters):
    """Images by a name, `source`. An option that is not among `takes` is refused before `read` is called."""

    takes: ClassVar[frozenset[str]] = frozenset()

    source: str = hyper("", "source")

    def read(
        self, form: Form, *, root: Path | None, download: bool, emnist_split: str | None
    ) -> tuple[LabelledImages, LabelledImages | None]:
        """The training images in the form that was asked for, and the test images if there are some of their own."""
        raise NotImplementedError
