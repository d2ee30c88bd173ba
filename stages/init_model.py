"""`init-model`: a network with its first weights, public, for everyone to start from."""

from __future__ import annotations

from pathlib import Path

from artifacts import dataset_file, tensors_file
from artifacts.errors import InputError, UsageError
from artifacts.metadata import Metadata
from artifacts.publish import prepare
from stages.model_file import model_params
from stages.nets.params import InputShape, NetParams
from stages.progress import Summary
from stages.randomness import stream_seed
from stages.versions import versions


def init_model(like: Path, out: Path, *, params: NetParams, seed: int, force: bool = False) -> Summary:
    """Write the initial model for images like those of the dataset `like` (no row is read)."""
    prepare(out, "public", force=force)
    about = dataset_file.read_metadata(like).params
    try:
        shape = InputShape(**{k: about[k] for k in ("channels", "height", "width", "num_classes")})
    except ValueError as error:
        raise InputError(f"{like} is no dataset to make a model for: {error}.") from error

    import torch

    from stages.nets.build import build, initialise

    try:
        module = build(params, shape)
    except ValueError as error:
        raise UsageError(f"--arch {params.arch}: {error}.") from error
    initialise(module, torch.Generator().manual_seed(stream_seed(seed, stage="init-model")))
    weights = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    metadata = Metadata(
        kind="model",
        stage="init-model",
        custody="public",
        round=0,
        params=model_params(params, shape),
        seed=seed,
        versions=versions("torch"),
    )
    digest = tensors_file.write(out, weights, metadata, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "arch": params.arch,
        "parameters": sum(p.numel() for p in module.parameters()),
    }
