"""A step, performed: the call of the stage function that the command line would make."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.catalogue import COMMANDS
from stages.execution.dispatch import named, performer
from stages.execution.progress import Summary
from stages.recipes.declared import parameters
from stages.recipes.step import Step

_NAMES = {"as": "result"}  # an option whose name is a word of Python


def perform(step: Step, root: Path) -> Summary:
    """Run one step in the run folder `root`. Outputs that a killed step left half done are replaced."""
    return performer(COMMANDS[step.command].performed_by)(**_arguments(step, root))


def perform_several(steps: Sequence[Step], root: Path) -> list[Summary]:
    """Run steps that their command can do at once."""
    several_by = COMMANDS[steps[0].command].several_by
    if len(steps) == 1 or several_by is None:
        return [perform(step, root) for step in steps]
    found: list[Summary] = named(several_by)([_arguments(step, root) for step in steps])
    return found


def _arguments(step: Step, root: Path) -> dict[str, Any]:
    command = COMMANDS[step.command]
    function = performer(command.performed_by)
    takes = inspect.signature(function).parameters
    arguments = _inputs(step, root, takes)
    for option, value in step.options.items():
        user_path = option in command.outside and value is not None
        placed = root / value if command.is_run_file(option, value) else Path(value) if user_path else value
        arguments[_NAMES.get(option, option)] = placed
    if command.declared is None:
        arguments |= step.params
    else:
        facts = named(command.facts_from)(root / step.inputs[0]) if command.facts_from is not None else None
        arguments["params"] = parameters(step, facts)
    return {**arguments, "out": root / (step.out_folder or step.out), "force": True}


def _inputs(step: Step, root: Path, takes: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """The step's inputs by the names of the function's first arguments; the one that is a sequence takes the rest."""
    names = list(takes)[: list(takes).index("out")] if step.inputs else []
    left: list[Any] = [name if COMMANDS[step.command].reads_source else root / name for name in step.inputs]
    return {name: left if "Sequence" in str(takes[name].annotation) else left.pop(0) for name in names}
