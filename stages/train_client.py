"""`train-client`: one round of local training. Model and private data in, private update out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from artifacts.errors import InputError, UsageError
from artifacts.formats import any_file, tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from artifacts.places import client_of
from artifacts.publish import prepare
from stages.charging.client_training import PrivateRound, check_network
from stages.charging.private_training import check_unit, inherited_events, of_others, refuse_repetition, with_noise
from stages.charging.spending import key_of
from stages.data.dataset_images import describe_dataset, joined, joined_for, load_described, refuse_empty
from stages.data.schema import require_fixed
from stages.execution.progress import Report, Summary, silent
from stages.execution.randomness import stream_seed
from stages.execution.versions import versions
from stages.methods.params.local_training import BatchTraining, LocalTraining
from stages.models.file import check_images_fit, network_of, read_fitting, read_model, round_of, to_module

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from stages.execution.torch_setup import Device
    from stages.methods.local_training import LocalResult
    from stages.methods.stacked_training import ClientTask


def train_client(
    model: Path,
    data: Sequence[Path],
    out: Path,
    *,
    params: LocalTraining,
    seed: int,
    client: str | None = None,
    state: Path | None = None,
    server_state: Path | None = None,
    state_out: Path | None = None,
    key: Path | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Train the model on the client's data and write the update, start minus end, which stays private.

    Algorithms that keep something read it from `state` (and the server's part from `server_state`), absent in the
    first round, and write it to `state_out`. Under differential privacy `key` is the client's, by default that of the
    folder written to, and the round is charged to the ledger beside it.
    """
    round = _round(
        model, data, out, params=params, seed=seed, client=client, state=state, server_state=server_state,
        state_out=state_out, key=key, device=device, force=force,
    )  # fmt: skip
    training = next(round)
    if params.together is None:
        return _ended(round, training.alone(_teller(report)))
    return _ended(round, _stacked([training], _teller(report))[0])


def train_together(calls: Sequence[Mapping[str, Any]]) -> list[Summary]:
    """Several calls of `train_client` with one model and the same parameters, of which `together` is one; at most so
    many are trained at once. The files are those of single calls."""
    rounds = [_round(**call) for call in calls]
    trainings = [next(round) for round in rounds]
    done: dict[int, Summary] = {}
    places = calls[0]["params"].together
    for size in {training.filled for training in trainings}:
        alike = [number for number, training in enumerate(trainings) if training.filled == size]
        for first in range(0, len(alike), places):
            some = alike[first : first + places]
            for number, result in zip(some, _stacked([trainings[i] for i in some]), strict=True):
                done[number] = _ended(rounds[number], result)
    return [done[number] for number in range(len(calls))]


@dataclass(frozen=True)
class _Training:
    """A round that is ready to be trained: `alone` does it; `task` is for a training with those of others."""

    module: nn.Module
    params: LocalTraining
    round: int
    alone: Callable[[Callable[[int, int, Tensor | None], None]], LocalResult]
    task: ClientTask | None = None
    filled: int = 0


def _stacked(
    trainings: Sequence[_Training], report: Callable[[int, int, Tensor | None], None] = lambda *_: None
) -> list[LocalResult]:
    from stages.methods.stacked_training import train_stacked

    first = trainings[0]
    assert first.params.together is not None
    try:
        return train_stacked(
            first.module, [training.task for training in trainings if training.task is not None],
            places=first.params.together, rows=first.filled, params=first.params, round=first.round, report=report,
        )  # fmt: skip
    except RuntimeError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"--together: torch cannot stack this network ({reason}). Leave it out.") from error


def _ended(round: Generator[_Training, LocalResult, Summary], result: LocalResult) -> Summary:
    """What a round makes of the result of its training."""
    try:
        round.send(result)
    except StopIteration as end:
        summary: Summary = end.value
        return summary
    raise AssertionError("a round has one training")


