"""A module of one test folder that is no test, by its path. What several folders need is here, and is imported."""

import functools
import importlib.util
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent


@functools.cache
def load(path):
    """By its path from the folder of the tests, in which nothing is a package."""
    file = TESTS / path
    spec = importlib.util.spec_from_file_location(f"fedsynth_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
