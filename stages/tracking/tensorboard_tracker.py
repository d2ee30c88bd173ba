"""TensorBoard, by the writer that torch has for it: a folder of event files for each run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_FOLDER = "tensorboard"


def opened(place: str | None) -> TensorBoardTracker:
    import tensorboard  # noqa: F401  (torch's own message, where it is not installed, does not say how to install it)

    folder = Path(place or _FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    return TensorBoardTracker(folder)


class TensorBoardTracker:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, SummaryWriter] = {}

    def begin(self, name: str, params: Mapping[str, str], known: str | None) -> str:
        from torch.utils.tensorboard import SummaryWriter

        if known is not None and (self._folder / known).is_dir():
            self._writers[known] = SummaryWriter(str(self._folder / known))
            return known
        number, run = 1, name
        while (self._folder / run).exists():  # another run's
            number += 1
            run = f"{name}-{number}"
        self._writers[run] = SummaryWriter(str(self._folder / run))
        rows = "\n".join(f"| {key} | {value} |" for key, value in params.items())
        self._writers[run].add_text("recipe", f"| parameter | value |\n|---|---|\n{rows}")
        return run

    def log(self, run: str, round: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self._writers[run].add_scalar(key, value, round)
        self._writers[run].flush()

    def end(self) -> None:
        for writer in self._writers.values():
            writer.close()
