"""Recipes: whole pipelines as data. A recipe names the parameters of each stage; presets change some of them.

`extends: RECIPE` (or `RECIPE/PRESET`) begins with another recipe's values; what is said here goes over them, a section
key by key. A preset that only the other recipe has is taken there, so that `dp-fedsam` has `dp-fedavg`'s `paper`; one
that both have may say itself what it extends, as `feddm-images` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from artifacts.errors import UsageError
from stages.recipes.params_file import read_mapping

_FOLDER = Path(__file__).parent
_FILES = (".yaml", ".yml", ".toml")
STAGES = (
    "partition", "train-generator", "synthesize", "init-model", "train-client", "encode", "secagg", "aggregate",
    "evaluate", "plateau",
)  # fmt: skip
Synthetic = Literal["none", "own", "shuffled", "pooled"]
_SETTABLE = ("rounds", "participation", "synthetic", "switch1", "switch2", "secure", "receipts")
_TOP = ("about", *_SETTABLE, "sweep", "target")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """`participation` is the share of the clients that take part in a round, the paper's C.

    `synthetic` says which synthetic data a client trains on beside its own: none, what its own generator made, or its
    part of what all clients' generators made, shuffled by the server (Fedssyn). With `pooled` no client trains: one
    central party does, on all the synthetic data and nothing else.

    `switch1` and `switch2` are TOFU's rounds of change: from the first on, updates are shortened by their cosine; from
    the second on, full updates are exchanged. `plateau` in place of a round: where the public accuracy stops rising, by
    the rule in the section `plateau`.

    With `secure` the server learns the sum of a round's updates alone, by secure aggregation; the section `secagg` says
    how numbers are written and how many clients must stay. With `receipts` the server countersigns the head of each
    client's ledger, every round, so that it cannot be rewritten later.

    `sweep` maps targets of `--set` (and `seed`) to lists of values, a run for each point of their product; `target` is
    the accuracy that the comparison of these runs counts rounds to.
    """

    name: str
    rounds: int
    participation: float = 1.0
    about: str = ""
    synthetic: Synthetic = "none"
    switch1: int | Literal["plateau"] | None = None
    switch2: int | Literal["plateau"] | None = None
    secure: bool = False
    receipts: bool = False
    sweep: Mapping[str, Any] = field(default_factory=dict)
    target: float | None = None
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, int) or isinstance(self.rounds, bool) or self.rounds < 1:
            raise self._error(f"rounds must be a whole number of at least 1, found {self.rounds!r}")
        if not isinstance(self.participation, int | float) or not 0 < self.participation <= 1:
            raise self._error(f"participation must be above 0 and at most 1, found {self.participation!r}")
        if self.synthetic not in get_args(Synthetic):
            raise self._error(f"synthetic must be one of {', '.join(get_args(Synthetic))}; found {self.synthetic!r}")
        for name in ("switch1", "switch2"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if value is not None and value != "plateau" and not whole:
                raise self._error(f"{name} must be a round, from 1 on, or plateau; found {value!r}")
        for name in ("secure", "receipts"):
            if not isinstance(getattr(self, name), bool):
                raise self._error(f"{name} must be true or false, found {getattr(self, name)!r}")
        if self.target is not None and not (isinstance(self.target, int | float) and 0 < self.target <= 1):
            raise self._error(f"target must be an accuracy above 0 and at most 1, found {self.target!r}")
        if not isinstance(self.sweep, Mapping):
            raise self._error(f"sweep must map targets to lists of values, found {self.sweep!r}")
        object.__setattr__(self, "sweep", dict(self._axis(*axis) for axis in self.sweep.items()))
        for command, section in self.stages.items():
            if not isinstance(section, Mapping):
                raise self._error(f"{command} must be a mapping of names to values, found {section!r}")

    def _axis(self, target: Any, values: Any) -> tuple[str, list[Any]]:
        """A target of the sweep, spelt as `--set` spells it, with its values."""
        try:
            spelt = target if target == "seed" else canonical(str(target))
        except ValueError as error:
            raise self._error(f"sweep over {target!r}: {error}; or seed") from error
        if not isinstance(values, list) or not values:
            raise self._error(f"sweep over {target}: give a list of one value or more, found {values!r}")
        return spelt, values

    def _error(self, what: str) -> UsageError:
        return UsageError(f"recipe {self.name}: {what}.")

    def section(self, command: str) -> dict[str, Any]:
        return dict(self.stages.get(command, {}))

    def to_yaml(self) -> str:
        """What one run is made by; sweep and target belong to the comparison of several."""
        values = {key: getattr(self, key) for key in ("name", "about", *_SETTABLE)}
        values = {key: value for key, value in values.items() if value is not None and value is not False}
        return yaml.safe_dump(
            values | {k: dict(v) for k, v in self.stages.items()}, sort_keys=False, allow_unicode=True
        )


def names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def presets(name: str) -> list[str]:
    return _presets(_path(name))


def load_recipe(name: str, preset: str | None = None) -> Recipe:
    """A recipe by its name, or from a YAML or TOML file."""
    path = _path(name)
    return recipe_of(_values(path, preset, ()), path)


def recipe_of(values: Mapping[str, Any], path: Path) -> Recipe:
    """A recipe from what was read in a file; without a name of its own it is called like the file."""
    values = dict(values)
    name = values.pop("name", path.stem)
    unknown = sorted(values.keys() - {*_TOP, *STAGES})
    if unknown:
        raise UsageError(f"recipe {path}: unknown key {unknown[0]!r}. Known: {', '.join([*_TOP, *STAGES])}.")
    stages = {command: values[command] or {} for command in STAGES if command in values}
    if "rounds" not in values:
        raise UsageError(f"recipe {path}: rounds is missing.")
    return Recipe(name=str(name), stages=stages, **{key: values[key] for key in _TOP if key in values})


def canonical(target: str) -> str:
    """A target of `--set` as recipes spell it; `ValueError` where there is no such thing."""
    stage, dot, key = target.rpartition(".")
    if not dot and key in _SETTABLE:
        return key
    if stage in STAGES and key:
        return f"{stage}.{key.replace('-', '_')}"
    raise ValueError(
        f"write stage.key=value, the stage one of {', '.join(STAGES)}; or one of {', '.join(_SETTABLE)} without a stage"
    )


def assigned(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with other values for some targets, which `canonical` has spelt."""
    stages = {command: dict(section) for command, section in recipe.stages.items()}
    top: dict[str, Any] = {}
    for target, value in values.items():
        stage, dot, key = target.rpartition(".")
        if dot:
            stages.setdefault(stage, {}).pop(key.replace("_", "-"), None)
            stages[stage][key] = value
        else:
            top[key] = value
    return replace(recipe, stages=stages, **top)