def _round(
    model: Path,
    data: Sequence[Path],
    out: Path,
    *,
    params: LocalTraining,
    seed: int,
    client: str | None = None,
    state: Path | None = None,
    server_state: Path | None = None,
    state_out: Path | None = None,
    key: Path | None = None,
    device: Device = "auto",
    force: bool = False,
) -> Generator[_Training, LocalResult, Summary]:
    """The round up to its training, which is handed out; sent the result, it writes the files."""
    prepare(out, "private")
    _check_states(params, state, server_state, state_out)
    if state_out is not None:
        prepare(state_out, "private")
    name = client_of(out, client)
    start = read_model(model)
    round = round_of(start) + 1
    # Nothing is decoded before it is settled that it may be, and under DP charged.
    described = [describe_dataset(path) for path in data]
    network, shape = network_of(start.metadata, model)
    # Also without noise here: noise may come later, in `encode` or at the server, and a refusal because of a class
    # that one image adds would show before it.
    require_fixed(data, [dataset.metadata for dataset in described])
    for path, dataset in zip(data, described, strict=True):
        check_images_fit(path, dataset.metadata, shape)
    mine, theirs = (_read_state(path, start) for path in (state, server_state))
    if isinstance(params, BatchTraining):
        params = with_noise(params, params.local_steps or 0)

    import torch

    from stages.data.device_images import DeviceImages
    from stages.execution.torch_setup import arithmetic, set_up
    from stages.methods.local_training import batch_gradients, batches, refuse_pieces, train_locally
    from stages.nets.state import trained

    where = set_up(device)
    about = Metadata(
        kind="update",
        stage="train-client",
        method=params.algorithm,
        custody="private",
        client=name,
        round=round,
        params=params.to_json(),
        inputs=(
            lineage.by_digest(start, "model"),
            *(lineage.by_digest(dataset, "data") for dataset in described),
            *(lineage.by_digest(kept, role) for kept, role in ((mine, "state"), (theirs, "server-state")) if kept),
        ),
        seed=seed,
        versions=versions("torch", *(["numpy", "scipy"] if params.is_private else [])),  # they make the noise
        arithmetic=arithmetic(where),
    )
    any_file.refuse_other(out, about, force=force)
    if state_out is not None:
        any_file.refuse_other(state_out, replace(about, kind="state"), force=force)
    module = to_module(start, where)
    if unfit := params.unfit(trained(module)):
        raise UsageError(f"--algorithm {params.algorithm}: {unfit}.")
    if params.micro_batch is not None:
        try:
            refuse_pieces(module.train())
        except ValueError as error:
            raise UsageError(f"--micro-batch: {error}.") from error
    if params.together is not None:
        from stages.methods.stacked_training import refuse_stack

        try:
            refuse_stack(module)
        except ValueError as error:
            raise UsageError(f"--together: {error}.") from error
    private = None
    ways: dict[str, list[str]] = {}
    if isinstance(params, BatchTraining) and params.is_private:
        ways = check_network(module, params, network, shape)
        refuse_repetition(data, [dataset.sha256 for dataset in described])
        check_unit(params, data, [dataset.metadata for dataset in described])
        # The model and the server's variates come from outside, and have left before; unless they do not.
        own = [source for source in (start, theirs) if source is not None and source.metadata.custody == "private"]
        files = [*own, *([mine] if mine is not None else [])]
        earlier = inherited_events(
            [*data, *(source.path for source in files)],
            [*(dataset.metadata for dataset in described), *(source.metadata for source in files)],
        )
        private = PrivateRound.begin(params, about, key_of(out, key), earlier, data)
    is_silent = private is not None or params.covered_as is not None
    datasets = load_described(data, described, blank=is_silent)
    images, labels, units = (*joined(datasets), None) if private is None else joined_for(datasets, private.params.unit)
    sizes = [len(dataset.content) for dataset in datasets]
    if not is_silent:
        refuse_empty(data[0], labels, "train on")
    if nobody := private is None and not len(labels):
        # A black image in place of none; of the training with it nothing leaves.
        images, labels, sizes = np.zeros((1, *images.shape[1:]), np.uint8), np.zeros(1, np.int64), [1]
    pixels, classes = DeviceImages(images, where), torch.from_numpy(labels).to(where)

    def generator(of: str, home: torch.device) -> torch.Generator:
        seed_of = stream_seed(seed, stage="train-client", client=name, round=round, of=of)
        return torch.Generator(home).manual_seed(seed_of)

    task, filled = None, 0
    if private is not None:
        total, steps = private.steps, private.gradients(module, pixels, classes, units)
    else:
        total = params.num_steps(sizes)
        size = params.num_in_batch(len(labels))
        rows = batches(size, len(labels), total, generator("batches", torch.device("cpu")), where)
        if params.together is not None:
            from stages.methods.stacked_training import ClientTask, filled_size

            task, filled = ClientTask(pixels, classes, rows, total), filled_size(len(labels), size)
        steps = batch_gradients(
            module, pixels, classes, rows, generator("dropout", where),
            micro_batch=params.micro_batch, precision=params.precision,
        )  # fmt: skip

    def alone(report: Callable[[int, int, Tensor | None], None]) -> LocalResult:
        return train_locally(
            module,
            steps,
            total=total,
            params=params,
            algorithm=params.client(trained(module), _on(where, mine), _on(where, theirs)),
            round=round,
            report=report,
        )

    result = yield _Training(module, params, round, alone, task, filled)
    if private is None:
        if nobody or not _is_finite(result.update, result.state):
            result = _unmoved(result, mine)
        events, disclosed = of_others([dataset.metadata for dataset in described])
        counts = {"num_examples": 0 if nobody else len(labels), "local_steps": result.num_steps}
        about = replace(about, counts=counts, privacy=events, disclosures=disclosed)
    else:
        # Noise covers the gradients of parameters; of a buffer nothing leaves, whatever a network did with it.
        covered = trained(module)
        update = {n: tensor if n in covered else torch.zeros_like(tensor) for n, tensor in result.update.items()}
        result = replace(result, update=update)
        events = private.released(result.update, result.state)
        about = replace(about, privacy=events, simulation=private.spending.key.simulation)
    try:
        # The state comes first: an update is never there without the state that goes with it.
        if state_out is not None:
            _write(state_out, result.state, replace(about, kind="state"), force=force)
        digest = _write(out, result.update, about, force=force)
    except ValueError as error:
        raise InputError(f"training diverged: {error}. Lower --learning-rate.") from error
    stated = {"example_gradients": ways} if ways else {}
    return {"out": str(out), "sha256": digest, "client": name, "round": round, "custody": "private", **stated}


