"""What a differentially private command cost, beside its result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.execution.progress import Summary


def with_cost(summary: Summary, params: Any, out: Path, key: Path | None, data: Sequence[Path]) -> Summary:
    """With ε of what was written, ε of all that was charged to this data and what the budget has left, under DP."""
    from stages.methods.params.record_privacy import RecordPrivacy

    if not isinstance(params, RecordPrivacy) or not params.is_private:
        return summary
    from stages.budget import after

    return {**summary, **{k: v for k, v in after(out, key, data, params.delta).items() if k not in summary}}
