"""Reading parameters from YAML or TOML. Plain data only: loading never constructs an object or runs anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from artifacts import limits
from artifacts.errors import InputError, UsageError
from artifacts.formats.plain_data import parse_toml, parse_yaml


def read_mapping(path: Path) -> dict[str, Any]:
    """The file's one mapping, by its suffix: .toml, else YAML."""
    try:
        text = limits.read_bytes(path, limits.TEXT).decode()
        loaded = parse_toml(text) if path.suffix == ".toml" else parse_yaml(text)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. Check the path.") from error
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} does not parse: {reason}.") from error
    if not isinstance(loaded, dict):
        raise InputError(f"{path} must hold a mapping of names to values.")
    return loaded


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
