"""What a file must declare: every disclosure that its content amounts to and that no noise covers."""

from __future__ import annotations

from artifacts.kinds import KINDS
from artifacts.metadata import Metadata

# Without noise a file of this kind tells at least this, whatever its parameters.
_ALWAYS: dict[str, set[str]] = {
    "message": {"update"},
    "secagg-masked": {"update"},
    "state": {"update", "local_steps"},
    "proxy": {"update", "derived_images", "layer_norms"},
    "surrogate": {"derived_images", "class_set"},
    "dataset": {"derived_images", "class_set"},
}
# Tensors that tell a number which is measured on private data.
_TENSORS = {("surrogate", "radius"): "radius", ("surrogate", "norms"): "layer_norms"}
# Parameters that make a stage tell something.
_PARAMS = {
    ("tell_examples", True): "num_examples",
    ("tell_steps", True): "local_steps",
    ("init", "real"): "real_image_init",
    ("classes", "own"): "class_set",
    ("labels", "frequency"): "class_counts",
}


def owed(metadata: Metadata, tensors: set[str]) -> set[str]:
    """The disclosures that an outbound file has to declare. Under DP none, unless someone picked over what was made."""
    if not KINDS[metadata.kind].from_data:
        return set()
    told = {told for (kind, tensor), told in _TENSORS.items() if kind == metadata.kind and tensor in tensors}
    for (name, value), what in _PARAMS.items():
        if metadata.params.get(name) == value:
            told.add(what)
    told |= set(metadata.counts)
    if not metadata.privacy or metadata.params.get("picked") is True:
        told |= _ALWAYS.get(metadata.kind, set())
    return told
