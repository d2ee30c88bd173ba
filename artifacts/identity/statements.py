"""What is signed of a file: how it was made, and what it claims about privacy; and of a ledger, its head.

All of it follows from the file's own metadata and the name of the federation, so that anyone who has both can write the
statements again and compare. No time, host, environment, command line or digest of anything private is in them
(privacy contract, rule 27).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from artifacts.identity.dsse import Envelope, stated
from artifacts.kinds import KINDS
from artifacts.metadata import InputRef, Metadata

PROVENANCE = "https://slsa.dev/provenance/v1"
CLAIM = "urn:fedsynth:privacy-claim:v1"
HEAD = "urn:fedsynth:ledger-head:v1"
LEDGER = "egress.jsonl"
TREE = "urn:fedsynth:tree-head:v1"
LOG = "receipts"
_BUILD, _BUILDER = "urn:fedsynth:stage:v1", "urn:fedsynth:builder"


def on_file(name: str, sha256: str, metadata: Metadata, federation: str, *, picked: bool) -> tuple[Envelope, Envelope]:
    """Provenance and privacy claim of one file, not signed yet."""
    return (
        stated(name, sha256, PROVENANCE, _provenance(metadata, federation)),
        stated(name, sha256, CLAIM, _claim(metadata, federation, picked=picked)),
    )


def on_ledger(
    head: str, seq: int, *, spend: str, federation: str, client: str, round: int, simulation: bool
) -> Envelope:
    """The head of a client's ledger after `seq` entries, not signed yet. `spend` commits to its spend ledger."""
    bound = {"federation": federation, "client": client, "round": round, "seq": seq, "simulation": simulation}
    return stated(LEDGER, head, HEAD, {**bound, "spend": spend})


def on_log(root: str, size: int, *, federation: str, round: int, proofs: Mapping[str, Any]) -> Envelope:
    """The root of the server's tree of all heads so far, with proofs of what is in it; not signed yet."""
    return stated(LOG, root, TREE, {"federation": federation, "round": round, "size": size, **proofs})


def _provenance(metadata: Metadata, federation: str) -> dict[str, Any]:
    """SLSA provenance: the stage and its parameters, what went in, and which versions did it."""
    return {
        "buildDefinition": {
            "buildType": _BUILD,
            "externalParameters": {
                "federation": federation, "client": metadata.client, "round": metadata.round,
                "stage": metadata.stage, "method": metadata.method, "params": dict(metadata.params),
            },
            "resolvedDependencies": [_dependency(reference) for reference in metadata.inputs],
        },
        "runDetails": {"builder": {"id": _BUILDER, "version": dict(metadata.versions)}},
    }  # fmt: skip


def _dependency(reference: InputRef) -> dict[str, Any]:
    """A public input by its digest; a private one by its commitment, which is no digest of it."""
    fields: dict[str, Any] = {"name": reference.role, "annotations": {"kind": reference.kind}}
    if reference.sha256 is not None:
        return fields | {"digest": {"sha256": reference.sha256}}
    fields["annotations"] |= {"commitment": reference.commitment, "salt": reference.salt}
    return fields


def _claim(metadata: Metadata, federation: str, *, picked: bool) -> dict[str, Any]:
    return {
        "federation": federation,
        "client": metadata.client,
        "round": metadata.round,
        "model": next(iter(metadata.digests_of("model")), None),
        "kind": metadata.kind,
        "custody": metadata.custody,
        "simulation": metadata.simulation,
        "events": [dict(event) for event in metadata.privacy],
        "disclosures": list(metadata.disclosures),
        "picked": picked,
        "epsilon": epsilon(metadata, picked=picked),
    }


def epsilon(metadata: Metadata, *, picked: bool) -> str:
    """What one file costs (privacy contract, rules 1 and 16): none, finite by its events, or infinite."""
    if not KINDS[metadata.kind].from_data or metadata.custody == "public":
        return "none"
    covered = bool(metadata.privacy) and not metadata.disclosures and not picked
    if metadata.custody == "downlink" and not metadata.privacy:
        return "of the clients' files"  # what the server makes of them is charged where it left
    return "by events" if covered else "∞"
