"""`encode`: a private update, state or dataset becomes the file that leaves, by one of the methods of `ENCODERS`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.execution.dispatch import performer, used
from stages.execution.progress import Report, Summary, silent
from stages.methods.params.encoding import Encoder

if TYPE_CHECKING:
    from stages.execution.torch_setup import Device


def encode(
    model: Path,
    source: Path,
    out: Path,
    *,
    params: Encoder,
    previous: Path | None = None,
    before: Path | None = None,
    metrics: Path | None = None,
    error_out: Path | None = None,
    key: Path | None = None,
    client: str | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Call the method's own function with what it takes; a file that it has no use for is refused.

    `previous` is the client's own file of the round before, `before` the model of the round before. `metrics` gets
    what was measured on private data on the way, `error_out` what a lossy message left out, for the next round.
    """
    given = {"previous": previous, "before": before, "metrics": metrics, "error_out": error_out}
    files = used(given, params.takes, f"--method {params.method}")
    where: dict[str, Any] = {"device": device, "report": report} if params.on_device else {}
    return performer(params.performed_by)(
        model, source, out, params=params, key=key, client=client, force=force, **files, **where
    )
