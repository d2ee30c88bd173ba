"""`decode`: a message becomes the update that it carries, or, with `--apply`, the model after it."""

from __future__ import annotations

from pathlib import Path

from artifacts.formats import tensors_file
from artifacts.kinds import KINDS, Custody
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from artifacts.places import Place, is_leaving
from artifacts.publish import prepare
from stages.execution.progress import Summary
from stages.methods.averaging import apply_update
from stages.models.file import read_model, round_of
from stages.models.messages import made_by, read_update, refuse_one_share
from stages.models.next_model import with_past


def decode(model: Path, message: Path, out: Path, *, apply: bool = False, force: bool = False) -> Summary:
    """Write the update in `message`; or the model that results from applying it."""
    place = Place.of(out)
    at_client = place is not None and not place.is_server
    start = read_model(model)
    source = read_update(message, start)
    refuse_one_share(message, source.metadata)
    custody: Custody = "private" if at_client else "downlink" if apply and is_leaving(out) else "server"
    if apply and KINDS[source.metadata.kind].encoded and not is_leaving(out):
        # Anyone who has the model and the proxy can make this: the same file everywhere, byte for byte.
        custody = "public"
    prepare(out, custody)
    round = round_of(start) + 1
    metadata = Metadata(
        kind="model" if apply else "update",
        stage="decode",
        method=source.metadata.method,
        custody=custody,
        client=None if apply else source.metadata.client,
        round=round,
        params=start.metadata.params if apply else {},
        counts={} if apply else source.metadata.counts,
        # A model that is sent on does not name the messages that it was made from.
        inputs=(
            lineage.by_digest(start, "model"),
            *(() if custody == "downlink" else (lineage.by_digest(source, source.metadata.kind),)),
        ),
        privacy=source.metadata.privacy,
        disclosures=source.metadata.disclosures,
        simulation=source.metadata.simulation,
        **made_by([source.metadata.kind]),
    )
    if apply:
        metadata = with_past(metadata, start.metadata)
    tensors = apply_update(start.tensors, source.tensors) if apply else source.tensors
    digest = tensors_file.write(out, tensors, metadata, force=force)
    return {"out": str(out), "sha256": digest, "kind": metadata.kind, "round": round}
