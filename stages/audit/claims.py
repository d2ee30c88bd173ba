"""Events against parameters: what a file says of its noise in the one it says in the other."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from artifacts.metadata import Metadata
from stages.audit.surrounding_files import Given
from stages.methods.params.client_privacy import NEXT_CLIP


def other_noise(metadata: Metadata, given: Given | None) -> str | None:
    """The noise, unit or clip of its parameters that no event of the file has, in words; None if all is as it says.

    Under an adaptive clip the clip is the one that the model states from which the round began; without that model it
    is not known.
    """
    params = metadata.params
    if params.get("noise_multiplier") is None:
        return None
    wanted = {"unit": params.get("unit", "client"), "noise_multiplier": params["noise_multiplier"]}
    clip = _clip(metadata, given) if params.get("adaptive_clip") else params.get("clip_norm")
    if clip is not None:
        wanted["clip_norm"] = clip
    if any(_says(event, wanted) for event in metadata.privacy):
        return None
    said = ", ".join(f"{name} {value}" for name, value in wanted.items())
    return f"no privacy event of it has the {said} of its parameters"


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
