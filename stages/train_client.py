"""`train-client`: one round of local training. Model and private data in, private update out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts import lineage, tensors_file
from artifacts.errors import InputError, UsageError
from artifacts.metadata import Metadata
from artifacts.places import client_of
from artifacts.publish import prepare
from artifacts.tensors_file import TensorArtifact
from stages.data.dataset_images import describe_dataset, joined, load_dataset, load_described
from stages.data.images import to_pixels
from stages.methods.params.local_training import KEEPS_STATE, SENDS_STATE, LocalTraining
from stages.model_file import check_fits, check_images_fit, network_of, read_model, round_of, to_module
from stages.private_client import PrivateRound, check_network
from stages.private_training import inherited_events, refuse_repetition, with_noise
from stages.progress import Report, Summary, silent
from stages.randomness import stream_seed
from stages.spending import key_of
from stages.versions import versions

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.methods.local_training import LocalAlgorithm
    from stages.torch_setup import Device


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
    prepare(out, "private", force=force)
    _check_states(params, state, server_state, state_out)
    if state_out is not None:
        prepare(state_out, "private", force=force)
    name = client_of(out, client)
    start = read_model(model)
    round = round_of(start) + 1
    # Under DP nothing is decoded before it is charged; else what a worker holds already need not be read again.
    described = [describe_dataset(path) if params.is_private else load_dataset(path) for path in data]
    _, shape = network_of(start.metadata, model)
    for path, dataset in zip(data, described, strict=True):
        check_images_fit(path, dataset.metadata, shape)
    mine, theirs = (_read_state(path, start) for path in (state, server_state))
    params = with_noise(params, params.local_steps or 0)

    import torch

    from stages.methods.local_training import batch_gradients, batches, num_steps, train_locally
    from stages.torch_setup import set_up

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
    )
    module = to_module(start, where)
    private = None
    if params.is_private:
        check_network(module, params)
        refuse_repetition(data, [dataset.sha256 for dataset in described])
        # The model and the server's variates come from outside, and have left before; unless they do not.
        own = [source for source in (start, theirs) if source is not None and source.metadata.custody == "private"]
        files = [*own, *([mine] if mine is not None else [])]
        earlier = inherited_events(
            [*data, *(source.path for source in files)],
            [*(dataset.metadata for dataset in described), *(source.metadata for source in files)],
        )
        private = PrivateRound.begin(params, about, where, key_of(out, key), earlier)
    datasets = load_described(data, described)
    images, labels = joined(datasets)
    pixels, classes = torch.from_numpy(to_pixels(images)).to(where), torch.from_numpy(labels).to(where)

    def generator(of: str, home: torch.device) -> torch.Generator:
        seed_of = stream_seed(seed, stage="train-client", client=name, round=round, of=of)
        return torch.Generator(home).manual_seed(seed_of)

    if private is not None:
        total, steps = private.steps, private.gradients(module, pixels, classes)
    else:
        if not len(labels):
            raise InputError(f"{data[0]} holds no images: there is nothing to train on.")
        total = num_steps(params, len(datasets[0].content) if params.epochs_of == "first" else len(labels))
        rows = batches(params, len(labels), total, generator("batches", torch.device("cpu")))
        steps = batch_gradients(module, pixels, classes, rows, generator("dropout", where))
    result = train_locally(
        module,
        steps,
        total=total,
        params=params,
        algorithm=_algorithm(params, module, mine, theirs),
        round=round,
        report=_teller(report),
    )
    if private is None:
        about = replace(about, counts={"num_examples": len(labels), "local_steps": result.num_steps})
    else:
        events = private.released(result.update, result.state)
        about = replace(about, privacy=events, simulation=private.spending.key.simulation)
    try:
        # The state comes first: an update is never there without the state that goes with it.
        if state_out is not None:
            _write(state_out, result.state, replace(about, kind="state"), force=force)
        digest = _write(out, result.update, about, force=force)
    except ValueError as error:
        raise InputError(f"training diverged: {error}. Lower --learning-rate.") from error
    return {"out": str(out), "sha256": digest, "client": name, "round": round, "custody": "private"}


def _write(path: Path, tensors: Mapping[str, Tensor], metadata: Metadata, *, force: bool) -> str:
    arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
    return tensors_file.write(path, arrays, metadata, force=force)


def _check_states(params: LocalTraining, state: Path | None, server_state: Path | None, out: Path | None) -> None:
    """State files are for the algorithms that have them, and then the new state must have a place."""
    keeps, sends = params.algorithm in KEEPS_STATE, params.algorithm in SENDS_STATE
    if (out is not None) != keeps:
        word = "needs" if keeps else "keeps no state: leave out"
        raise UsageError(f"--algorithm {params.algorithm} {word} --state-out.")
    for path, fits, flag in ((state, keeps, "--state"), (server_state, sends, "--server-state")):
        if path is not None and not fits:
            raise UsageError(f"--algorithm {params.algorithm} has no use for {flag}.")


def _read_state(path: Path | None, model: TensorArtifact) -> TensorArtifact | None:
    if path is None:
        return None
    kept = tensors_file.read(path, kind="state")
    check_fits(kept.tensors, model.tensors, path, partial=True)
    return kept


def _teller(report: Report) -> Callable[[int, int, Tensor | None], None]:
    """Where nobody watches, the loss need not be fetched from the device at every step; under DP there is none."""

    def tell(done: int, total: int, loss: Tensor | None) -> None:
        if report is not silent:
            report(done, total, "" if loss is None else f"loss {loss.item():.3f}")

    return tell


def _algorithm(
    params: LocalTraining, module: nn.Module, mine: TensorArtifact | None, theirs: TensorArtifact | None
) -> LocalAlgorithm:
    import torch

    from stages.methods.fedavg import FedAvg
    from stages.methods.feddyn import FedDyn
    from stages.methods.fedprox import FedProx
    from stages.methods.fedpvr import FedPvr
    from stages.methods.scaffold import Scaffold

    named = dict(module.named_parameters())
    where = next(iter(named.values())).device
    kept, sent = (
        {name: torch.from_numpy(array.copy()).to(where) for name, array in (source.tensors if source else {}).items()}
        for source in (mine, theirs)
    )
    match params.algorithm:
        case "fedprox":
            return FedProx(named, params.proximal_weight)
        case "scaffold":
            return Scaffold(named, kept, sent)
        case "fedpvr":
            return FedPvr(named, kept, sent)
        case "feddyn":
            return FedDyn(named, kept, params.dynamic_weight)
        case "fedavg" | "fedsgd" | "fednova":
            return FedAvg()
