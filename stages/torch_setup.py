"""How torch runs in every stage: one thread, deterministic, on the device that was asked for."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Literal

import torch

from artifacts.errors import UsageError

Device = Literal["auto", "cpu", "cuda", "mps"]

# Of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def set_up(device: Device) -> torch.device:
    """One thread (two on a shared two-core machine ran 3 to 10 times slower) and reproducible kernels."""
    torch.set_num_threads(1)
    _keep_freed_memory()
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Nothing reads memory before it is written; to fill it first, as this mode does, took 3% of a round.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if available[name]))
    if not available[device]:
        found = ", ".join(name for name, there in available.items() if there)
        raise UsageError(f"--device {device}: torch finds no such device here (there is: {found}).")
    return torch.device(device)


def _keep_freed_memory() -> None:
    """What one step frees the next one needs. Given back to the system, it came anew page by page: a third of a step.

    At most half a gigabyte is kept.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # other C libraries have no such knobs
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, 32 << 20)
        library.mallopt(_TRIM_THRESHOLD, 512 << 20)


def arithmetic(device: torch.device) -> str:
    """What else decides the last bits of a result: threads, vector instructions, the model of the GPU."""
    if device.type == "cuda":
        return f"float32 on {torch.cuda.get_device_name(device)}"
    return f"float32, one thread, {torch.backends.cpu.get_cpu_capability()}"
