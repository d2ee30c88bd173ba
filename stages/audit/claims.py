"""Events against parameters: what a file says of its noise in the one it says in the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import FedsynthError
from artifacts.metadata import Metadata
from stages.audit.surrounding_files import Given
from stages.methods.params.client_privacy import NEXT_CLIP
from stages.nets.params import network_params
from stages.plugins import missing
from stages.registry import ALGORITHMS, ENCODERS, RULES

if TYPE_CHECKING:
    from stages.privacy.events import PrivacyEvent

# What an event has from its moment and not from parameters.
_NOT_PLANNED = {"id", "draw", "federation"}
# Of an event, what a finding names.
_NAMED = {"unit", "sampling_rate", "noise_multiplier", "clip_norm", "steps"}


def other_noise(metadata: Metadata, given: Given | None) -> str | None:
    """What its parameters say of its noise and no event of the file does, in words; None if all is as they say.

    The whole event follows from the parameters: who draws less often, in fewer steps or for a smaller unit than they
    say would claim a smaller ε than was spent. Under an adaptive clip the clip is the one that the model states from
    which the round began; without that model it is not known.
    """
    params = metadata.params
    if params.get("noise_multiplier") is None or missing(params) is not None:
        return None
    try:
        event = _planned(metadata)
    except (ValueError, TypeError, FedsynthError) as error:
        return f"nobody can say what its noise costs: {error}"
    if event is None:
        return "its parameters name a noise multiplier, and by the others of them it has no noise"
    wanted = {name: value for name, value in event.to_json().items() if name not in _NOT_PLANNED}
    if params.get("adaptive_clip"):
        wanted.pop("clip_norm")
        if (clip := _clip(metadata, given)) is not None:
            wanted["clip_norm"] = clip
    if metadata.kind == "generator":
        wanted.pop("steps")  # it may be one that was kept on the way
    if any(_says(found, wanted) and int(found.get("steps", 0)) <= event.steps for found in metadata.privacy):
        return None
    said = ", ".join(f"{name} {value}" for name, value in wanted.items() if name in _NAMED)
    return f"no privacy event of it has the {said} of its parameters"


def _planned(metadata: Metadata) -> PrivacyEvent | None:
    """The event that a call of its stage with its parameters gives."""
    from stages.charging.planned import planned_event  # of the accountants' room, for which most audits have no use
    from stages.generators.file import described

    if metadata.kind == "generator":
        params, _, _ = described(metadata, Path(metadata.kind))
        event = planned_event(params)
        return event and dataclasses.replace(event, steps=params.releases(event.steps))
    values = {name: value for name, value in metadata.params.items() if name != NEXT_CLIP}
    if metadata.stage == "aggregate":
        network = network_params(values)
        return planned_event(RULES.from_mapping({name: v for name, v in values.items() if name not in network}))
    return planned_event((ENCODERS if metadata.stage == "encode" else ALGORITHMS).from_mapping(values))


def other_federation(metadata: Metadata, federation: str, brought: Set[str]) -> str | None:
    """An event that was released in another federation than this, in words. `brought`: ids that came with inputs."""
    for event in metadata.privacy:
        said = event.get("federation", "")
        if said and said != federation and event.get("id") not in brought:
            return f"its noise was released in federation {said!r}, and this is {federation!r}: it counts there"
    return None


def is_bound(metadata: Metadata) -> bool:
    """Whether every event says in which federation it was released."""
    return all(event.get("federation") for event in metadata.privacy)


def _says(event: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(event.get(name) == value for name, value in wanted.items())


def _clip(metadata: Metadata, given: Given | None) -> Any:
    models = given.models if given is not None else {}
    known = (models[digest] for digest in metadata.digests_of("model") if digest in models)
    return next((model.params.get(NEXT_CLIP, metadata.params["clip_norm"]) for model in known), None)
