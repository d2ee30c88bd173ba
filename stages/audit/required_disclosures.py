"""What a file must declare: every disclosure that its content amounts to and that no noise covers."""

from __future__ import annotations

from artifacts.kinds import KINDS
from artifacts.metadata import Metadata

# Parameters that make a stage tell something.
_PARAMS = {
    ("tell_examples", True): "num_examples",
    ("tell_steps", True): "local_steps",
    ("init", "real"): "real_image_init",
    ("classes", "own"): "class_set",
    ("labels", "frequency"): "class_counts",
}


def required_disclosures(metadata: Metadata, tensors: set[str]) -> set[str]:
    """The disclosures that an outbound file has to declare. Under DP none, unless someone picked over what was made."""
    kind = KINDS[metadata.kind]
    if not kind.from_data:
        return set()
    rules = {name: rule for name, rule in (kind.tensors or {}).items() if name in tensors}
    stated = {rule.discloses for rule in rules.values() if rule.discloses is not None}
    for (name, value), what in _PARAMS.items():
        if metadata.params.get(name) == value:
            stated.add(what)
    stated |= set(metadata.counts)
    if not metadata.privacy or metadata.params.get("picked") is True:
        stated |= kind.always_discloses
    return stated
