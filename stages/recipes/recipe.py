"""Recipes: whole pipelines as data. A recipe names the parameters of each stage; presets change some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from artifacts.errors import UsageError
from stages.recipes.params_file import read_mapping

_FOLDER = Path(__file__).parent
STAGES = (
    "partition", "train-generator", "synthesize", "init-model", "train-client", "encode", "aggregate", "evaluate",
)  # fmt: skip
Synthetic = Literal["none", "own", "shuffled"]
_TOP = {"about", "rounds", "participation", "synthetic"}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """`participation` is the share of the clients that take part in a round, the paper's C.

    `synthetic` says which synthetic data a client trains on beside its own: none, what its own generator made, or its
    part of what all clients' generators made, shuffled by the server (Fedssyn).
    """

    name: str
    rounds: int
    participation: float = 1.0
    about: str = ""
    synthetic: Synthetic = "none"
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, int) or isinstance(self.rounds, bool) or self.rounds < 1:
            raise UsageError(f"recipe {self.name}: rounds must be a whole number of at least 1, found {self.rounds!r}.")
        if not isinstance(self.participation, int | float) or not 0 < self.participation <= 1:
            raise UsageError(
                f"recipe {self.name}: participation must be above 0 and at most 1, found {self.participation!r}."
            )
        if self.synthetic not in get_args(Synthetic):
            known = ", ".join(get_args(Synthetic))
            raise UsageError(f"recipe {self.name}: synthetic must be one of {known}; found {self.synthetic!r}.")

    def section(self, command: str) -> dict[str, Any]:
        return dict(self.stages.get(command, {}))

    def to_yaml(self) -> str:
        values = {key: getattr(self, key) for key in ("name", "about", "rounds", "participation", "synthetic")}
        return yaml.safe_dump(
            values | {k: dict(v) for k, v in self.stages.items()}, sort_keys=False, allow_unicode=True
        )


def names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load_recipe(name: str, preset: str | None = None) -> Recipe:
    """A recipe by its name, or from a YAML or TOML file."""
    path = _FOLDER / f"{name}.yaml"
    if name not in names():
        path = Path(name)
        if path.suffix not in (".yaml", ".yml", ".toml"):
            raise UsageError(f"no recipe {name!r}. Known: {', '.join(names())}; or give a .yaml or .toml file.")
    values = read_mapping(path)
    presets = values.pop("presets", {})
    values.pop("name", None)
    if preset is not None:
        if preset not in presets:
            raise UsageError(f"recipe {path.stem} has no preset {preset!r}. Known: {', '.join(presets) or 'none'}.")
        values = _merged(values, presets[preset])
    unknown = sorted(values.keys() - _TOP - set(STAGES))
    if unknown:
        raise UsageError(f"recipe {path}: unknown key {unknown[0]!r}. Known: {', '.join([*sorted(_TOP), *STAGES])}.")
    stages = {command: values[command] or {} for command in STAGES if command in values}
    return Recipe(name=path.stem, stages=stages, **{key: values[key] for key in _TOP if key in values})


def change(recipe: Recipe, settings: Sequence[str], rounds: int | None) -> Recipe:
    """Apply `--set stage.key=value` (values as in YAML) and `--rounds`."""
    stages = {command: dict(section) for command, section in recipe.stages.items()}
    top: dict[str, Any] = {}
    for setting in settings:
        target, equals, text = setting.partition("=")
        stage, dot, key = target.rpartition(".")
        value = yaml.safe_load(text) if equals else None
        if equals and not dot and key in ("participation", "rounds", "synthetic"):
            top[key] = value
        elif equals and stage in STAGES and key:
            stages.setdefault(stage, {}).pop(key.replace("_", "-"), None)
            stages[stage][key.replace("-", "_")] = value
        else:
            raise UsageError(f"--set {setting}: write stage.key=value, the stage one of {', '.join(STAGES)}.")
    if rounds is not None:
        top["rounds"] = rounds
    return replace(recipe, stages=stages, **top)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = {**result[key], **value} if nested else value
    return result
