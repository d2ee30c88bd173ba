"""All cases, and the table of them."""

from tampering import files, images, ledgers, lineage, metadata, secrets, tensors  # noqa: F401  (they enter their cases)
from tampering.run import CASES


def table():
    """All cases by what is done and which check says so, as the guide shows them."""
    groups = {}
    for what, one in CASES.items():
        groups.setdefault((one.group, one.check), []).append(what)
    return groups
