"""Which device `auto` is in this process, and the GPUs of this machine. Free of torch until one is asked for."""

from __future__ import annotations

import re
from pathlib import Path

from artifacts.errors import UsageError

_NAME = re.compile(r"cpu|mps|cuda(:\d{1,2})?")
# NVIDIA's driver, the same under Windows' Linux, and AMD's: torch, which takes seconds to import, need not be asked
# where there is none.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")

_here: str | None = None


def parsed(text: str) -> list[str]:
    """`cuda:0,cuda:1` → the devices, which must be on this machine."""
    found = [word.strip() for word in text.split(",")]
    for word in found:
        if not _NAME.fullmatch(word):
            raise UsageError(f"--devices {text}: {word!r} is none of cpu, mps, cuda and cuda:NUMBER.")
    if any(word != "cpu" for word in found):
        from stages.execution.torch_setup import require

        for word in found:
            require(word, "--devices")
    return found


def gpus() -> list[str]:
    """Every GPU that torch finds: `cuda:0`, `cuda:1` …"""
    if not any(Path(driver).exists() for driver in _DRIVERS):
        return []
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def work_on(device: str | None) -> None:
    """From now on `auto` means this device in this process, which is a worker's; None: the best that there is."""
    global _here
    _here = device


def chosen_here() -> str | None:
    return _here
