"""`aggregate`: the files of a round become the next model, by one of the rules of `RULES`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import UsageError
from stages.execution.dispatch import performer, used
from stages.execution.progress import Report, Summary, silent
from stages.methods.params.aggregation import Rule

if TYPE_CHECKING:
    from stages.execution.torch_setup import Device


def aggregate(
    model: Path,
    files: Sequence[Path],
    out: Path,
    *,
    params: Rule,
    result: str | None = None,
    state: Path | None = None,
    state_out: Path | None = None,
    before: Path | None = None,
    strict: bool | None = None,
    metrics: Path | None = None,
    seed: int | None = None,
    key: Path | None = None,
    signed_by: Path | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Call the rule's own function with what it takes; an option that it has no use for is refused.

    `result` is the kind to write, by default the rule's usual one. With the roster `signed_by` every file must be
    signed by a client.
    """
    rule = f"--rule {params.rule}"
    if result is not None and result not in params.writes:
        raise UsageError(f"--as {result} does not go with {rule}: it makes a {' or '.join(params.writes)}.")
    given = {"state": state, "state_out": state_out, "before": before, "strict": strict, "metrics": metrics}
    options = used({**given, "seed": seed}, params.takes, rule)
    if len(params.writes) > 1:
        options["result"] = result or params.writes[0]
    where: dict[str, Any] = {"device": device} if params.on_device else {}
    return performer(params.performed_by)(
        model, files, out, params=params, key=key, signed_by=signed_by, force=force, report=report, **options, **where
    )
