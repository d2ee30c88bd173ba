"""A recipe for DVC: `dvc.yaml`, and `params.yaml` with what is worth changing.

Nothing goes into DVC's cache. It would keep copies of private data, `dvc push` would send them away, and the
`.gitignore` that DVC writes beside a cached file would be in an outbox without an entry in the ledger. DVC knows
every file by its digest all the same, and runs again what depends on what has changed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from artifacts.formats.plain_data import dump_yaml
from stages.catalogue import COMMANDS
from stages.recipes.formats import Group, chained, flags_of, header, inputs_of, invocations, program, side_of
from stages.recipes.recipe import Recipe
from stages.recipes.step import Step
from stages.run_folder.files import CURVE

PARAMS = "params.yaml"
# What DVC replaces by values of `params.yaml` before the shell sees the command.
_SEED, _SOURCE = "${seed}", "${source}"
# With `persist` a stage stays out of the cache of runs too, which takes copies even of what is not to be cached.
_NO_COPY = {"cache": False, "persist": True}


def dvc(recipe: Recipe, *, seed: int, workers: int, out: str) -> dict[str, str]:
    """The two files. Evaluations are one stage: DVC lets a plot have one maker only. Its metric is the last round's."""
    groups = [[_templated(step) for step in group] for group in invocations(recipe, seed)]
    sections = _sections(recipe, [step for group in groups for step in group])
    stages: dict[str, Any] = {}
    for group in groups:
        if group[0].command != "evaluate":
            stages[_name(group, stages)] = _stage(group, out, workers, sections, program(recipe))
    evaluations = [step for group in groups for step in group if step.command == "evaluate"]
    stages["evaluate"] = _stage(evaluations, out, workers, sections, program(recipe))
    *earlier, last = [{f"{out}/{step.out}": _NO_COPY} for step in evaluations]
    stages["evaluate"]["outs"] = earlier
    stages["evaluate"]["metrics"] = [last]
    pictures = [{f"{out}/{name}": _NO_COPY} for step in evaluations for name in step.also_writes]
    stages["evaluate"]["plots"] = [{f"{out}/{CURVE}": {"x": "round", "y": "accuracy", **_NO_COPY}}, *pictures]
    stages["partition"]["cmd"] = [_same_rounds(recipe), stages["partition"]["cmd"]]
    top = {"seed": seed, "rounds": recipe.rounds, "source": recipe.section("partition")["source"]}
    first = "\n".join([*header(recipe), f"# Keep {out}/ out of git: private data is there.", ""])
    # Lines of any length: a folded command is hard to read.
    return {
        "dvc.yaml": first + dump_yaml({"stages": stages}, width=10**9),
        PARAMS: dump_yaml({**top, **sections}),
    }


def _templated(step: Step) -> Step:
    """The step with the seed and the source as DVC fills them in from `params.yaml`."""
    inputs = (_SOURCE,) if COMMANDS[step.command].reads_source else step.inputs
    seeded = {"seed": _SEED} if "seed" in step.options else {}
    return replace(step, inputs=inputs, options={**step.options, **seeded})


def _same_rounds(recipe: Recipe) -> str:
    """Rounds are stages: a file that was written for two cannot run three, and says so before anything runs."""
    said = (
        f"dvc.yaml has the stages of {recipe.rounds} rounds, and params.yaml says ${{rounds}}. Write both again: "
        f"{program(recipe)} recipe {recipe.name} --rounds ${{rounds}} ... --format dvc --force -o ."
    )
    return f"test ${{rounds}} -eq {recipe.rounds} || {{ echo {shlex.quote(said)} >&2; exit 1; }}"


def ignored(out: str) -> str:
    """What git must not see; the metrics it may, so that `dvc metrics diff` has something to compare."""
    return f"/{out}/*\n!/{out}/metrics/\n"


def _name(group: Group, taken: Mapping[str, Any]) -> str:
    first = group[0]
    name = f"round-{first.round:04}-{side_of(group)}" if first.round else first.command.replace(" ", "-")
    same = sum(other == name or other.startswith(f"{name}-") for other in taken)
    return f"{name}-{same + 1}" if same else name


def _sections(recipe: Recipe, steps: list[Step]) -> dict[str, dict[str, Any]]:
    """What `params.yaml` holds of each command: what the recipe says of it, or else what its first step takes."""
    found: dict[str, dict[str, Any]] = {}
    for step in steps:
        if step.params and (step.section not in found or dict(step.params) == recipe.section(step.section)):
            found[step.section] = dict(step.params)
    return found


def _reads_section(step: Step, sections: Mapping[str, Mapping[str, Any]]) -> bool:
    """A step that takes less than its section says cannot read it: a state is not encoded like an update."""
    section = sections.get(step.section)
    return bool(step.params) and section is not None and section.keys() <= step.params.keys()


def _stage(
    group: Group, out: str, workers: int, sections: Mapping[str, Mapping[str, Any]], fedsynth: str
) -> dict[str, Any]:
    def params(step: Step) -> list[str]:
        if not _reads_section(step, sections):
            return flags_of(step)
        section = sections[step.section]
        own = {key: value for key, value in step.params.items() if key not in section or section[key] != value}
        return ["--params", PARAMS, *flags_of(step, own)]

    lines = list(chained(group, out, params))
    command = f"{fedsynth} {lines[0]}"
    if len(lines) > 1 or " && " in lines[0]:
        quoted = " ".join(shlex.quote(line) for line in lines)
        command = f"printf '%s\\n' {quoted} | {fedsynth} batch --quiet --workers {workers}"
    stage: dict[str, Any] = {"cmd": command}
    read = sorted({step.section for step in group if _reads_section(step, sections)})
    if read:
        stage["params"] = read
    deps = [f"{out}/{name}" for name in inputs_of(group)]
    if deps:
        stage["deps"] = deps
    stage["outs"] = [{f"{out}/{name}": _NO_COPY} for step in group for name in step.outputs]
    return stage
