"""`evaluate RUN --surrogates`: what the synthetic sets of FedLAP and FedDM are like, and what the server made of them.

FedLAP, Figs. 8 and 10: the radius that each client suggests, the one that the server kept to, and its steps, over
rounds. Fig. 11: how the pixels are distributed, which are free numbers and no colours: wide at first, closer to zero
later. It reads what is in the outboxes and the server's own account of its descent, nothing private. But a set is
for the server, and discloses one client's data whatever it declares: what is written here stays with the server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.plain_data import read_json
from artifacts.kinds import Custody
from artifacts.places import RunFolder
from artifacts.publish import prepare_kept
from artifacts.writing import atomic
from stages.execution.progress import Report, Summary, silent
from stages.pictures.surrogate_sheet import SheetRound, surrogate_sheet
from stages.pictures.surrogates import SurrogateRound, surrogates_picture
from stages.run_folder.files import descent_file, surrogate_file

_NUMBERED = re.compile(r"surrogate-(\d{4,})\.safetensors")
_QUANTILES = {
    "min": 0.0, "p01": 0.01, "p05": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "max": 1.0,
}  # fmt: skip
_DIGITS = 6
_CUSTODY: Custody = "server"


@dataclass(frozen=True, eq=False)
class Surrogate:
    """One file of an outbox."""

    client: str
    method: str | None
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    radius: float | None
    size: int


@dataclass(frozen=True)
class RunDescent:
    """The server's account of a round; all None where it is not at hand. FedDM has no radius."""

    radius: float | None = None
    steps: int | None = None
    distance: float | None = None
    left_out: int | None = None


def pixel_distribution(images: NDArray[np.floating[Any]]) -> dict[str, float]:
    """Quantiles, mean and standard deviation over all pixels, and the share of them that no real image can have."""
    pixels = np.asarray(images, np.float64).ravel()
    values = {name: float(np.quantile(pixels, share)) for name, share in _QUANTILES.items()}
    values |= {"mean": float(pixels.mean()), "std": float(pixels.std()), "beyond": float((np.abs(pixels) > 1).mean())}
    return {name: round(value, _DIGITS) for name, value in values.items()}


