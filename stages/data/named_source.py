"""What a source that has a name declares. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stages.data.attributes import Attribute
from stages.data.conform import Form
from stages.data.images import LabelledImages
from stages.hyperparameters import HyperParameters, hyper


@dataclass(frozen=True, kw_only=True)
class SourceRequest:
    """What the operator said beside the name: the form of the images, and where from."""

    form: Form
    root: Path | None
    download: bool
    emnist_split: str | None
    by: tuple[Attribute, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NamedSource(HyperParameters):
    """Images by a name, `source`. An option that is not among `takes` is refused before `read` is called."""

    source: str = hyper("", "source")

    @property
    def takes(self) -> frozenset[str]:
        """Those of the options --root, --download, --emnist-split and --by that it has a use for."""
        return frozenset()

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Channels, height and width, if they are known without the data: presets for a size are chosen by them."""
        return None

    def read_by(self, emnist_split: str | None) -> dict[str, str]:  # noqa: ARG002
        """Its parameters as they are used, given or not."""
        return {}

    def num_classes(self, emnist_split: str | None) -> int | None:  # noqa: ARG002
        """How many classes it has, if that is known without the data: of what stands in for it they are as many."""
        return None

    def read(self, asked: SourceRequest) -> tuple[LabelledImages, LabelledImages | None]:
        """The training images in the form that was asked for, and the test images if there are some of their own."""
        raise NotImplementedError
