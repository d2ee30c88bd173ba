"""`evaluate RUN --heterogeneity`: how different the clients of a simulated run are, and what shuffling does to it.

ζ², σ² and δ² of Fedssyn at one and the same server model, and ζ̂²_p, σ̂²_p after a share p of every client's data was
replaced by the shuffled data D̃, beside the bounds of Lemma 1. D̃ is the synthetic data that the server dealt out; in
a run without any it is the real data of all clients, as in the paper's real-data shuffling. It sees every client's
private data at once, which only a simulation can: what it writes is private.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError, UsageError
from artifacts.places import RunFolder
from artifacts.publish import prepare_private
from artifacts.writing import atomic
from stages.data.dataset_images import Dataset, open_dataset
from stages.execution.progress import Report, Summary, silent
from stages.models.file import check_images_fit, network_of, read_model, to_module
from stages.pictures.heterogeneity import MeasuredRound, heterogeneity_picture
from stages.run_folder.files import data_file, model_file

if TYPE_CHECKING:
    import torch

    from stages.execution.torch_setup import Device
    from stages.methods.heterogeneity import GradientMoments, Heterogeneity

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_DIGITS = 12


@dataclass(frozen=True)
class _Data:
    """The clients' real data, and the parts that the server dealt out (none where it dealt out nothing)."""

    real: Sequence[tuple[Path, Dataset]]
    parts: Sequence[tuple[Path, Dataset]]

    @property
    def dealt(self) -> bool:
        """One part for each client, in the clients' order, as `shuffle` and the recipes do it."""
        return len(self.parts) == len(self.real)


