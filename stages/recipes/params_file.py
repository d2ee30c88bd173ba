"""Params files: a section for each command, and the plug-ins that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from artifacts.errors import UsageError
from artifacts.formats.plain_data import read_mapping


def load_plugins(path: Path) -> None:
    """Load what the file names under `plugins`: the operator named the file."""
    plugins_in(read_mapping(path), path)


def plugins_in(values: dict[str, Any], path: Path) -> list[str]:
    """Load the plug-ins of a params file or recipe, paths from its folder; returns them as artifacts state them."""
    from stages.plugins import load, require

    named = values.get("plugins") or []
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise UsageError(f"{path}: plugins must be a list of files or names, found {named!r}.")
    found = []
    for name in named:
        if " sha256:" in name:
            require(name)
            found.append(name)
        else:
            found.append(str(load(name, path.parent).record))
    return found


def read_section(path: Path, command: str) -> dict[str, Any]:
    """The section named after the command; an absent one says nothing."""
    section = read_mapping(path).get(command, {})
    if not isinstance(section, dict):
        raise UsageError(f"{path}: the section {command!r} must be a mapping of names to values.")
    return section
