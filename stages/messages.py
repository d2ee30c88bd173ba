"""Reading what clients sent: each message is checked against the model it claims to be for, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from artifacts import tensors_file
from artifacts.errors import InputError
from artifacts.metadata import InputRef, Metadata
from artifacts.tensors_file import TensorArtifact
from stages.model_file import check_fits, round_of
from stages.proxy_file import decoded

UPDATES, STATES = ("message", "update", "proxy"), ("state",)


def check_claims(path: Path, metadata: Metadata, model: TensorArtifact, *, kinds: tuple[str, ...] = UPDATES) -> None:
    """Kind, round and model are those of this round, by what the header says."""
    if metadata.kind not in kinds:
        rule = f" Give --rule {metadata.method}." if metadata.kind == "surrogate" else ""
        raise InputError(f"{path} is a {metadata.kind}; a {' or '.join(kinds)} is needed.{rule}")
    if metadata.custody == "private":
        raise InputError(
            f"{path} is a private {metadata.kind}, which never leaves its client. Run `fedsynth encode` on it."
        )
    round = round_of(model) + 1
    if metadata.round != round:
        raise InputError(f"{path} is of round {metadata.round}, but {model.path} begins round {round}.")
    if InputRef(role="model", kind="model", sha256=model.sha256) not in metadata.inputs:
        raise InputError(f"{path} is for another model than {model.path}: its digest is not the one it names.")


def read_update(path: Path, model: TensorArtifact, *, states: bool = False) -> TensorArtifact:
    """A message, update or sent state, whole, whose tensors are the model's; of a proxy, what it stands for."""
    metadata, _ = tensors_file.read_header(path)
    if metadata.kind == "proxy" and not states:
        check_claims(path, metadata, model)
        return decoded(path, model)
    artifact = tensors_file.read(path)
    check_claims(path, artifact.metadata, model, kinds=STATES if states else UPDATES)
    check_fits(artifact.tensors, exchanged(model), path, partial=states)
    return artifact


def exchanged(model: TensorArtifact) -> dict[str, NDArray[Any]]:
    """The tensors of a model that messages carry: all but batch norm's counters."""
    return {name: tensor for name, tensor in model.tensors.items() if tensor.dtype.kind == "f"}