def evaluate_heterogeneity(
    run: Path,
    out: Path,
    *,
    rounds: Sequence[int] = (),
    shares: Sequence[float] = SHARES,
    picture: Path | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Measure at the server model of each of `rounds` (the last one if none is named)."""
    for path in (out, picture):
        if path is not None:
            prepare_private(path)
    for share in shares:
        if not 0 <= share <= 1:
            raise UsageError(f"--share is between 0 and 1, found {share:g}.")
    folder = RunFolder(run)
    models = server_models(folder, rounds)
    data = _data(folder)

    from stages.execution.torch_setup import set_up

    where = set_up(device)
    points = sorted(set(shares))
    measured: dict[str, Any] = {}
    for number, (round, path) in enumerate(sorted(models.items())):
        report(number, len(models), f"round {round}")
        measured[str(round)] = _measure(path, data, points, where)
    report(len(models), len(models), "")
    summary: dict[str, Any] = {
        "custody": "private",
        "clients": len(data.real),
        "num_examples": sum(len(dataset.content) for _, dataset in data.real),
        "shuffled": "synthetic" if data.parts else "real",
        "num_shuffled": sum(len(dataset.content) for _, dataset in data.parts or data.real),
        "rounds": measured,
    }
    if picture is not None:
        drawn = [MeasuredRound(int(round), values, _bound_lines(values)) for round, values in measured.items()]
        atomic.write(picture, [heterogeneity_picture(drawn, summary["shuffled"])], force=force, custody="private")
    atomic.write_json(out, summary, force=force)
    return {"out": str(out), **summary}


def server_models(folder: RunFolder, rounds: Sequence[int]) -> dict[int, Path]:
    """The server models of the rounds asked for."""
    folder.require_clients()
    found: dict[int, Path] = {}
    while (path := folder.root / model_file(len(found))).exists():
        found[len(found)] = path
    if not found:
        raise InputError(f"{folder.root} holds no {model_file(0)}: there is no model to measure at.")
    last = max(found)
    for round in rounds:
        if round not in found:
            raise InputError(f"--round {round}: {folder.root} has the models of rounds 0 to {last}.")
    return {round: found[round] for round in rounds or [last]}


def clients_data(folder: RunFolder) -> list[Path]:
    """A party without data of its own, like the central one that trains on pooled synthetic data, is no client here."""
    found = [path for name in folder.client_names() if (path := folder.root / data_file(name)).exists()]
    if not found:
        raise InputError(f"{folder.clients} holds no private/data.parquet: there is nothing to measure.")
    return found


def _data(folder: RunFolder) -> _Data:
    names = clients_data(folder)
    parts = sorted(folder.server.outbox.glob("synthetic-*.parquet")) if folder.server.outbox.is_dir() else []
    real, shuffled = ([(path, open_dataset(path)) for path in paths] for paths in (names, parts))
    for path, dataset in (*real, *shuffled):
        if not len(dataset.content):
            raise InputError(f"{path} holds no images: it has no gradient to measure.")
    return _Data(real, shuffled)


def _measure(model: Path, data: _Data, shares: Sequence[float], where: torch.device) -> dict[str, Any]:
    """All values at one server model."""
    import torch

    from stages.data.device_images import DeviceImages
    from stages.methods.heterogeneity import gradient_moments, heterogeneity, lemma_bounds, mixed, pooled, shift

    server = read_model(model)
    _, shape = network_of(server.metadata, model)
    for path, dataset in (*data.real, *data.parts):
        check_images_fit(path, dataset.metadata, shape)
    module = to_module(server, where)

    def moments(dataset: Dataset) -> GradientMoments:
        content = dataset.content
        images = DeviceImages(content.images, where)
        return gradient_moments(module, images, torch.from_numpy(content.labels).to(where))

    own = [moments(dataset) for _, dataset in data.real]
    parts = [moments(dataset) for _, dataset in data.parts]
    # Real data shuffled is D itself, in which every client weighs as much (Assumption 1): δ² is 0 then.
    weights = [len(dataset.content) for _, dataset in data.parts] if parts else [1] * len(own)
    shared = pooled(parts or own, weights)
    before, distance = heterogeneity(own), shift(own, shared)

    def beside_bounds(after: Heterogeneity, share: float) -> dict[str, float]:
        # Assumption 2 bounds every client's σ²: with the largest in place of the mean Lemma 1 holds as printed.
        bounds, (_, loose) = (
            lemma_bounds(found, shared_noise=shared.variance, shift=distance, share=share)
            for found in (before, replace(before, noise=before.noise_max))
        )
        found = {
            "share": share,
            "dissimilarity": after.dissimilarity,
            "dissimilarity_bound": bounds[0],
            "noise": after.noise,
            "noise_bound": bounds[1],
            "noise_bound_largest": loose,
        }
        return {key: round(value, _DIGITS) for key, value in found.items()}

    values: dict[str, Any] = {
        "dissimilarity": round(before.dissimilarity, _DIGITS),
        "noise": round(before.noise, _DIGITS),
        "noise_largest": round(before.noise_max, _DIGITS),
        "shift": round(distance, _DIGITS),
        "shuffled_noise": round(shared.variance, _DIGITS),
        "shares": {
            f"{share:g}": beside_bounds(heterogeneity([mixed(client, shared, share) for client in own]), share)
            for share in shares
        },
    }
    if data.dealt:
        # What the clients trained on. Their parts are samples of D̃ and their shares differ, so that Lemma 1, at the
        # mean share, holds in expectation: a value may be a little above it.
        counts = [
            (len(mine.content), len(part.content)) for (_, mine), (_, part) in zip(data.real, data.parts, strict=True)
        ]
        exact = [part / (mine + part) for mine, part in counts]
        dealt = [mixed(*pair) for pair in zip(own, parts, exact, strict=True)]
        values["dealt"] = beside_bounds(heterogeneity(dealt), sum(exact) / len(exact))
    return values


def _bound_lines(values: dict[str, Any]) -> dict[str, list[float]]:
    """Lemma 1's bounds over all p, to draw."""
    from stages.methods.heterogeneity import Heterogeneity, lemma_bounds

    before = Heterogeneity(values["dissimilarity"], values["noise"], values["noise_largest"])
    shares = [step / 100 for step in range(101)]
    mean, largest = (
        [
            lemma_bounds(found, shared_noise=values["shuffled_noise"], shift=values["shift"], share=share)
            for share in shares
        ]
        for found in (before, replace(before, noise=before.noise_max))
    )
    return {
        "share": shares,
        "dissimilarity_bound": [bound[0] for bound in mean],
        "noise_bound": [bound[1] for bound in mean],
        "noise_bound_largest": [bound[1] for bound in largest],
    }
