"""Checkpoints of `train-generator`: killed at any moment, it goes on and ends with the same bytes.

A checkpoint is beside the output, is as private, and belongs to one training: same data, parameters, seed, client,
versions and arithmetic; under differential privacy also the same key, whose noise it carries. No random state is in
it, because every step draws from a stream of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.metadata import Metadata
from artifacts.writing import atomic
from stages.generators.file import PROGRESS

if TYPE_CHECKING:
    import torch

    from stages.methods.generator_training import TrainingState

_SUFFIX = ".checkpoint"
_TENSORS = ("weights", "means", "squares", "average")


@dataclass(frozen=True)
class Checkpoint:
    """`metadata` is what the finished generator will say of itself; `mark` names the noise, if there is any.

    The steps that follow use the noise of one key in one context. Begun with other noise and ended with this one, a
    training would be a second output under that noise.
    """

    out: Path
    metadata: Metadata
    device: torch.device
    num_steps: int
    mark: str | None = None

    @property
    def path(self) -> Path:
        return self.out.with_name(self.out.name + _SUFFIX)

    def save(self, state: TrainingState) -> None:
        tensors = {
            f"{group}.{name}": tensor.detach().cpu().numpy()
            for group in _TENSORS
            for name, tensor in getattr(state, group).items()
        }
        tensors_file.write(self.path, tensors, self._metadata(state.step), force=True)

    def load(self, first: TrainingState, *, force: bool) -> TrainingState | None:
        """The saved state, or None if there is none. `first` has the names and shapes that it must have.

        A checkpoint of another training is refused; with `force` it is passed over, and replaced by the next one.
        """
        if not self.path.exists():
            return None
        try:
            found = tensors_file.read(self.path, kind="generator")
        except InputError as error:
            raise InputError(f"{error} It is a checkpoint: delete it to begin the training anew.") from error
        progress = found.metadata.params.get(PROGRESS)
        step = progress.get("step") if isinstance(progress, dict) else None
        if type(step) is not int or not 0 < step < self.num_steps:
            step = 0
        differing = _first_difference(found.metadata, self._metadata(step))
        wanted = {f"{g}.{n}": t.shape for g in _TENSORS for n, t in getattr(first, g).items()}
        if differing is None and {n: a.shape for n, a in found.tensors.items()} != wanted:
            differing = "tensors"
        if differing is not None:
            if force:
                return None
            raise InputError(
                f"{self.path} is the checkpoint of a training with other {differing}. Delete it, or add --force to "
                "begin anew."
            )
        return self._state(step, found.tensors, first)

    def remove(self) -> None:
        atomic.remove(self.path)

    def _metadata(self, step: int) -> Metadata:
        progress: dict[str, Any] = {"step": step, "of": self.num_steps}
        if self.mark is not None:
            progress["noise"] = self.mark
        return dataclasses.replace(self.metadata, params={**self.metadata.params, PROGRESS: progress})

    def _state(self, step: int, tensors: Mapping[str, Any], first: TrainingState) -> TrainingState:
        import torch

        groups = [
            {
                name: torch.from_numpy(tensors[f"{group}.{name}"].copy()).to(self.device)
                for name in getattr(first, group)
            }
            for group in _TENSORS
        ]
        return type(first)(step, *groups)


def _first_difference(found: Metadata, wanted: Metadata) -> str | None:
    """In which respect the two trainings differ, in words of the command line."""
    words = {"inputs": "data", "versions": "library versions", "arithmetic": "processor or device"}
    for name in ("client", "seed", *words):
        if getattr(found, name) != getattr(wanted, name):
            return words.get(name, name)
    keys = sorted(found.params.keys() | wanted.params.keys())
    changed = [key for key in keys if found.params.get(key) != wanted.params.get(key)]
    if changed == [PROGRESS]:
        return "length" if _progress(found).get("of") != _progress(wanted).get("of") else "key"
    if changed:
        return f"parameters ({', '.join(key for key in changed if key != PROGRESS)})"
    return None if found == wanted else "metadata"


def _progress(metadata: Metadata) -> dict[str, Any]:
    progress = metadata.params.get(PROGRESS)
    return progress if isinstance(progress, dict) else {}
