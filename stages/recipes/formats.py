"""The same pipeline for the tool that you already use: what all formats share, the shell script and the Makefile.

Clients of one round share one `fedsynth batch`: importing torch takes longer than a small round of training.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from stages.catalogue import COMMANDS
from stages.plugins import loaded
from stages.recipes.plan import partition_step, plan, planned_clients
from stages.recipes.recipe import Recipe
from stages.recipes.step import Step

Group = list[Step]


def flags_of(step: Step, params: Mapping[str, Any] | None = None) -> list[str]:
    """The parameters of a step, or some of them, on its command line."""
    return _flags(step.params if params is None else params, switches=True)


def shell(recipe: Recipe, *, seed: int, workers: int, out: str) -> str:
    """A POSIX shell script; its one argument is the run folder."""
    lines = [
        "#!/bin/sh",
        *header(recipe),
        "set -eu",
        f'RUN="${{1:-{out}}}"',
        f'WORKERS="${{WORKERS:-{workers}}}"',
        "",
    ]
    for group in invocations(recipe, seed):
        if len(group) == 1:
            lines.append(f"{program(recipe)} {command_line(group[0], '$RUN')}")
        else:
            lines.append(f'{program(recipe)} batch --quiet --workers "$WORKERS" <<EOF')
            lines += [*chained(group, "$RUN"), "EOF"]
    return "\n".join(lines) + "\n"


def makefile(recipe: Recipe, *, seed: int, workers: int, out: str) -> str:
    """A Makefile for GNU make 4.3 or newer (grouped targets).

    Make compares times of files alone: to it a changed parameter is no reason to do anything. So every rule also needs
    a file beside the run that holds the digest of its commands, written anew, when make reads this, where they changed.
    """
    groups = invocations(recipe, seed)
    wanted = " ".join(f"$(RUN)/{name}" for name in ends(groups))
    lines = [*header(recipe), f"RUN ?= {out}", f"WORKERS ?= {workers}"]
    lines += [f"FEDSYNTH ?= {program(recipe).replace('$', '$$')}", ""]
    rules = [_make_rule(group) for group in groups]
    marks = [f"{number}-{hashlib.sha256(rule.encode()).hexdigest()[:16]}" for number, rule in enumerate(rules)]
    lines += [
        "# Commands that changed since they were last run are run again.",
        f"MARKS := {' '.join(marks)}",
        "$(shell mkdir -p '$(RUN).made' && for mark in $(MARKS); do file='$(RUN).made/'\"$${mark%%-*}\"; "
        '[ "$$(cat "$$file" 2>/dev/null)" = "$$mark" ] || echo "$$mark" > "$$file"; done)',
        "",
    ]
    lines += [f"all: {wanted}", ".PHONY: all", ""]
    for number, (group, rule) in enumerate(zip(groups, rules, strict=True)):
        outputs = " ".join(f"$(RUN)/{name}" for step in group for name in step.outputs)
        inputs = [f"$(RUN)/{name}" for name in inputs_of(group)]
        lines += [f"{outputs} &: {' '.join([*inputs, f'$(RUN).made/{number}'])}", rule, ""]
    return "\n".join(lines)


def _make_rule(group: Group) -> str:
    """What makes a group's files."""
    if len(group) == 1:
        return f"\t$(FEDSYNTH) {command_line(group[0], '$(RUN)')}"
    chains = " \\\n\t  ".join(f"'{chain}'" for chain in chained(group, "$(RUN)"))
    return f"\t@printf '%s\\n' \\\n\t  {chains} \\\n\t  | $(FEDSYNTH) batch --quiet --workers $(WORKERS)"


def program(recipe: Recipe) -> str:
    """How fedsynth is called: with the plug-ins of the recipe, by the paths or names that they were loaded by."""
    named = [plugin.name for plugin in loaded() if str(plugin.record) in recipe.plugins]
    return " ".join(["fedsynth", *(f"--plugin {shlex.quote(name)}" for name in named)])


def invocations(recipe: Recipe, seed: int) -> list[Group]:
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


def side_of(group: Group) -> str:
    return "clients" if _is_clients(group[0]) else "server"


def inputs_of(group: Group) -> list[str]:
    made = {name for step in group for name in step.outputs}
    read = [name for step in group if not COMMANDS[step.command].reads_source for name in (*step.inputs, *step.needs)]
    return [name for name in dict.fromkeys(read) if name not in made]


def ends(groups: Sequence[Group]) -> list[str]:
    """The files that no later step reads: anyone who wants these gets all."""
    read = {name for group in groups for step in group for name in (*step.inputs, *step.needs)}
    made = [name for group in groups for step in group for name in step.outputs]
    return [name for name in dict.fromkeys(made) if name not in read]


def chained(group: Group, root: str, params: Callable[[Step], list[str]] = flags_of) -> Iterator[str]:
    """One line for each owner: its commands, one after the other. Evaluations wait for nobody."""

    def line_of(step: Step) -> str:
        return step.out if step.command == "evaluate" else step.owner

    for line in dict.fromkeys(map(line_of, group)):
        mine = [step for step in group if line_of(step) == line]
        yield " && ".join(command_line(step, root, params) for step in mine)


def command_line(step: Step, root: str, params: Callable[[Step], list[str]] = flags_of) -> str:
    """The command line of a step, as a person would type it; `params` says how its parameters are there."""
    words = step.command.split()
    command = COMMANDS[step.command]
    words += [name if command.reads_source else f"{root}/{name}" for name in step.inputs]
    words += params(step)
    words += _flags({k: f"{root}/{v}" if command.is_run_file(k, v) else v for k, v in step.options.items()})
    words += ["--force", "--quiet", "-o", _out(step, root)]
    return " ".join(_quoted(word) for word in words)


def _out(step: Step, root: str) -> str:
    folder = step.out if step.out_folder is None else step.out_folder
    return root if folder == "." else f"{root}/{folder}"


def _quoted(word: str) -> str:
    """A shell variable is left to the shell, within quotes; Make's own are left to Make, and DVC's seed to DVC."""
    if word.startswith("$RUN"):
        return f'"{word}"'
    return word if word.startswith("$(") or word == "${seed}" else shlex.quote(word)


def _flags(values: Mapping[str, Any], *, switches: bool = False) -> list[str]:
    """`switches`: what is false is said too, as a parameter may be true where nothing is said."""
    words: list[str] = []
    for key, value in values.items():
        name = key.replace("_", "-")
        if isinstance(value, bool):
            words += [f"--{name}"] if value else [f"--no-{name}"] if switches else []
        elif value is not None:
            words += [f"--{name}", str(value)]
    return words


def header(recipe: Recipe) -> list[str]:
    # Masks are fresh each time; what is made of them is not.
    what = "its updates and models are those of" if recipe.secure else "equal to"
    return [
        f"# {recipe.name}: {recipe.about}",
        f"# Written by `fedsynth recipe`; {what} `fedsynth run`, byte for byte.",
    ]
