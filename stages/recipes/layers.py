"""What a recipe is made of: its own values, those of the recipe that it extends, presets, in the order that counts.

From the bottom to the top: the values of the recipe that is extended, the recipe's own; then the preset of the former,
what the latter says under `always`, and its own preset. So a preset of the parent goes over the child's defaults, which
were chosen for another dataset, but not over what makes the child what it is. A preset that both have is taken from the
child alone, unless it says itself what it extends. `extends: RECIPE/PRESET` beneath a whole recipe is where that recipe
begins: all its own values go over it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.errors import UsageError
from artifacts.formats.plain_data import read_mapping
from stages.hyperparameters import suggested

_FOLDER = Path(__file__).parent
_FILES = (".yaml", ".yml", ".toml")
_SIZE = re.compile(r"(\d{1,4})x\1", re.ASCII)


@dataclass(frozen=True)
class RecipeLayer:
    """Values from one place. `source` names it: a recipe, `RECIPE/PRESET`, or an option of the command line."""

    source: str
    values: Mapping[str, Any]


def names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def recipe_path(name: str, beside: Path = Path()) -> Path:
    """A recipe of ours by its name; else a file, found from the folder of the recipe that names it."""
    if name in names():
        return _FOLDER / f"{name}.yaml"
    if Path(name).suffix not in _FILES:
        known = suggested(name, names()) or " Give the name of one, or a .yaml or .toml file."
        raise UsageError(f"no recipe {name!r}.{known} `fedsynth recipe list` lists them all.")
    return beside / name


def layers(path: Path, preset: str | None) -> list[RecipeLayer]:
    """All of a recipe's layers, the one that goes over all others last."""
    below, above = _layers(path, preset, ())
    return below + above


def _layers(path: Path, preset: str | None, seen: tuple[Path, ...]) -> tuple[list[RecipeLayer], list[RecipeLayer]]:
    """The recipe's own layers and those that it extends; and what goes over them: presets and `always`."""
    if _real(path) in seen:
        raise UsageError(f"recipe {path} extends itself, by way of {', '.join(p.name for p in seen)}.")
    values = read_mapping(path)
    own_presets = _own_presets(path, values)
    always = values.pop("always", {})
    if not isinstance(always, dict):
        raise UsageError(f"recipe {path}: always must map names to values, found {always!r}.")
    for name in ("presets", "name"):
        values.pop(name, None)
    chosen = dict(own_presets.get(preset or "", {}))
    begins_with, goes_on_with = values.pop("extends", None), chosen.pop("extends", None)
    extends = begins_with if goes_on_with is None else goes_on_with
    below: list[RecipeLayer] = []
    above: list[RecipeLayer] = []
    is_parents = False
    if extends is not None:
        if not isinstance(extends, str):
            raise UsageError(f"recipe {path}: extends must name a recipe, found {extends!r}.")
        base, base_preset = _base(extends)
        beneath = recipe_path(base, path.parent)
        is_foundation = base_preset is not None and goes_on_with is None
        is_parents = preset is not None and preset not in own_presets and not is_foundation and not _is_size(preset)
        if is_parents and preset in _presets(beneath):
            base_preset = preset
        else:
            is_parents = False
        below, above = _layers(beneath, base_preset, (*seen, _real(path)))
        if is_foundation:
            below, above = below + above, []
    if preset is not None and preset not in own_presets and not is_parents:
        known = presets_of(path)
        raise UsageError(
            f"recipe {path.stem} has no preset {preset!r}.{suggested(preset, known)} "
            f"Known: {', '.join(known) or 'none'}."
        )
    below = [*below, RecipeLayer(path.stem, values)]
    above = [*above, RecipeLayer(path.stem, always)] if always else above
    return below, [*above, RecipeLayer(f"{path.stem}/{preset}", chosen)] if preset in own_presets else above


def presets_of(path: Path) -> list[str]:
    return _presets(path)


def preset_for(path: Path, side: int) -> str | None:
    """The recipe's own preset for images of this size: of those that are called 28x28 and the like, the largest."""
    own = _own_presets(path, read_mapping(path))
    sides = {name: int(found[1]) for name in own if (found := _SIZE.fullmatch(str(name)))}
    return max((name for name in sides if sides[name] <= side), key=sides.__getitem__, default=None)


def _is_size(name: object) -> bool:
    return _SIZE.fullmatch(str(name)) is not None


def has_sizes(path: Path) -> bool:
    return any(_is_size(name) for name in _own_presets(path, read_mapping(path)))


def _presets(path: Path, seen: tuple[Path, ...] = ()) -> list[str]:
    """Its own presets, then those of the recipe that it extends, but for sizes: they are tuned for one method."""
    values = read_mapping(path)
    own = list(_own_presets(path, values))
    extends = values.get("extends")
    if not isinstance(extends, str) or _real(path) in seen or _base(extends)[1] is not None:
        return own
    below = _presets(recipe_path(_base(extends)[0], path.parent), (*seen, _real(path)))
    return own + [name for name in below if name not in own and not _is_size(name)]


def _real(path: Path) -> Path:
    """Where links lead round in a circle `Path.resolve` raises, and reading gives a message."""
    return Path(os.path.realpath(path))


def _own_presets(path: Path, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = values.get("presets", {})
    if not isinstance(found, dict) or not all(isinstance(preset, dict) for preset in found.values()):
        raise UsageError(f"recipe {path}: presets must map names to values by name, found {found!r}.")
    return found


def _base(extends: str) -> tuple[str, str | None]:
    """RECIPE or RECIPE/PRESET, as after `--preset`; a path to a file is left whole."""
    name, _, preset = extends.partition("/")
    return (extends, None) if Path(extends).suffix in _FILES else (name, preset or None)
