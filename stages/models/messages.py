"""Reading what clients sent: each message is checked against the model it claims to be for, or refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from artifacts.disclosures import COUNTS
from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.safetensors_layout import TensorSpec
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.kinds import KINDS
from artifacts.metadata import InputRef, Metadata
from stages.declared import check_params
from stages.execution.dispatch import named
from stages.execution.versions import versions
from stages.models.file import check_fits, round_of
from stages.nets.params import matches
from stages.registry import ENCODERS

UPDATES = tuple(name for name, kind in KINDS.items() if kind.carries == "update")
STATES = tuple(name for name, kind in KINDS.items() if kind.carries == "state")


class MadeBy(TypedDict):
    """Fields of `Metadata`."""

    versions: dict[str, str]
    arithmetic: str | None


def check_claims(
    path: Path,
    metadata: Metadata,
    model: TensorArtifact,
    *,
    kinds: tuple[str, ...] = UPDATES,
    any_model: bool = False,
) -> None:
    """Kind, round and model are those of this round, by what the header says, and its parameters are declared."""
    check_params(path, metadata)
    if metadata.kind not in kinds:
        rule = f" Give --rule {metadata.method}." if metadata.kind == "surrogate" else ""
        needed = " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
        raise InputError(f"{path} is a {metadata.kind}; a {needed} is needed.{rule}")
    if metadata.custody == "private":
        raise InputError(
            f"{path} is a private {metadata.kind}, which never leaves its client. Run `fedsynth encode` on it."
        )
    round = round_of(model) + 1
    if metadata.round != round:
        raise InputError(f"{path} is of round {metadata.round}, but {model.path} begins round {round}.")
    if not any_model and InputRef(role="model", kind="model", sha256=model.sha256) not in metadata.inputs:
        raise InputError(f"{path} is for another model than {model.path}: its digest is not the one it names.")


def is_noised(metadata: Metadata) -> bool:
    """Whether noise covers an update; it may have events that came with images, and be bare itself."""
    return bool(metadata.privacy) and "update" not in metadata.disclosures


def refuse_brought(path: Path, metadata: Metadata) -> None:
    """Noise for whole clients covers an update alone, not what images that the client was given cost or disclose."""
    of_its_own = COUNTS | KINDS[metadata.kind].always_discloses | {"update"}
    if metadata.privacy or not of_its_own >= set(metadata.disclosures):
        raise InputError(
            f"{path} was trained on images that fedsynth made and that were ingested: noise for whole clients does not "
            "cover what these cost or disclose. Train without them."
        )


def carries_share(metadata: Metadata) -> bool:
    """Whether this is one client's file with a share of the round's noise, which hides it only among the others'."""
    return metadata.client is not None and any(event.get("shares", 1) != 1 for event in metadata.privacy)


def refuse_one_share(path: Path, metadata: Metadata) -> None:
    """Alone such a file has less noise than its event says, and below the threshold nothing is released (rule 23)."""
    if carries_share(metadata):
        raise InputError(
            f"{path} carries a share of the round's noise, which hides it only in the sum with the others'. Aggregate "
            "the round's messages; nobody may use one alone."
        )


def read_update(path: Path, model: TensorArtifact, *, states: bool = False) -> TensorArtifact:
    """A message, update or sent state, whole, whose tensors are the model's; of a proxy, what it stands for."""
    metadata, _ = tensors_file.read_header(path)
    if KINDS[metadata.kind].encoded and not states:
        check_claims(path, metadata, model)
        # By its kind: a sum of such files has no method of its own.
        encoder = next(one for one in ENCODERS.classes if one.kind == metadata.kind)
        assert encoder.decoded_by is not None  # as its kind says
        decoded: TensorArtifact = named(encoder.decoded_by)(path, model)
        return decoded

    def fits(metadata: Metadata, specs: Sequence[TensorSpec]) -> None:
        check_claims(path, metadata, model, kinds=STATES if states else UPDATES)
        check_fits({spec.name: spec for spec in specs}, exchanged(model), path, partial=states)

    artifact = tensors_file.read(path, fits=fits)
    # A message may travel in half precision; the reader goes on in single.
    return replace(
        artifact, tensors={name: array.astype(np.float32, copy=False) for name, array in artifact.tensors.items()}
    )


def exchanged(model: TensorArtifact) -> dict[str, NDArray[Any]]:
    """The tensors of a model that messages carry: all but batch norm's counters and what is frozen."""
    frozen = model.metadata.params.get("net_freeze")
    return {
        name: tensor for name, tensor in model.tensors.items() if tensor.dtype.kind == "f" and not matches(name, frozen)
    }


def made_by(kinds: Sequence[str], *libraries: str) -> MadeBy:
    """What decides the bytes of a file made from messages of these kinds: numpy, and torch where it decodes."""
    if not any(encoder.decodes_with_torch and encoder.kind in kinds for encoder in ENCODERS.classes):
        return {"versions": versions("numpy", *libraries), "arithmetic": None}
    from stages.execution.torch_setup import arithmetic, set_up

    return {"versions": versions("numpy", "torch", *libraries), "arithmetic": arithmetic(set_up("auto"))}