def change(recipe: Recipe, settings: Sequence[str], rounds: int | None) -> Recipe:
    """Apply `--set stage.key=value` (values as in YAML) and `--rounds`. What is set is not swept over any more."""
    values: dict[str, Any] = {}
    for setting in settings:
        target, _, text = setting.partition("=")
        try:
            values[canonical(target if "=" in setting else "")] = yaml.safe_load(text)
        except (ValueError, yaml.YAMLError) as error:
            raise UsageError(f"--set {setting}: {' '.join(str(error).split())}.") from error
    if rounds is not None:
        values["rounds"] = rounds
    left = {target: swept for target, swept in recipe.sweep.items() if target not in values}
    return assigned(replace(recipe, sweep=left), values)


def _path(name: str, beside: Path = Path()) -> Path:
    """A recipe of ours by its name; else a file, found from the folder of the recipe that names it."""
    if name in names():
        return _FOLDER / f"{name}.yaml"
    if Path(name).suffix not in _FILES:
        raise UsageError(f"no recipe {name!r}. Known: {', '.join(names())}; or give a .yaml or .toml file.")
    return beside / name


def _values(path: Path, preset: str | None, seen: tuple[Path, ...]) -> dict[str, Any]:
    """The recipe's own values over those that it extends, and the preset over both."""
    if path.resolve() in seen:
        raise UsageError(f"recipe {path} extends itself, by way of {', '.join(p.name for p in seen)}.")
    values = read_mapping(path)
    own_presets = values.pop("presets", {})
    values.pop("name", None)
    chosen = dict(own_presets.get(preset, {}))
    extends = chosen.pop("extends", values.pop("extends", None))
    if extends is not None:
        if not isinstance(extends, str):
            raise UsageError(f"recipe {path}: extends must name a recipe, found {extends!r}.")
        base, base_preset = _base(extends)
        beneath = _path(base, path.parent)
        if preset is not None and preset not in own_presets and base_preset is None and preset in _presets(beneath):
            base_preset, preset = preset, None
        values = _merged(_values(beneath, base_preset, (*seen, path.resolve())), values)
    if preset is not None:
        if preset not in own_presets:
            raise UsageError(
                f"recipe {path.stem} has no preset {preset!r}. Known: {', '.join(_presets(path)) or 'none'}."
            )
        values = _merged(values, chosen)
    return values


def _presets(path: Path, seen: tuple[Path, ...] = ()) -> list[str]:
    """Its own presets, then those of the recipe that it extends."""
    values = read_mapping(path)
    own = list(values.get("presets", {}))
    extends = values.get("extends")
    if not isinstance(extends, str) or path.resolve() in seen or _base(extends)[1] is not None:
        return own
    below = _presets(_path(_base(extends)[0], path.parent), (*seen, path.resolve()))
    return own + [name for name in below if name not in own]


def _base(extends: str) -> tuple[str, str | None]:
    """RECIPE or RECIPE/PRESET, as after `--preset`; a path to a file is left whole."""
    name, _, preset = extends.partition("/")
    return (extends, None) if Path(extends).suffix in _FILES else (name, preset or None)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = {**result[key], **value} if nested else value
    return result
