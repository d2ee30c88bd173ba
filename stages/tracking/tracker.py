"""What every experiment tracker does, and which there are. No tracker's package is imported before it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from artifacts.errors import InputError, UsageError


class Tracker(Protocol):
    """One tracker's side of several runs. Any exception of its methods is an answer of the tracker, not a defect."""

    def begin(self, name: str, params: Mapping[str, str], known: str | None) -> str:
        """Open the run that it calls `known`, where it still has it, else a new one; return what it calls it."""

    def log(self, run: str, round: int, values: Mapping[str, float]) -> None:
        """The values of one round of a run that was begun."""

    def end(self) -> None:
        """Whatever is still in memory is written."""


@dataclass(frozen=True)
class _Kind:
    """`make` opens the tracker in `stages.tracking.<module>`; `place` is what may come after a colon."""

    module: str
    place: str
    package: str

    def make(self, place: str | None) -> Tracker:
        try:
            opened: Callable[[str | None], Tracker] = import_module(f"stages.tracking.{self.module}").opened
            return opened(place)
        except ImportError as error:
            raise InputError(
                f"--log {self.package} needs the package {error.name or self.package}, which is not installed. Run: "
                f"pip install 'fedsynth[{self.package}]'"
            ) from error


KINDS = {
    "mlflow": _Kind("mlflow_tracker", "tracking URI", "mlflow"),
    "tensorboard": _Kind("tensorboard_tracker", "folder", "tensorboard"),
    "wandb": _Kind("wandb_tracker", "project", "wandb"),
}


def open_tracker(text: str) -> tuple[str, Tracker]:
    """`mlflow`, or `mlflow:sqlite:///runs.db`: the tracker's name, and the tracker."""
    name, _, place = text.partition(":")
    if name not in KINDS:
        known = ", ".join(f"{kind}[:{about.place}]" for kind, about in KINDS.items())
        raise UsageError(f"--log {text}: there is no tracker {name!r}. Known: {known}.")
    try:
        return name, KINDS[name].make(place or None)
    except (InputError, UsageError):
        raise
    except Exception as error:
        raise InputError(f"--log {text}: {_reason(error)}. Nothing was done.") from error


def _reason(error: Exception) -> str:
    """The first line of what a tracker said, or the kind of error where it said nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
