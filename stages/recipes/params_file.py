"""Reading parameters from YAML or TOML. Plain data only: loading never constructs an object or runs anything."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml

from artifacts.errors import InputError, UsageError


def read_mapping(path: Path) -> dict[str, Any]:
    """The file's one mapping, by its suffix: .toml, else YAML."""
    try:
        text = path.read_text()
        loaded = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. Check the path.") from error
    except RecursionError:
        raise InputError(f"{path} is nested too deeply.") from None
    except (yaml.YAMLError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} does not parse: {reason}.") from error
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
        raise InputError(f"{path} must hold a mapping of names to values.")
    return loaded


def read_section(path: Path, command: str) -> dict[str, Any]:
    """The section named after the command; an absent one says nothing."""
    section = read_mapping(path).get(command, {})
    if not isinstance(section, dict):
        raise UsageError(f"{path}: the section {command!r} must be a mapping of names to values.")
    return section
