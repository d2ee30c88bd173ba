"""Clients as canaries: updates along one coordinate, far beyond the clip, through `encode` and `aggregate`.

Everybody who is there takes part in every round: amplification by a secret sample of clients is not attacked here, and
not claimed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import UsageError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.identity import keys
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from artifacts.places import RunFolder
from artifacts.writing import atomic
from stages.execution.progress import Report
from stages.keygen import settle
from stages.models.messages import exchanged
from stages.privacy.events import PrivacyEvent
from stages.recipes.declared import parameters
from stages.recipes.perform import perform
from stages.recipes.step import Step
from stages.run_folder.files import model_file
from stages.trials.attacker import LOUD, Attacker
from stages.trials.runs import Trial, World


def run_with_clients(trial: Trial, attacker: Attacker, there: NDArray[np.bool_], report: Report) -> list[PrivacyEvent]:
    """All rounds of the recipe with these clients alone; the events of the last model."""
    from stages.aggregate import aggregate
    from stages.encode import encode

    world = trial.world("canaries")
    encoding, rule = (_first(world, command) for command in ("encode", "aggregate"))
    rule_params = parameters(rule)
    if not rule_params.noised:
        raise UsageError(
            f"recipe {trial.recipe.name} spreads its noise over the clients' files: canaries are for noise that the "
            "server adds (dp-mean), or that is for records. audit --neighbours compares this one."
        )
    # Everybody is drawn, so that nothing is amplified; the divisor is public, and changes nothing.
    everybody = replace(rule_params, sampling_rate=1.0, clients=len(there))
    perform(world.steps[0], world.root)
    before: Path | None = None
    for round in range(1, trial.recipe.rounds + 1):
        model, out = world.root / model_file(round - 1), world.root / model_file(round)
        moved_from = before if everybody.follows_movement else None
        start = tensors_file.read(model)
        messages = []
        for number in np.flatnonzero(there):
            update, message = _update(world, int(number), start, round, attacker, trial.seed)
            encode(model, update, message, params=parameters(encoding), before=moved_from)
            messages.append(message)
        aggregate(model, messages, out, params=everybody, before=moved_from)
        moved = _flat(start) - _flat(tensors_file.read(out))
        event = PrivacyEvent.from_json(tensors_file.read(out).metadata.privacy[-1])
        scale = everybody.expected_clients / (everybody.server_rate * event.clip_norm)
        attacker.saw(moved[attacker.coordinates(moved.size)] * scale, event.update_noise or event.noise_multiplier)
        before = model
        report(round, trial.recipe.rounds, "aggregate")
    return [PrivacyEvent.from_json(event) for event in tensors_file.read(out).metadata.privacy]


def _first(world: World, command: str) -> Step:
    return next(step for step in world.steps if step.command == command)


def _flat(model: TensorArtifact) -> NDArray[np.float64]:
    tensors = exchanged(model)
    return np.concatenate([tensors[name].astype(np.float64).ravel() for name in sorted(tensors)])


def _update(
    world: World, number: int, start: TensorArtifact, round: int, attacker: Attacker, seed: int
) -> tuple[Path, Path]:
    """The canary's update as a file, and where its message goes."""
    name = f"canary-{number}"
    place = RunFolder(world.root).client(name)
    if not place.key.exists():
        settle(place.key, keys.simulated(seed, f"client {name}"), force=False)
        atomic.make_folder(place.outbox)
    values = np.zeros(_flat(start).size, np.float32)
    values[attacker.coordinates(values.size)[number]] = LOUD
    tensors, position = {}, 0
    for tensor, like in sorted(exchanged(start).items()):
        tensors[tensor] = values[position : position + like.size].reshape(like.shape)
        position += like.size
    about = Metadata(
        kind="update", stage="train-client", custody="private", client=name, round=round, versions={},
        inputs=(lineage.by_digest(start, "model"),),
    )  # fmt: skip
    update = place.private / f"update-{round:04}.safetensors"
    tensors_file.write(update, tensors, about)
    return update, place.outbox / f"message-{round:04}.safetensors"