def evaluate_surrogates(
    run: Path,
    out: Path,
    *,
    rounds: Sequence[int] = (),
    picture: Path | None = None,
    sheet: Path | None = None,
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Measure the sets of each of `rounds`, all of them if none is named."""
    for path in (out, picture, sheet):
        if path is not None:
            prepare_kept(path, _CUSTODY)
    folder = RunFolder(run)
    files = _files(folder, rounds)
    found: dict[int, list[Surrogate]] = {}
    for number, (round, paths) in enumerate(files.items()):
        report(number, len(files), f"round {round}")
        found[round] = [_read(path, client, round) for client, path in paths.items()]
    report(len(files), len(files), "")
    descents = {round: _descent(folder.root / descent_file(round), round) for round in found}
    methods = sorted({str(one.method) for sets in found.values() for one in sets})
    summary: dict[str, Any] = {
        "custody": _CUSTODY,
        "method": ", ".join(methods),
        "bytes": sum(one.size for sets in found.values() for one in sets),
        "rounds": {str(round): _described(sets, descents[round]) for round, sets in found.items()},
    }
    if picture is not None:
        drawn = [_drawn(round, sets, descents[round]) for round, sets in found.items()]
        atomic.write(picture, [surrogates_picture(drawn)], force=force, custody=_CUSTODY)
    if sheet is not None:
        shown = [
            SheetRound(round, {one.client: (one.images, one.labels) for one in sets}) for round, sets in found.items()
        ]
        atomic.write(sheet, [surrogate_sheet(shown)], force=force, custody=_CUSTODY)
    atomic.write_json(out, summary, force=force)
    return {"out": str(out), **summary}


def _files(folder: RunFolder, rounds: Sequence[int]) -> dict[int, dict[str, Path]]:
    """The files of each round asked for, by client, in the order of rounds and clients."""
    folder.require_clients()
    found: dict[int, dict[str, Path]] = {}
    for name in folder.client_names():
        for path in folder.client(name).outbox.glob("surrogate-*.safetensors"):
            match = _NUMBERED.fullmatch(path.name)
            if match and path == folder.root / surrogate_file(name, int(match[1])):
                found.setdefault(int(match[1]), {})[name] = path
    if not found:
        raise InputError(
            f"{folder.clients} holds no outbox/surrogate-….safetensors: no client of this run sends synthetic sets, "
            "as those of FedLAP and FedDM do."
        )
    for round in rounds:
        if round not in found:
            raise InputError(f"--round {round}: {folder.root} has the sets of rounds {min(found)} to {max(found)}.")
    return {round: found[round] for round in sorted(set(rounds) or found)}


def _read(path: Path, client: str, round: int) -> Surrogate:
    artifact = tensors_file.read(path, kind="surrogate")
    about = artifact.metadata
    if (about.round, about.client) != (round, client):
        raise InputError(
            f"{path} is a set of client {about.client!r}, round {about.round}, not of {client!r}, round {round}. "
            "Put it in its place."
        )
    images = artifact.tensors["images"].astype(np.float32)
    if not images.size:
        raise InputError(f"{path} holds no pixels.")
    radius = artifact.tensors.get("radius")
    return Surrogate(
        client, about.method, images, artifact.tensors["labels"], None if radius is None else float(radius),
        path.stat().st_size,
    )  # fmt: skip


def _descent(path: Path, round: int) -> RunDescent:
    if not path.exists():
        return RunDescent()
    try:
        stated = read_json(path)
        if stated["round"] != round:
            raise ValueError(f"it is of round {stated['round']}")
        radius = stated.get("radius")
        return RunDescent(
            None if radius is None else float(radius), int(stated["steps"]), float(stated["distance"]),
            len(stated["left_out"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError) as error:
        raise InputError(f"{path} is no account that aggregate wrote ({error}). Move it away.") from error


def _described(sets: Sequence[Surrogate], descent: RunDescent) -> dict[str, Any]:
    radii = [one.radius for one in sets if one.radius is not None]
    strategies = {"min": 0.0, "median": 0.5, "max": 1.0}  # which the server may follow (Sec. 5.4)
    return {
        "clients": len(sets),
        "images": sum(len(one.images) for one in sets),
        "bytes": sum(one.size for one in sets),
        **{f"radius_{name}": _quantile(radii, share) for name, share in strategies.items()},
        "server_radius": _rounded(descent.radius),
        "server_steps": descent.steps,
        "server_distance": _rounded(descent.distance),
        "left_out": descent.left_out,
        "pixels": pixel_distribution(_all_pixels(sets)),
        "by_client": {one.client: _client(one) for one in sets},
    }


def _client(one: Surrogate) -> dict[str, Any]:
    labels, counts = np.unique(one.labels, return_counts=True)
    by_class: Mapping[str, int] = {str(label): int(count) for label, count in zip(labels, counts, strict=True)}
    return {
        "radius": _rounded(one.radius),
        "images": by_class,
        "bytes": one.size,
        "pixels": pixel_distribution(one.images),
    }


def _all_pixels(sets: Sequence[Surrogate]) -> NDArray[np.float32]:
    return np.concatenate([one.images.ravel() for one in sets])


def _drawn(round: int, sets: Sequence[Surrogate], descent: RunDescent) -> SurrogateRound:
    return SurrogateRound(
        round=round,
        radii={one.client: one.radius for one in sets if one.radius is not None},
        radius=descent.radius,
        steps=descent.steps,
        distance=descent.distance,
        pixels={one.client: one.images.ravel() for one in sets},
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(float(value), _DIGITS)


def _quantile(values: Sequence[float], share: float) -> float | None:
    return _rounded(float(np.quantile(values, share))) if values else None
