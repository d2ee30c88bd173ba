"""`init-model`: a network with its first weights, public, for everyone to start from."""

from __future__ import annotations

from pathlib import Path

from artifacts.errors import InputError, UsageError
from artifacts.formats import dataset_file, tensors_file
from artifacts.metadata import InputRef, Metadata
from artifacts.publish import prepare
from stages.data.schema import require_fixed
from stages.execution.progress import Summary
from stages.execution.randomness import stream_seed
from stages.execution.versions import versions
from stages.models.file import model_params
from stages.models.pretrained import fill_from
from stages.nets.params import InputShape, Network


def init_model(
    like: Path, out: Path, *, params: Network, seed: int, weights: Path | None = None, force: bool = False
) -> Summary:
    """Write the initial model for images like those of the dataset `like` (no row is read).

    `weights` are public ones to begin with, in place of drawn ones.
    """
    prepare(out, "public")
    metadata = dataset_file.read_metadata(like)
    require_fixed([like], [metadata])
    about = metadata.params
    try:
        shape = InputShape(**{k: about[k] for k in ("channels", "height", "width", "num_classes")})
    except ValueError as error:
        raise InputError(f"{like} is no dataset to make a model for: {error}.") from error

    import torch

    from stages.execution.torch_setup import arithmetic
    from stages.methods.trials import check_first_weights, check_repeats, try_training
    from stages.nets.build import new_network
    from stages.nets.state import file_tensors, freeze, trained

    try:
        first = stream_seed(seed, stage="init-model")
        module = new_network(params, shape, first)
        if params.plugin is not None:
            check_first_weights(module, new_network(params, shape, first))
            check_repeats(module, shape)
        freeze(module, params.freeze)
        if params.initial_weights == "module":
            try_training(module, shape)
    except ValueError as error:
        raise UsageError(f"--arch {params.arch}: {error}.") from error
    filled = fill_from(module, weights) if weights is not None else None
    inputs = (InputRef(role="weights", kind="model", sha256=filled.sha256),) if filled is not None else ()
    # A model that a server sent was made from private data: what that cost and disclosed goes with its weights.
    origin = filled.origin if filled is not None else None
    tensors = {name: tensor.numpy() for name, tensor in file_tensors(module).items()}
    metadata = Metadata(
        kind="model",
        stage="init-model",
        custody="public",
        round=0,
        inputs=inputs,
        params=model_params(params, shape),
        seed=seed,
        versions=versions("torch"),
        arithmetic=arithmetic(torch.device("cpu")),
        privacy=origin.privacy if origin is not None else (),
        disclosures=origin.disclosures if origin is not None else (),
        simulation=origin is not None and origin.simulation,
    )
    digest = tensors_file.write(out, tensors, metadata, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "arch": params.arch,
        "parameters": sum(p.numel() for p in module.parameters()),
        "trained": sum(p.numel() for p in trained(module).values()),
        **({"not_in_weights": filled.left} if filled is not None else {}),
    }
