"""torchvision's datasets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from artifacts.errors import UsageError
from stages.data.conform import Form
from stages.data.images import LabelledImages
from stages.data.named_source import NamedSource
from stages.data.torchvision_source import FOLDERS, load_torchvision
from stages.hyperparameters import hyper
from stages.registry import SOURCES


class _FromRoot(NamedSource):
    takes = frozenset({"--root", "--download"})

    def read(
        self, form: Form, *, root: Path | None, download: bool, emnist_split: str | None
    ) -> tuple[LabelledImages, LabelledImages]:
        if root is None:
            needs = FOLDERS[self.source]
            raise UsageError(f"{self.source} needs --root, the folder that holds {needs}, or that --download fills.")
        return load_torchvision(self.source, root, download, emnist_split or "balanced", form)


@SOURCES.register
@dataclass(frozen=True, kw_only=True)
class TorchvisionSet(_FromRoot):
    source: Literal["mnist", "fashion-mnist", "cifar10", "cifar100"] = hyper("mnist", "…: that dataset, under --root")


@SOURCES.register
@dataclass(frozen=True, kw_only=True)
class Emnist(_FromRoot):
    takes = _FromRoot.takes | {"--emnist-split"}

    source: Literal["emnist"] = hyper("emnist", "emnist: letters and digits, under --root")