def _is_finite(*groups: Mapping[str, Tensor]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensors in groups for tensor in tensors.values())


def _unmoved(result: LocalResult, before: TensorArtifact | None) -> LocalResult:
    """In place of an update that is not finite: zeros, of which no step counts.

    Weights can be made so that one image has this effect. Where noise comes later, a refusal here would show that image
    to everyone who sees which clients answered (privacy contract, rule 11). `encode` refuses a message without a clip.
    """
    import torch

    kept = before.tensors if before is not None else {}
    state = {
        name: torch.from_numpy(kept[name].copy()) if name in kept else torch.zeros_like(tensor)
        for name, tensor in result.state.items()
    }
    zeros = {name: torch.zeros_like(tensor) for name, tensor in result.update.items()}
    return replace(result, update=zeros, state=state, num_steps=0)


def _write(path: Path, tensors: Mapping[str, Tensor], metadata: Metadata, *, force: bool) -> str:
    arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
    return tensors_file.write(path, arrays, metadata, force=force)


def _check_states(params: LocalTraining, state: Path | None, server_state: Path | None, out: Path | None) -> None:
    """State files are for the algorithms that have them, and then the new state must have a place."""
    if (out is not None) != params.keeps_state:
        word = "needs" if params.keeps_state else "keeps no state: leave out"
        raise UsageError(f"--algorithm {params.algorithm} {word} --state-out.")
    uses = ((state, params.keeps_state, "--state"), (server_state, params.sends_state, "--server-state"))
    for path, fits, flag in uses:
        if path is not None and not fits:
            raise UsageError(f"--algorithm {params.algorithm} has no use for {flag}.")


def _read_state(path: Path | None, model: TensorArtifact) -> TensorArtifact | None:
    return None if path is None else read_fitting(path, model.tensors, kind="state", partial=True)


def _teller(report: Report) -> Callable[[int, int, Tensor | None], None]:
    """Where nobody watches, the loss need not be fetched from the device at every step; under DP there is none."""

    def tell(done: int, total: int, loss: Tensor | None) -> None:
        if report is not silent:
            report(done, total, "" if loss is None else f"loss {loss.item():.3f}")

    return tell


def _on(device: torch.device, kept: TensorArtifact | None) -> dict[str, Tensor]:
    import torch

    tensors = kept.tensors if kept is not None else {}
    return {name: torch.from_numpy(array.copy()).to(device) for name, array in tensors.items()}
