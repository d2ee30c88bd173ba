"""`encode --method fedlap|feddm`: a client's private data becomes a small synthetic set, the file that leaves.

Whatever is drawn here (first images, batches, weights to match at) comes from streams under the client's key: the key
and the inputs alone give the same bytes again, and nobody else can begin from the same noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.digests import canonical_json
from artifacts.errors import InputError, UsageError
from artifacts.formats import any_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.kinds import KINDS
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from artifacts.places import client_of
from artifacts.publish import prepare, prepare_private
from artifacts.writing import atomic
from stages.charging.private_training import check_unit, inherited_events, with_noise
from stages.charging.spending import key_of, record_event, refuse_uncovered
from stages.data.dataset_images import DescribedDataset, LabelledRows, describe_dataset, load_described, refuse_empty
from stages.data.schema import require_fixed
from stages.execution.progress import Report, Summary, silent
from stages.execution.versions import versions
from stages.methods.params.feddm import FedDmEncoding
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.params.surrogates import SurrogateSet
from stages.models.file import check_images_fit, network_of, read_model, round_of, to_module
from stages.nets.params import InputShape, Network
from stages.surrogates.own_network import own_network
from stages.surrogates.private import PrivateSurrogate
from stages.surrogates.start import balanced_labels, first_images, public_classes, read_previous
from stages.updates.sent import send

if TYPE_CHECKING:
    import torch
    from torch import nn

    from stages.execution.torch_setup import Device
    from stages.methods.surrogate_nets import Matched, Weights
    from stages.nets.net import Net


def encode_surrogate(
    model: Path,
    data: Path,
    out: Path,
    *,
    params: SurrogateSet,
    previous: Path | None = None,
    metrics: Path | None = None,
    key: Path | None = None,
    client: str | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Write the set into an outbox, entered in the ledger first; under DP its cost is reserved before data is read.

    `previous` is the client's set of the round before, to go on from. `metrics` gets what was measured on private data
    on the way: the curve behind the radius, the matching loss; it stays private.
    """
    prepare(out, "outbound")
    if metrics is not None:
        prepare_private(metrics)
    name = client_of(out, client)
    start = read_model(model)
    if start.metadata.custody == "private":
        raise InputError(f"{model} is private: a surrogate that names it would tell its digest. Encode for another.")
    round = round_of(start) + 1
    network, shape = network_of(start.metadata, model)
    own = params.network if isinstance(params, FedLapEncoding) else None
    network = network if own is None else own_network(own)
    described = describe_dataset(data)
    if params.is_private:
        require_fixed([data], [described.metadata])
        check_unit(params, [data], [described.metadata])
    check_images_fit(data, described.metadata, shape)
    before = read_previous(previous, params, name, round, shape)
    chosen = public_classes(params, described)
    params = with_noise(params, params.accesses)
    key = key_of(out, key)
    secret = keys.read(key)
    _check_simulated(params, secret)

    from stages.execution.torch_setup import arithmetic, set_up

    where = set_up(device)
    metadata = replace(_about(params, name, round, start, described, before, secret), arithmetic=arithmetic(where))
    any_file.refuse_other(out, metadata, force=force)
    planned = [record_event(params, params.accesses).to_json()] if params.is_private else []
    refuse_uncovered(key, planned, metadata.disclosures, [data])
    private = None
    module: Any = to_module(start, where) if own is None else _fresh(network, shape, where)
    ways = _check_network(params, module, network, shape)
    if params.is_private:
        sources = [data, *([before.path] if before is not None else [])]
        earlier = inherited_events(sources, [described.metadata, *([before.metadata] if before is not None else [])])
        inputs = (*metadata.inputs[:1], lineage.by_digest(described, "data"), *metadata.inputs[2:])
        private = PrivateSurrogate.begin(params, module, shape, replace(metadata, inputs=inputs), key, earlier, [data])
    (dataset,) = load_described([data], [described], blank=private is not None)
    content = dataset.content
    if private is None:
        refuse_empty(data, content, "stand in for")
    seed_of = _seeds(secret, metadata, start)
    labels = balanced_labels(params, chosen, content, data)
    images = first_images(params, labels, shape, content, before, seed_of, data)
    try:
        matched, measured, tensors = _match(
            params, module, private, (images, labels), content, round, seed_of, network, shape, report
        )
    except ValueError as error:
        raise InputError(f"matching diverged: {error}. Lower --image-rate.") from error
    tensors |= {
        "images": matched.surrogate.images.cpu().numpy(),
        "labels": matched.surrogate.labels.cpu().numpy(),
    }
    if private is not None:
        metadata = replace(metadata, privacy=private.released(tensors))
    elif params.tell_examples:
        metadata = replace(metadata, counts={"num_examples": len(content)})
    if metrics is not None:
        measured = {"custody": "private", "client": name, "round": round, "method": params.method, **measured}
        atomic.write_json(metrics, measured, force=force)
    said = {"example_gradients": ways} if ways else {}
    return send(out, tensors, metadata, force=force, images=len(matched.surrogate), **said)


