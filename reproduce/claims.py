"""What the papers claim, as data: one file a paper in `claims/`, one entry a table or figure.

    name: Fedssyn
    paper: Li et al., Synthetic data shuffling … (2023)
    entries:
      - id: table-1
        where: Table 1
        claim: what the paper says, in a sentence
        setting: what is smaller here
        runs:
          digits: {recipe: fedssyn-algorithms, rounds: 20, target: 0.9, set: {partition.clients: 5}}
          cost: {command: [account, plan, --steps, 20000]}
        show: {digits: [rounds_to_target, accuracy]}
        checks:
          - {run: digits, metric: accuracy, more: synthetic=shuffled, than: synthetic=none}
          - {run: cost, metric: epsilon.pld, from: 9.9, to: 10.1}
          - {run: cost, metric: epsilon.pld, below: epsilon.rdp}
        full: [fedsynth run fedssyn-algorithms --preset paper --set partition.root=DATA -o runs/table-1]

A run of a recipe is a sweep; over seeds 0, 1 and 2 where nothing else is said. `DATA` in a value is the folder with the
datasets. A command may hold `{run:NAME}`, the folder of a run above it, and `{out}`, a folder of its own; a list
`seeds` has it run once for each, with `{seed}`; `rows` names the list of figures in its JSON, each with a `group`. A
command that begins with `python` is a script of this repository.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
SEEDS = (0, 1, 2)
_PAPER_KEYS = {"name", "paper", "entries"}
_ENTRY_KEYS = {"id", "where", "claim", "setting", "runs", "show", "checks", "full", "note"}
_RECIPE_KEYS = {"recipe", "preset", "set", "sweep", "rounds", "target"}
_COMMAND_KEYS = {"command", "seeds", "rows"}
_CHECK_KEYS = {"what", "run", "metric", "more", "less", "than", "than_run", "by", "of", "from", "to", "below"}


@dataclass(frozen=True)
class Task:
    """One thing to run: a recipe with a sweep, or a command whose JSON holds figures."""

    name: str
    values: Mapping[str, Any]

    @property
    def is_recipe(self) -> bool:
        return "recipe" in self.values

    @property
    def settings(self) -> list[str]:
        return [f"{key}={_yaml(value)}" for key, value in self.values.get("set", {}).items()]

    @property
    def sweeps(self) -> list[str]:
        sweep = {"seed": list(SEEDS)} | dict(self.values.get("sweep", {}))
        return [f"{key}={','.join(_yaml(v) for v in values)}" for key, values in sweep.items()]

    def words(self) -> list[str]:
        """The command line without its output folder, as it is printed and as it is run."""
        if not self.is_recipe:
            return [str(word) for word in self.values["command"]]
        words = ["run", str(self.values["recipe"])]
        for key in ("preset", "rounds", "target"):
            if key in self.values:
                words += [f"--{key}", str(self.values[key])]
        for setting in self.settings:
            words += ["--set", setting]
        for sweep in self.sweeps:
            words += ["--sweep", sweep]
        return words

    def command(self) -> str:
        words = self.words()
        seeds = self.values.get("seeds")
        each = f"   # seeds {', '.join(map(str, seeds))}" if seeds else ""
        program = [] if words[0] == "python" else ["fedsynth"]
        return shlex.join([*program, *words]) + each

    def needs_data(self) -> bool:
        return any("DATA" in word for word in self.words())


@dataclass(frozen=True)
class Entry:
    """A table or figure of a paper."""

    id: str
    where: str
    claim: str
    setting: str = ""
    note: str = ""
    runs: Mapping[str, Task] = field(default_factory=dict)
    show: Mapping[str, Sequence[str]] = field(default_factory=dict)
    checks: Sequence[Mapping[str, Any]] = ()
    full: Sequence[str] = ()

    def metrics(self, run: str) -> list[str]:
        """What is kept of a run: what is shown and what is checked."""
        mine = [check for check in self.checks if run in (check["run"], check.get("than_run"))]
        checked = [check[key] for check in mine for key in ("metric", "below") if key in check]
        return list(dict.fromkeys([*self.show.get(run, ()), *checked]))


@dataclass(frozen=True)
class Paper:
    key: str
    name: str
    paper: str
    entries: Sequence[Entry]


def papers(folder: Path = FOLDER / "claims") -> list[Paper]:
    return [read(path) for path in sorted(folder.glob("*.yaml"))]


def read(path: Path) -> Paper:
    values = yaml.safe_load(path.read_text())
    _known(values, _PAPER_KEYS, path.name)
    entries = [_entry(value, path.name) for value in values["entries"]]
    twice = {entry.id for entry in entries if sum(other.id == entry.id for other in entries) > 1}
    if twice:
        raise ValueError(f"{path.name}: two entries are called {sorted(twice)[0]}")
    return Paper(path.stem, values["name"], values["paper"], entries)


def _entry(values: Mapping[str, Any], file: str) -> Entry:
    place = f"{file}, {values.get('id', 'an entry')}"
    _known(values, _ENTRY_KEYS, place)
    runs = {name: Task(name, task) for name, task in values.get("runs", {}).items()}
    for name, task in runs.items():
        _known(task.values, _RECIPE_KEYS if task.is_recipe else _COMMAND_KEYS, f"{place}, {name}")
    checks = values.get("checks", [])
    for check in checks:
        _known(check, _CHECK_KEYS, place)
        for run in (check["run"], check.get("than_run", check["run"])):
            if run not in runs:
                raise ValueError(f"{place}: a check is about {run!r}, which is not among its runs")
    strangers = values.get("show", {}).keys() - runs.keys()
    if strangers:
        raise ValueError(f"{place}: it shows {sorted(strangers)[0]!r}, which is not among its runs")
    return Entry(**{**values, "runs": runs, "checks": checks})


def _known(values: Mapping[str, Any], keys: set[str], place: str) -> None:
    unknown = sorted(values.keys() - keys)
    if unknown:
        raise ValueError(f"{place}: unknown key {unknown[0]!r}; known are {', '.join(sorted(keys))}")


def _yaml(value: Any) -> str:
    """A value as `--set` and `--sweep` read it."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
