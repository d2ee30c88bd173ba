"""How torch runs in every stage: one thread, deterministic, on the device that was asked for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Literal

import torch

from artifacts.errors import UsageError
from stages.execution.devices import chosen_here

Device = Literal["auto", "cpu", "cuda", "mps"]

_RECORDED: ContextVar[str | None] = ContextVar("recorded arithmetic", default=None)
# Of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def set_up(device: Device) -> torch.device:
    """One thread (two on a shared two-core machine ran 3 to 10 times slower) and reproducible kernels."""
    torch.set_num_threads(1)
    _keep_freed_memory()
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Nothing reads memory before it is written; to fill it first, as this mode does, took 3% of a round.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    chosen = (chosen_here() or _best()) if device == "auto" else device
    found = require(chosen, "--device")
    if found.type == "cuda":
        make_gpu_reproducible()
        torch.cuda.set_device(found)
    return found


def require(name: str, flag: str) -> torch.device:
    """The device of that name, `cuda:1` too; `UsageError` where torch does not find it."""
    device = torch.device(name)
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (device.index or 0) >= count[device.type]:
        found = ", ".join(f"{kind}:{n}" if kind == "cuda" else kind for kind in count for n in range(count[kind]))
        raise UsageError(f"{flag} {name}: torch finds no such device here (there is: {found}).")
    return device


def _best() -> str:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    return next(name for name, there in available.items() if there)


def make_gpu_reproducible() -> None:
    """The same kernels each time, in float32: TF32, cuDNN's own choice, has 10 bits where float32 has 23."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it is used first
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")


def _keep_freed_memory() -> None:
    """What one step frees the next one needs. Given back to the system, it came anew page by page: a third of a step.

    At most half a gigabyte is kept.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # other C libraries have no such knobs
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, 32 << 20)
        library.mallopt(_TRIM_THRESHOLD, 512 << 20)


def arithmetic(device: torch.device) -> str:
    """What else decides the last bits of a result: threads, vector instructions, the kind of processor or GPU."""
    return _RECORDED.get() or arithmetic_here(device)


def arithmetic_here(device: torch.device) -> str:
    if device.type == "cpu":
        return f"cpu: float32, one thread, {torch.backends.cpu.get_cpu_capability()}, {_processor()}"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return f"{device.type}: float32, {_plain(name)}"


@contextlib.contextmanager
def recorded_arithmetic(text: str | None) -> Iterator[None]:
    """A replay says what the file says, and draws the noise that is bound to it (privacy contract, rule 26)."""
    token = _RECORDED.set(text)
    try:
        yield
    finally:
        _RECORDED.reset(token)


@cache
def _processor() -> str:
    """Architecture, maker, family and model: MKL and oneDNN choose by them, whatever torch's own kernels are."""
    names = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            found[name.strip()] = value.strip()
    words = [found[name] for name in names if name in found] or [platform.processor()]
    return _plain(" ".join([platform.machine(), *words]))


def _plain(name: str) -> str:
    """As metadata may hold it."""
    return re.sub(r"[^A-Za-z0-9._-]+", " ", name).strip()[:48].strip()
