"""Recipes: whole pipelines as data. A recipe names the parameters of each stage; presets change some of them.

`extends: RECIPE` begins with another recipe's values; `layers` says what goes over what. A value that begins with `=`
is computed from others (`expressions`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from artifacts.errors import UsageError
from artifacts.formats.plain_data import dump_yaml, parse_yaml
from stages.catalogue import DECLARED
from stages.hyperparameters import suggested
from stages.plugins import require
from stages.recipes.expressions import evaluated, is_expression
from stages.recipes.layers import RecipeLayer, has_sizes, layers, preset_for, presets_of, recipe_path
from stages.recipes.params_file import plugins_in

STAGES = (*DECLARED, "evaluate", "plateau")
Synthetic = Literal["none", "own", "shuffled", "pooled"]
SETTABLE = ("rounds", "participation", "synthetic", "switch1", "switch2", "secure", "receipts")
# What a recipe says of how many runs it compares; one run has one seed.
_SEEDS = re.compile(r",? (?:over )?\w+ seeds(?=[.,;: (]|$)")
_TOP = ("about", *SETTABLE, "sweep", "target", "matrix", "plugins", "networks")
_GIVEN = 1_000_000  # the rank of what the command line says


class Origin(NamedTuple):
    """Where a value of a recipe is from; one of a higher rank goes over one of a lower."""

    rank: int
    source: str


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

    `sweep` maps targets of `--set` (and `seed`) to lists of values, a run for each point of their product; null takes
    an inherited axis back. `target` is the accuracy that the comparison of these runs counts rounds to; `matrix` lays
    them out as a table (`table`).

    `origins` says where each value is from, by its name in `--set`, and `left_out` which inherited ones have no effect
    beside the others, and why. `by_size` is the preset that was taken because of the images' size.

    `networks` are those with which it was measured to beat FedAvg; a run with another one warns before it starts.

    `plugins` are what the recipe needs beside fedsynth, by name and digest; in a file, paths or names of distributions.
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
    matrix: Mapping[str, Any] = field(default_factory=dict)
    plugins: Sequence[str] = ()
    networks: Sequence[str] = ()
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False)
    left_out: tuple[str, ...] = field(default=(), compare=False)
    by_size: str | None = field(default=None, compare=False)
    # A plan asks for the same sections in each step of each client and round.
    _sections: dict[str, dict[str, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

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
        if not isinstance(self.matrix, Mapping):
            raise self._error(f"matrix must map rows, columns and against to axes of the sweep, found {self.matrix!r}")
        if not isinstance(self.sweep, Mapping):
            raise self._error(f"sweep must map targets to lists of values, found {self.sweep!r}")
        axes = {target: values for target, values in self.sweep.items() if values is not None}
        object.__setattr__(self, "sweep", dict(self._axis(*axis) for axis in axes.items()))
        if isinstance(self.networks, str) or not all(isinstance(name, str) for name in self.networks):
            raise self._error(f"networks must be a list of names, found {self.networks!r}")
        for record in self.plugins:
            require(record)
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
        """The stage's parameters, expressions computed."""
        if command not in self._sections:
            said = self.stages.get(command, {})
            self._sections[command] = {key: self._computed(f"{command}.{key}", v, ()) for key, v in said.items()}
        return dict(self._sections[command])

    def _computed(self, target: str, value: Any, within: tuple[str, ...]) -> Any:
        if not is_expression(value):
            return value
        if target in within:
            raise self._error(f"{target}: {' → '.join(within)} → {target} goes round in a circle")
        try:
            return evaluated(value, lambda name: self._computed(name, self._said(name), (*within, target)))
        except ValueError as error:
            raise self._error(f"{target}: {value}: {error}") from error

    def _said(self, target: str) -> Any:
        """What the recipe says of a target, as it says it."""
        stage, dot, key = target.rpartition(".")
        if dot and stage in STAGES:
            return self.stages.get(stage, {}).get(key)
        if not dot and key in SETTABLE:
            return getattr(self, key)
        raise ValueError(f"there is no parameter {target!r}")

    def to_yaml(self) -> str:
        """What one run is made by; sweep and target belong to the comparison of several."""
        values = {key: getattr(self, key) for key in ("name", "about", *SETTABLE)}
        values["about"] = _SEEDS.sub("", self.about)
        values = {key: value for key, value in values.items() if value is not None and value is not False}
        if self.plugins:
            values["plugins"] = list(self.plugins)
        return dump_yaml(values | {k: self.section(k) for k in self.stages}, allow_unicode=True)


def presets(name: str) -> list[str]:
    return presets_of(recipe_path(name))


