"""torchvision's datasets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from artifacts.errors import UsageError
from stages.data.images import LabelledImages
from stages.data.named_source import NamedSource, SourceRequest
from stages.data.torchvision_source import EMNIST_CLASSES, SETS, load_torchvision
from stages.hyperparameters import hyper
from stages.registry import SOURCES

_SPLIT = "balanced"


@SOURCES.register
@dataclass(frozen=True, kw_only=True)
class TorchvisionSet(NamedSource):
    source: Literal["mnist", "fashion-mnist", "emnist", "cifar10", "cifar100"] = hyper("mnist", "…: that dataset")

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"--root", "--download", *(["--emnist-split"] if self.source == "emnist" else [])})

    @property
    def shape(self) -> tuple[int, int, int]:
        return SETS[self.source].shape

    def read_by(self, emnist_split: str | None) -> dict[str, str]:
        return {"emnist_split": emnist_split or _SPLIT} if self.source == "emnist" else {}

    def num_classes(self, emnist_split: str | None) -> int:
        return SETS[self.source].num_classes or EMNIST_CLASSES[emnist_split or _SPLIT]

    def read(self, asked: SourceRequest) -> tuple[LabelledImages, LabelledImages]:
        if asked.root is None:
            name, needs = self.source, SETS[self.source].folder
            mistaken = f" For the folder {name} in this directory write ./{name}." if Path(name).exists() else ""
            raise UsageError(f"{name} needs --root, the folder that holds {needs}, or that --download fills.{mistaken}")
        split = asked.emnist_split or _SPLIT
        return load_torchvision(self.source, asked.root, asked.download, split, asked.form)