def _fresh(network: Network, shape: InputShape, where: torch.device) -> nn.Module:
    """A network of the client's own; the weights that count are drawn for each walk."""
    from stages.nets.build import new_network

    try:
        return new_network(network, shape, 0).to(where)
    except ValueError as error:
        raise UsageError(f"--network {network.arch}: {error}.") from error


def _about(
    params: SurrogateSet,
    client: str,
    round: int,
    start: TensorArtifact,
    data: DescribedDataset,
    before: TensorArtifact | None,
    secret: Key,
) -> Metadata:
    # The model and the set before, too: the same data may be encoded twice in a round, and nobody is to see that.
    sources = ((start, "model"), (before, "previous"))
    named = [lineage.by_digest(source, role) for source, role in sources if source is not None]
    context = {
        "stage": "encode",
        "client": client,
        "round": round,
        "params": params.to_json(),
        "inputs": [reference.to_json() for reference in named],
    }
    stated = {"class_set"} if params.classes == "own" else set()
    if not params.is_private:
        # Whatever labels were asked for, images of a class that was never seen look like none: that tells the set.
        stated |= {"derived_images", "class_set"}
        stated |= {"real_image_init"} if params.init == "real" else set()
        stated |= {"num_examples"} if params.tell_examples else set()
        stated |= set(before.metadata.disclosures) - KINDS["surrogate"].disclosed_beside if before else set()
        if isinstance(params, FedLapEncoding):
            stated |= {"radius"} if params.begin == "model" else set()
            stated |= {"layer_norms"} if params.calibrate else set()
    return Metadata(
        kind="surrogate",
        stage="encode",
        method=params.method,
        custody="outbound",
        client=client,
        round=round,
        params=params.to_json(),
        inputs=(named[0], lineage.for_outbound(data, "data", key=secret, context=context), *named[1:]),
        disclosures=tuple(sorted(stated)),
        simulation=secret.simulation,
        versions=versions("torch", *(["numpy", "scipy"] if params.is_private else [])),
    )


def _check_network(
    params: SurrogateSet, module: nn.Module, network: Network, shape: InputShape
) -> dict[str, list[str]]:
    """Refuse a network that the method cannot use, before anything is charged or decoded.

    Under DP it says how the gradients of single images are made.
    """
    from stages.methods import trials

    try:
        if network.initial_weights == "module":
            if isinstance(params, FedDmEncoding):
                net = trials.try_matching_features(module, shape)
                if params.is_private:
                    trials.try_features_alone(net, shape)
            else:
                trials.try_matching_gradients(module, shape)
        if isinstance(params, FedDmEncoding) or not params.is_private:
            return {}
        return trials.try_example_gradients(module, shape, training=False)
    except ValueError as error:
        raise UsageError(f"--method {params.method} does not work with --arch {network.arch}: {error}.") from error


def _check_simulated(params: SurrogateSet, secret: Key) -> None:
    """REAL, the baseline of FedDM's Sec. 3.4, sends private images as they are: for comparisons on one machine only."""
    if isinstance(params, FedDmEncoding) and not params.iterations and not secret.simulation:
        raise UsageError(
            "--iterations 0 --init real would send private images as they are. It is a baseline for simulations, and "
            "this client's key is a real one."
        )


