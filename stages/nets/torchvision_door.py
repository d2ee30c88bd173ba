"""The one door through which torchvision and diffusers come in.

The published torchvision wheels are CUDA builds. Next to a CPU-only torch their C++ part does not load,
the operators that it would have declared are missing, and `import torchvision` stops at «operator
torchvision::nms does not exist»; `import diffusers` then stops too. The Python parts (datasets,
transforms, models, make_grid) are all that we use, and they import once the two operators that
torchvision takes for granted, `nms` and `qnms`, have a schema.

Importing this module is free: torch, torchvision and diffusers are imported when their function is first
called.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from types import ModuleType
from typing import Any

# Two threads that find torchvision broken at once must not declare the operators twice. Re-entrant, because
# `diffusers` comes through `torchvision`.
_lock = threading.RLock()
_MISSING = "torchvision::nms"


def torchvision() -> ModuleType:
    """The torchvision package, whether or not its C++ part loads."""
    with _lock:
        try:
            return importlib.import_module("torchvision")
        except RuntimeError as error:
            # Only after torchvision itself has failed in this way do we know that its C++ part is not there:
            # declared beforehand, the schemas would collide with those of a C++ part that does load.
            if _MISSING not in str(error):
                raise
        _forget_half_imported()
        _declare_operators()
        return importlib.import_module("torchvision")


def opened_for(error: BaseException) -> bool:
    """Whether somebody else's code failed at `import torchvision` as said above, which now works: run it again."""
    with _lock:
        if (
            not isinstance(error, RuntimeError)
            or _MISSING not in str(error)
            or _declare_operators.cache_info().currsize
        ):
            return False
        torchvision()
        return True


def diffusers() -> ModuleType:
    """The diffusers package. It imports torchvision wherever that is installed, so torchvision comes first."""
    with _lock:
        torchvision()
        return importlib.import_module("diffusers")


def _forget_half_imported() -> None:
    """Drop the submodules that a failed import left behind: the next import would not bind them to the package."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]


@functools.cache
def _declare_operators() -> Any:
    """Declare `nms` and `qnms`, without kernels. Cached, because a library that is collected takes them back."""
    library: Any = importlib.import_module("torch.library").Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
