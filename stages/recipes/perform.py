"""A step, performed: the call of the stage function that the command line would make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages.execution.progress import Summary
from stages.recipes.declared import parameters
from stages.recipes.step import Step


def perform(step: Step, root: Path) -> Summary:
    """Run one step in the run folder `root`. Outputs that a killed step left half done are replaced."""
    return _CALLS[step.section](step, root)


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
    weights = Path(step.options["weights"]) if "weights" in step.options else None
    return init_model(like, root / step.out, params=parameters(step), seed=seed, weights=weights, force=True)


def _train_generator(step: Step, root: Path) -> Summary:
    from stages.train_generator import train_generator

    params, seed = parameters(step), step.options["seed"]
    return train_generator(_paths(step, root), root / step.out, params=params, seed=seed, force=True)


def _synthesize(step: Step, root: Path) -> Summary:
    from stages.generators.file import facts_in
    from stages.synthesize import synthesize

    (generator,), sheet = _paths(step, root), _files(step, root, "sheet")
    params, seed = parameters(step, facts_in(generator)), step.options["seed"]
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
    from stages.encode import encode

    model, source = _paths(step, root)
    files = _files(step, root, "previous", "before", "metrics", "error_out")
    return encode(model, source, root / step.out, params=parameters(step), **files, force=True)


def _decode(step: Step, root: Path) -> Summary:
    from stages.decode import decode

    model, message = _paths(step, root)
    return decode(model, message, root / step.out, apply=bool(step.options.get("apply")), force=True)


def _aggregate(step: Step, root: Path) -> Summary:
    from stages.aggregate import aggregate

    model, *files = _paths(step, root)
    options = _files(step, root, "state", "state_out", "before", "metrics")
    return aggregate(
        model, files, root / step.out, params=parameters(step), result=step.options.get("as"),
        seed=step.options.get("seed"), **options, force=True,
    )  # fmt: skip


def _evaluate(step: Step, root: Path) -> Summary:
    from stages.evaluate.accuracy import evaluate

    model, data = _paths(step, root)
    files = _files(step, root, *step.options)
    return evaluate(model, data, root / step.out, **files, **step.params, force=True)


def _identity(step: Step, root: Path) -> Summary:
    from stages.identity import identity

    return identity(root / step.out, force=True)


def _roster(step: Step, root: Path) -> Summary:
    from stages.identity import roster

    return roster(_paths(step, root), root / step.out, federation=step.options["federation"], force=True)


def _receipt(step: Step, root: Path) -> Summary:
    from stages.receipt import ask, give, keep

    inputs, out, roster = _paths(step, root), root / step.out, root / step.options["roster"]
    match step.command.split()[1]:
        case "ask":
            return ask(out, roster=roster, round=step.round, force=True)
        case "give":
            return give(inputs, out, roster=roster, force=True)
        case _:
            return keep(inputs[0], out, roster=roster, force=True)


def _secagg(step: Step, root: Path) -> Summary:
    """One of the commands of secure aggregation."""
    inputs, out = _paths(step, root), root / step.out
    files = _files(step, root, "roster", "keys", "shares", "survivors")
    match step.command.split()[1]:
        case "keys":
            from stages.secagg.client_steps import keys

            return keys(out, round=step.round, force=True)
        case "shares":
            from stages.secagg.client_steps import shares

            return shares(inputs[0], out, **files, force=True)
        case "mask":
            from stages.secagg.mask import mask

            return mask(inputs[0], inputs[1], inputs[2], out, force=True)
        case "confirm":
            from stages.secagg.unmask import confirm

            return confirm(inputs[0], out, force=True)
        case "unmask":
            from stages.secagg.unmask import unmask

            return unmask(inputs[0], out, force=True)
        case "collect":
            from stages.secagg.collect import collect

            return collect(inputs, out, terms=parameters(step), **files, force=True)
        case _:
            from stages.secagg.total import secure_sum

            return secure_sum(inputs, out, **files, force=True)


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
    "identity": _identity,
    "roster": _roster,
    "receipt": _receipt,
    "secagg": _secagg,
}
