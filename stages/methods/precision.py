"""The arithmetic of a network's passes."""

from __future__ import annotations

import contextlib

import torch


def passes_in(precision: str | None, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Where the forward pass is made, and by it the backward pass is decided: float32 throughout, or bf16."""
    if precision is None:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
