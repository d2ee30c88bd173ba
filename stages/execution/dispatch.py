"""Calling the function that a declaration names, with the options that it takes and no others."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from artifacts.errors import UsageError
from stages.execution.progress import Summary


def named(reference: str) -> Any:
    """The function that `module:function` names. Its module, which may need torch, is imported now and not before."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def performer(reference: str) -> Callable[..., Summary]:
    """The function of a stage, by such a name."""
    function: Callable[..., Summary] = named(reference)
    return function


def used(given: Mapping[str, Any], takes: Collection[str], chosen: str) -> dict[str, Any]:
    """Those options that were given; one that does not go with what was `chosen`, such as `--rule mean`, is refused."""
    found = {name: value for name, value in given.items() if value is not None}
    for name in found:
        if name not in takes:
            raise UsageError(f"--{name.replace('_', '-')} does not go with {chosen}.")
    return found
