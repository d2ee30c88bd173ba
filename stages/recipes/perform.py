"""A step, performed: the call of the stage function that the command line would make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages.methods.params.aggregation import Aggregation
from stages.methods.params.surrogates import SurrogateSet
from stages.methods.params.tofu import TofuEncoding
from stages.progress import Summary
from stages.recipes.declared import parameters
from stages.recipes.step import Step


def perform(step: Step, root: Path) -> Summary:
    """Run one step in the run folder `root`. Outputs that a killed step left half done are replaced."""
    return _CALLS[step.command](step, root)


def _paths(step: Step, root: Path) -> list[Path]:
    return [root / name for name in step.inputs]


def _files(step: Step, root: Path, *names: str) -> dict[str, Any]:
    """The options that name files, as arguments."""
    return {name: root / step.options[name] for name in names if name in step.options}


def _partition(step: Step, root: Path) -> Summary:
    from stages.partition import partition

    folder = step.options.get("root")
    return partition(
        step.inputs[0],
        root,
        params=parameters(step),
        seed=step.options["seed"],
        root=Path(folder) if folder else None,
        download=bool(step.options.get("download", False)),
        force=True,
    )


def _init_model(step: Step, root: Path) -> Summary:
    from stages.init_model import init_model

    like, seed = root / step.options["like"], step.options["seed"]
    return init_model(like, root / step.out, params=parameters(step), seed=seed, force=True)


def _train_generator(step: Step, root: Path) -> Summary:
    from stages.train_generator import train_generator

    params, seed = parameters(step), step.options["seed"]
    return train_generator(_paths(step, root), root / step.out, params=params, seed=seed, force=True)


def _synthesize(step: Step, root: Path) -> Summary:
    from stages.synthesize import synthesize

    (generator,), sheet = _paths(step, root), _files(step, root, "sheet")
    params, seed = parameters(step), step.options["seed"]
    return synthesize(generator, root / step.out, params=params, seed=seed, **sheet, force=True)


def _shuffle(step: Step, root: Path) -> Summary:
    from stages.shuffle import shuffle

    folder = (root / step.out).parent
    return shuffle(_paths(step, root), folder, parts=step.options["parts"], seed=step.options["seed"], force=True)


def _train_client(step: Step, root: Path) -> Summary:
    from stages.train_client import train_client

    model, *data = _paths(step, root)
    params, seed = parameters(step), step.options["seed"]
    states = _files(step, root, "state", "server_state", "state_out")
    return train_client(model, data, root / step.out, params=params, seed=seed, **states, force=True)


def _encode(step: Step, root: Path) -> Summary:
    model, source = _paths(step, root)
    params, files = parameters(step), _files(step, root, "previous", "before", "metrics")
    if isinstance(params, SurrogateSet):
        from stages.encode_surrogate import encode_surrogate

        return encode_surrogate(model, source, root / step.out, params=params, **files, force=True)
    if isinstance(params, TofuEncoding):
        from stages.encode_proxy import encode_proxy

        return encode_proxy(model, source, root / step.out, params=params, **files, force=True)
    from stages.encode import encode

    return encode(model, source, root / step.out, params=params, **files, force=True)


def _decode(step: Step, root: Path) -> Summary:
    from stages.decode import decode

    model, message = _paths(step, root)
    return decode(model, message, root / step.out, apply=bool(step.options.get("apply")), force=True)


def _aggregate(step: Step, root: Path) -> Summary:
    model, *messages = _paths(step, root)
    params, files = parameters(step), _files(step, root, "state", "state_out", "before", "metrics")
    if not isinstance(params, Aggregation):
        from stages.aggregate_surrogates import aggregate_surrogates

        files["seed"] = step.options.get("seed", 0)
        return aggregate_surrogates(model, messages, root / step.out, params=params, **files, force=True)
    from stages.aggregate import aggregate

    result = step.options.get("as", "model")
    return aggregate(model, messages, root / step.out, params=params, result=result, **files, force=True)


def _evaluate(step: Step, root: Path) -> Summary:
    from stages.evaluate import evaluate

    model, data = _paths(step, root)
    files = _files(step, root, *step.options)
    return evaluate(model, data, root / step.out, **files, **step.params, force=True)


_CALLS: dict[str, Callable[[Step, Path], Summary]] = {
    "partition": _partition,
    "train-generator": _train_generator,
    "synthesize": _synthesize,
    "shuffle": _shuffle,
    "init-model": _init_model,
    "train-client": _train_client,
    "encode": _encode,
    "decode": _decode,
    "aggregate": _aggregate,
    "evaluate": _evaluate,
}