def load_recipe(name: str, preset: str | None = None, settings: Sequence[str] = ()) -> Recipe:
    """A recipe by its name, or from a YAML or TOML file.

    Without a preset, one of those for sizes (`28x28`) is taken if the images are as large: those of the recipe's own
    source, or of the source that `settings`, what `--set` says, put in its place.
    """
    path = recipe_path(name)
    by_size = None
    if preset is None and settings and has_sizes(path):
        preset = by_size = _by_size(path, change(load_recipe(name), settings, None))
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for rank, layer in enumerate(layers(path, preset)):
        _put_over(values, origins, layer, rank)
    values["plugins"] = tuple(plugins_in(values, path))
    return without_idle(replace(recipe_of(values, path), origins=origins, by_size=by_size))


def _by_size(path: Path, recipe: Recipe) -> str | None:
    from stages.data.sources import first_shape  # which reads an image

    shape = first_shape(recipe.section("partition"))
    return None if shape is None else preset_for(path, min(shape[1:]))


def _put_over(values: dict[str, Any], origins: dict[str, Origin], layer: RecipeLayer, rank: int) -> None:
    """The layer's values over those below, a section key by key."""
    for key, value in layer.values.items():
        if key in STAGES and isinstance(value, Mapping):
            section = values.get(key)
            section = dict(section) if isinstance(section, Mapping) else {}
            for name, parameter in value.items():
                spelt = str(name).replace("-", "_")
                section[spelt] = parameter
                origins[f"{key}.{spelt}"] = Origin(rank, layer.source)
            values[key] = section
        else:
            below = values.get(key)
            both = isinstance(value, Mapping) and isinstance(below, Mapping)
            values[key] = dict(below or {}) | dict(value) if both else value
            origins[key] = Origin(rank, layer.source)


def recipe_of(values: Mapping[str, Any], path: Path) -> Recipe:
    """A recipe from what was read in a file; without a name of its own it is called like the file."""
    values = dict(values)
    name = values.pop("name", path.stem)
    unknown = sorted(values.keys() - {*_TOP, *STAGES})
    if unknown:
        known = [*_TOP, *STAGES, "extends", "presets", "always"]
        hint = suggested(str(unknown[0]), known)
        raise UsageError(f"recipe {path}: unknown key {unknown[0]!r}.{hint} Known: {', '.join(known)}.")
    stages = {command: values[command] or {} for command in STAGES if command in values}
    if "rounds" not in values:
        raise UsageError(f"recipe {path}: rounds is missing.")
    return Recipe(name=str(name), stages=stages, **{key: values[key] for key in _TOP if key in values})


def canonical(target: str) -> str:
    """A target of `--set` as recipes spell it; `ValueError` where there is no such thing."""
    stage, dot, key = target.rpartition(".")
    if not dot and key in SETTABLE:
        return key
    if stage in STAGES and key:
        return f"{stage}.{key.replace('-', '_')}"
    hint = suggested(stage, STAGES) if dot else suggested(key, SETTABLE)
    raise ValueError(
        f"write stage.key=value.{hint} The stage is one of {', '.join(STAGES)}; {', '.join(SETTABLE)} have none"
    )


def assigned(recipe: Recipe, values: Mapping[str, Any], source: str = "--set") -> Recipe:
    """The recipe with other values for some targets, which `canonical` has spelt."""
    stages = {command: dict(section) for command, section in recipe.stages.items()}
    top: dict[str, Any] = {}
    for target, value in values.items():
        stage, dot, key = target.rpartition(".")
        if dot:
            stages.setdefault(stage, {})[key] = value
        else:
            top[key] = value
    origins = {**recipe.origins, **{target: Origin(_GIVEN, source) for target in values}}
    return without_idle(replace(recipe, stages=stages, origins=origins, **top))


def without_idle(recipe: Recipe) -> Recipe:
    """Without inherited parameters that have no effect since something above them chose another family or scheme."""
    from stages.recipes.inherited import idle  # which reads all declarations

    left_out = idle(recipe.stages, recipe.origins)
    if not left_out:
        return recipe
    stages = {
        command: {key: value for key, value in section.items() if f"{command}.{key}" not in left_out}
        for command, section in recipe.stages.items()
    }
    origins = {target: origin for target, origin in recipe.origins.items() if target not in left_out}
    said = tuple(f"{t} (from {recipe.origins[t].source}) is left out: {why}" for t, why in left_out.items())
    return replace(recipe, stages=stages, origins=origins, left_out=recipe.left_out + said)


def change(recipe: Recipe, settings: Sequence[str], rounds: int | None) -> Recipe:
    """Apply `--set stage.key=value` (values as in YAML) and `--rounds`. What is set is not swept over any more."""
    values: dict[str, Any] = {}
    for setting in settings:
        target, _, text = setting.partition("=")
        try:
            values[canonical(target if "=" in setting else "")] = parse_yaml(text)
        except ValueError as error:
            raise UsageError(f"--set {setting}: {' '.join(str(error).split())}.") from error
    if rounds is not None:
        values["rounds"] = rounds
    left = {target: swept for target, swept in recipe.sweep.items() if target not in values}
    return assigned(replace(recipe, sweep=left), values)
