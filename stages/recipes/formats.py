"""The same pipeline for the tool that you already use: a shell script, a Makefile, or DVC's files.

Clients of one round share one `fedsynth batch`: importing torch takes longer than a small round of training.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import yaml

from stages.recipes.files import CURVE
from stages.recipes.plan import partition_step, plan, planned_clients
from stages.recipes.recipe import Recipe
from stages.recipes.step import Step

Group = list[Step]


def shell(recipe: Recipe, *, seed: int, workers: int, out: str) -> str:
    """A POSIX shell script; its one argument is the run folder."""
    lines = [
        "#!/bin/sh",
        *_about(recipe),
        "set -eu",
        f'RUN="${{1:-{out}}}"',
        f'WORKERS="${{WORKERS:-{workers}}}"',
        "",
    ]
    for group in _groups(recipe, seed):
        if len(group) == 1:
            lines.append(f"fedsynth {_line(group[0], '$RUN')}")
        else:
            lines.append('fedsynth batch --quiet --workers "$WORKERS" <<EOF')
            lines += [*_chains(group, "$RUN"), "EOF"]
    return "\n".join(lines) + "\n"


def makefile(recipe: Recipe, *, seed: int, workers: int, out: str) -> str:
    """A Makefile for GNU make 4.3 or newer (grouped targets)."""
    last = f"$(RUN)/{_groups(recipe, seed)[-1][-1].out}"
    lines = [*_about(recipe), f"RUN ?= {out}", f"WORKERS ?= {workers}", "FEDSYNTH ?= fedsynth", ""]
    lines += [f"all: {last}", ".PHONY: all", ""]
    for group in _groups(recipe, seed):
        outputs = " ".join(f"$(RUN)/{name}" for step in group for name in step.outputs)
        inputs = " ".join(f"$(RUN)/{name}" for name in _read_by(group))
        lines.append(f"{outputs} &: {inputs}".rstrip())
        if len(group) == 1:
            lines.append(f"\t$(FEDSYNTH) {_line(group[0], '$(RUN)')}")
        else:
            chains = " \\\n\t  ".join(f"'{chain}'" for chain in _chains(group, "$(RUN)"))
            lines.append(f"\t@printf '%s\\n' \\\n\t  {chains} \\\n\t  | $(FEDSYNTH) batch --quiet --workers $(WORKERS)")
        lines.append("")
    return "\n".join(lines)


def dvc(recipe: Recipe, *, seed: int, workers: int, out: str) -> dict[str, str]:
    """`dvc.yaml` and `params.yaml`. Evaluations are one stage: DVC lets a plot have one maker only."""
    groups = _groups(recipe, seed)
    evaluations = [step for group in groups for step in group if step.command == "evaluate"]
    stages: dict[str, Any] = {}
    for group in groups:
        if group[0].command == "evaluate":
            continue
        name = group[0].command if not group[0].round else f"round-{group[0].round:04}-{_side(group)}"
        stages[name] = _dvc_stage(group, out, workers)
    stages["evaluate"] = _dvc_stage(evaluations, out, workers)
    stages["evaluate"].pop("outs")
    stages["evaluate"]["metrics"] = [{f"{out}/{step.out}": {"cache": False}} for step in evaluations]
    pictures = [f"{out}/{name}" for step in evaluations for name in step.also_writes]
    stages["evaluate"]["plots"] = [{f"{out}/{CURVE}": {"x": "round", "y": "accuracy", "cache": False}}, *pictures]
    params = {step.command: dict(step.params) for group in groups for step in group if step.params}
    return {
        "dvc.yaml": yaml.safe_dump({"stages": stages}, sort_keys=False, width=1000),
        "params.yaml": yaml.safe_dump(params, sort_keys=False),
    }


def _groups(recipe: Recipe, seed: int) -> list[Group]:
    """Steps that one invocation handles together: all the clients of a round."""
    clients = planned_clients(recipe)
    steps = [partition_step(recipe, seed, clients), *plan(recipe, clients, seed)]
    grouped: list[Group] = []
    for _, members in groupby(steps, key=_invocation):
        grouped.append(list(members))
    return grouped


def _invocation(step: Step) -> tuple[int, str]:
    return step.round, "clients" if _is_clients(step) else step.command


def _is_clients(step: Step) -> bool:
    return step.owner not in ("server", "simulation")


def _side(group: Group) -> str:
    return "clients" if _is_clients(group[0]) else "server"


def _read_by(group: Group) -> list[str]:
    made = {name for step in group for name in step.outputs}
    read = [name for step in group if step.command != "partition" for name in (*step.inputs, *step.needs)]
    return [name for name in dict.fromkeys(read) if name not in made]


def _chains(group: Group, root: str, *, params_file: str | None = None) -> Iterator[str]:
    """One line for each owner: its commands, one after the other. Evaluations wait for nobody."""

    def line_of(step: Step) -> str:
        return step.out if step.command == "evaluate" else step.owner

    for line in dict.fromkeys(map(line_of, group)):
        mine = [step for step in group if line_of(step) == line]
        yield " && ".join(_line(step, root, params_file=params_file) for step in mine)


def _line(step: Step, root: str, *, params_file: str | None = None) -> str:
    """The command line of a step, as a person would type it."""
    words = [step.command]
    words += [name if step.command == "partition" else f"{root}/{name}" for name in step.inputs]
    if params_file is not None and step.params:
        words += ["--params", params_file]
    else:
        words += _flags(step.params)
    words += _flags({k: _placed(k, v, root) for k, v in step.options.items()})
    words += ["--force", "--quiet", "-o", _out(step, root)]
    return " ".join(_quoted(word) for word in words)


def _out(step: Step, root: str) -> str:
    folder = step.out if step.out_folder is None else step.out_folder
    return root if folder == "." else f"{root}/{folder}"


def _quoted(word: str) -> str:
    """A shell variable is left to the shell, within quotes; Make's own are left to Make."""
    if word.startswith("$RUN"):
        return f'"{word}"'
    return word if word.startswith("$(") else shlex.quote(word)


def _placed(key: str, value: Any, root: str) -> Any:
    return value if key in ("seed", "root", "download", "as", "parts", "apply") else f"{root}/{value}"


def _flags(values: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for key, value in values.items():
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            words += [flag] if value else []
        elif value is not None:
            words += [flag, str(value)]
    return words


def _dvc_stage(group: Group, out: str, workers: int) -> dict[str, Any]:
    lines = list(_chains(group, out, params_file="params.yaml"))
    command = f"fedsynth {lines[0]}"
    if len(lines) > 1 or " && " in lines[0]:
        quoted = " ".join(shlex.quote(line) for line in lines)
        command = f"printf '%s\\n' {quoted} | fedsynth batch --quiet --workers {workers}"
    outs = [f"{out}/{name}" for step in group for name in step.outputs]
    stage: dict[str, Any] = {"cmd": command}
    params = sorted({step.command for step in group if step.params})
    if params:
        stage["params"] = params
    deps = [f"{out}/{name}" for name in _read_by(group)]
    if deps:
        stage["deps"] = deps
    stage["outs"] = outs
    return stage


def _about(recipe: Recipe) -> list[str]:
    return [
        f"# {recipe.name}: {recipe.about}",
        "# Written by `fedsynth recipe`; equal to `fedsynth run`, byte for byte.",
    ]
