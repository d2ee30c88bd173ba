"""Read by every Python whose PYTHONPATH holds this folder: the keys of simulations are shifted, and draws are noted.

tests/anywhere/plugin.py puts the folder there, so that processes which a test starts do as the test itself does.
`FEDSYNTH_TEST_KEY_SHIFT=3` gives every simulated key another value, as another machine gives every stream another
context. `FEDSYNTH_TEST_RECORD=FILE` appends a line for whatever drew under a key.
"""

import functools
import importlib.abc
import importlib.util
import os
import sys
from pathlib import Path

SHIFT, RECORD, DRAWER = "FEDSYNTH_TEST_KEY_SHIFT", "FEDSYNTH_TEST_RECORD", "FEDSYNTH_TEST_DRAWER"
# What draws, by module. A name with a dot is a method.
NOTED = {
    "artifacts.identity.keys": ("key", ("generate", "simulated")),
    "stages.secagg.primitives": ("key", ("new_pair",)),
    "stages.privacy.streams": ("stream", ("SecretStream.__init__",)),
    "stages.execution.key_streams": ("stream", ("key_seeds",)),
    "stages.surrogates.client": ("stream", ("encode_surrogate",)),
    "stages.synthesize": ("stream", ("synthesize",)),
}


class AsImported(importlib.abc.MetaPathFinder):
    """Changes a module as soon as it is imported; nothing is imported for it, which tests of `--help` would notice."""

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002
        if name not in NOTED:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (execute(module), change(module))
        return spec


def change(module):
    if module.__name__ == "artifacts.identity.keys" and (shift := os.environ.get(SHIFT)):
        simulated = module.simulated
        module.simulated = functools.wraps(simulated)(lambda seed, owner: simulated(seed, f"{owner}, shift {shift}"))
    if os.environ.get(RECORD):
        kind, names = NOTED[module.__name__]
        for name in names:
            *outer, last = name.split(".")
            holder = getattr(module, outer[0]) if outer else module
            setattr(holder, last, noted(getattr(holder, last), kind))


def noted(function, kind):
    @functools.wraps(function)
    def call(*arguments, **named):
        note(kind, os.environ.get(DRAWER, ""))
        return function(*arguments, **named)

    return call


@functools.cache
def note(kind, drawer):
    with Path(os.environ[RECORD]).open("a") as file:
        file.write(f"{kind}\t{drawer}\n")


if (os.environ.get(SHIFT) or os.environ.get(RECORD)) and not any(isinstance(f, AsImported) for f in sys.meta_path):
    sys.meta_path.insert(0, AsImported())
    for loaded in NOTED.keys() & sys.modules.keys():
        change(sys.modules[loaded])
