"""`evaluate RUN --clipping C`: how long the clients' updates are before they are clipped, and what a clip leaves.

DP-FedSAM, Fig. 3 and Eq. 15: α_i = min(1, C/‖Δ_i‖) is the factor of client i's clip (Eq. 8), α̅ its mean over the
clients and α̃ the mean of |α_i − α̅|. With α̅ near 1 the clip takes little away; with α̃ near 0 it takes the same from
all. The mean is over the clients that took part in the round: of the others there is no update. The norm is one over
the whole update, batch norm's averages included, as the clip's. It reads what never left the clients, which only a
simulation can: what it writes is private.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError, UsageError
from artifacts.formats import tensors_file
from artifacts.places import RunFolder
from artifacts.publish import prepare_private
from artifacts.writing import atomic
from stages.execution.progress import Report, Summary, silent
from stages.pictures.clipping import ClippedRound, clipping_picture
from stages.run_folder.files import update_file

_NUMBERED = re.compile(r"update-(\d{4,})\.safetensors")
_QUANTILES = {"min": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "max": 1.0}
_DIGITS = 9
_NOTE = (
    "From private updates, without noise: a C that is chosen by these numbers depends on them, and no ε covers that. "
    "Choose C on public data, or on a simulation."
)


@dataclass(frozen=True)
class Clipping:
    """Of one round: α̅ and α̃ of Eq. 15, and the share of the clients whose update is shortened."""

    alpha_mean: float
    alpha_deviation: float
    clipped: float


def clipping(norms: NDArray[np.float64], clip_norm: float) -> Clipping:
    """Eq. 15. An update of length zero is not clipped."""
    alpha = factors(norms, clip_norm)
    mean = float(alpha.mean())
    return Clipping(mean, float(np.abs(alpha - mean).mean()), float((norms > clip_norm).mean()))


def factors(norms: NDArray[np.float64], clip_norm: float) -> NDArray[np.float64]:
    """α_i = min(1, C/‖Δ_i‖)."""
    return clip_norm / np.maximum(norms, clip_norm)


def update_norm(tensors: Mapping[str, NDArray[Any]]) -> float:
    """‖Δ‖ over all tensors together, in float64."""
    return float(np.sqrt(sum(np.square(tensor, dtype=np.float64).sum() for tensor in tensors.values())))


def evaluate_clipping(
    run: Path,
    out: Path,
    *,
    clip_norm: float,
    rounds: Sequence[int] = (),
    picture: Path | None = None,
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Measure the updates of each of `rounds`, all of them if none is named."""
    for path in (out, picture):
        if path is not None:
            prepare_private(path)
    if not 0 < clip_norm < float("inf"):
        raise UsageError(f"--clipping is a length above 0, found {clip_norm:g}.")
    folder = RunFolder(run)
    files = _files(folder, rounds)
    norms: dict[int, NDArray[np.float64]] = {}
    for number, (round, paths) in enumerate(files.items()):
        report(number, len(files), f"round {round}")
        norms[round] = np.array([_norm(path, round) for path in paths])
    report(len(files), len(files), "")
    summary: dict[str, Any] = {
        "custody": "private",
        "clip_norm": clip_norm,
        "rounds": {str(round): _described(found, clip_norm) for round, found in norms.items()},
        "note": _NOTE,
    }
    if picture is not None:
        drawn = [ClippedRound(round, found, factors(found, clip_norm)) for round, found in norms.items()]
        atomic.write(picture, [clipping_picture(drawn, clip_norm)], force=force, custody="private")
    atomic.write_json(out, summary, force=force)
    return {"out": str(out), **summary}


def _files(folder: RunFolder, rounds: Sequence[int]) -> dict[int, list[Path]]:
    """The update files of each round asked for, in the order of rounds and clients."""
    folder.require_clients()
    found: dict[int, list[Path]] = {}
    for name in folder.client_names():
        for path in folder.client(name).private.glob("update-*.safetensors"):
            match = _NUMBERED.fullmatch(path.name)
            if match and path == folder.root / update_file(name, int(match[1])):
                found.setdefault(int(match[1]), []).append(path)
    if not found:
        raise InputError(f"{folder.clients} holds no private/update-….safetensors: no round was trained here.")
    for round in rounds:
        if round not in found:
            first, last = min(found), max(found)
            raise InputError(f"--round {round}: {folder.root} has the updates of rounds {first} to {last}.")
    return {round: sorted(found[round]) for round in sorted(set(rounds) or found)}


def _norm(path: Path, round: int) -> float:
    update = tensors_file.read(path, kind="update")
    if update.metadata.round != round:
        raise InputError(f"{path} is an update of round {update.metadata.round}, not of {round}. Put it in its place.")
    return update_norm(update.tensors)


def _described(norms: NDArray[np.float64], clip_norm: float) -> dict[str, float]:
    found = clipping(norms, clip_norm)
    values = {f"norm_{name}": float(np.quantile(norms, share)) for name, share in _QUANTILES.items()}
    values |= {
        "norm_mean": float(norms.mean()),
        "alpha_mean": found.alpha_mean,
        "alpha_deviation": found.alpha_deviation,
        "clipped": found.clipped,
    }
    return {"clients": len(norms), **{name: round(value, _DIGITS) for name, value in values.items()}}