def _seeds(secret: Key, metadata: Metadata, model: TensorArtifact) -> Callable[[str], int]:
    name = canonical_json(
        {
            "client": metadata.client,
            "round": metadata.round,
            "params": dict(metadata.params),
            "model": model.sha256,
        }
    )
    return lambda of: int.from_bytes(secret.derive(f"encode {of} {name}")[:8], "little") >> 1


def _beginnings(
    network: Network, shape: InputShape, seed_of: Callable[[str], int], where: torch.device
) -> Callable[[], Weights]:
    """Each time the first weights of another network of this kind, as `init-model` would draw them."""
    from stages.methods.surrogate_nets import start_weights
    from stages.nets.build import new_network

    numbers = itertools.count(1)
    return lambda: start_weights(new_network(network, shape, seed_of(f"beginning {next(numbers)}")).to(where))


def _match(
    params: SurrogateSet,
    module: Net,
    private: PrivateSurrogate | None,
    first: tuple[NDArray[np.float32], NDArray[np.int64]],
    content: LabelledRows,
    round: int,
    seed_of: Callable[[str], int],
    network: Network,
    shape: InputShape,
    report: Report,
) -> tuple[Matched, dict[str, Any], dict[str, NDArray[Any]]]:
    """The set, what was measured on the way, and what else leaves with it."""
    import torch

    from stages.data.device_images import DeviceImages
    from stages.methods import feddm, fedlap, fedlap_radius
    from stages.methods.surrogate_nets import Examples, LabelledSet, last_layers

    where = next(module.parameters()).device

    def generator(of: str) -> torch.Generator:
        return torch.Generator().manual_seed(seed_of(of))

    def tell(done: int, total: int) -> None:
        report(done, total, "")

    start = LabelledSet(*(torch.from_numpy(part).to(where) for part in first))
    data = Examples(DeviceImages(content.images, where), torch.from_numpy(content.labels).to(where))
    units = None if params.unit != "person" or content.units is None else torch.from_numpy(content.units)
    if isinstance(params, FedDmEncoding):
        means = (
            feddm.BatchMeans(module, data, params.batch_size, generator("batches"), micro_batch=params.micro_batch)
            if private is None
            else private.means(module, data, units, shape.num_classes)
        )
        matched = feddm.match(
            module, start, means, params=params, generator=generator("weights"), report=tell,
            longest=means.longest if isinstance(means, feddm.NoisyMeans) else None,
        )  # fmt: skip
        if isinstance(means, feddm.NoisyMeans):
            matched = matched.keeping(means.present())
        return matched, {"matching_loss": matched.losses}, {}
    assert isinstance(params, FedLapEncoding)
    rate = params.rate(round)
    real = (
        fedlap.BatchGradient(
            module, data, params.batch_size, generator("batches"), names=last_layers(module, params.last_layers),
            micro_batch=params.micro_batch,
        )
        if private is None
        else private.gradient(module, data, units)
    )  # fmt: skip
    matched = fedlap.approximate(
        module, start, real, params=params, rate=rate, generator=generator("augmentation"), report=tell,
        beginning=_beginnings(network, shape, seed_of, where) if params.begin == "fresh" else None,
    )  # fmt: skip
    if private is not None or params.begin == "fresh":
        # Under DP r_k = r, a constant: measured, it would be a release (Sec. 4.2).
        return matched, {"matching_loss": matched.losses}, {}
    rows = torch.randperm(len(data), generator=generator("radius"))[: params.radius_examples].to(where)
    radius, curve = fedlap_radius.calibrated_radius(
        module, matched.surrogate, data.take(rows), params=params, rate=rate, generator=generator("radius augmentation")
    )
    also = {"radius": np.array(radius, np.float32)}
    if params.calibrate:
        also["norms"] = fedlap_radius.layer_norms(module, data, micro_batch=params.micro_batch).cpu().numpy()
    measured = {"radius": radius, "curve": [asdict(point) for point in curve], "matching_loss": matched.losses}
    return matched, measured, also
