"""A recipe for Snakemake: one rule for each invocation, with its threads and what it needs of a machine."""

from __future__ import annotations

import shlex

from stages.recipes.formats import (
    Group,
    chained,
    command_line,
    ends,
    header,
    inputs_of,
    invocations,
    program,
    side_of,
)
from stages.recipes.recipe import Recipe

# For schedulers that ask; the recipes of a workstation stay below, and a profile says otherwise (`set-resources`).
_MEGABYTES_A_THREAD, _MINUTES_OF_CLIENTS, _MINUTES = 2000, 120, 30


def snakefile(recipe: Recipe, *, seed: int, workers: int, out: str) -> str:
    """A Snakefile; `snakemake --config run=FOLDER` writes elsewhere, `gpu=1` asks for a GPU for the clients' rules."""
    groups = invocations(recipe, seed)
    lines = [*header(recipe), f'RUN = config.get("run", {out!r})', 'GPU = config.get("gpu", 0)', ""]
    lines += ["", "rule all:", "    input:", *_files(ends(groups)), ""]
    names: dict[str, int] = {}
    for group in groups:
        name = _name(group)
        names[name] = names.get(name, 0) + 1
        lines += _rule(f"{name}_{names[name]}" if names[name] > 1 else name, group, workers, program(recipe))
    return "\n".join(lines)


def _rule(name: str, group: Group, workers: int, fedsynth: str) -> list[str]:
    owners = len(list(chained(group, "")))
    threads = min(workers, owners)
    minutes = _MINUTES_OF_CLIENTS if side_of(group) == "clients" else _MINUTES
    inputs = inputs_of(group)
    if len(group) == 1:
        command = f"{fedsynth} {command_line(group[0], '$RUN')}"
    else:
        quoted = " ".join(shlex.quote(line) for line in chained(group, "$RUN"))
        command = f"printf '%s\\n' {quoted} | {fedsynth} batch --quiet --workers {{threads}}"
    # Snakemake fills in what is in braces.
    command = command.replace("{", "{{").replace("}", "}}").replace("{{threads}}", "{threads}").replace("$RUN", "{RUN}")
    return [
        "",
        f"rule {name}:",
        *(["    input:", *_files(inputs)] if inputs else []),
        "    output:",
        *_files([out for step in group for out in step.outputs]),
        f"    threads: {threads}",
        "    resources:",
        f"        mem_mb={_MEGABYTES_A_THREAD * threads},",
        f"        runtime={minutes},",
        f"        gpu={'GPU' if side_of(group) == 'clients' else 0},",
        "    shell:",
        f"        r'''{command}'''",
        "",
    ]


def _name(group: Group) -> str:
    first = group[0]
    what = side_of(group) if side_of(group) == "clients" else first.command
    name = f"round_{first.round:04}_{what}" if first.round else what
    return name.replace("-", "_").replace(" ", "_")


def _files(names: list[str]) -> list[str]:
    return [f'        f"{{RUN}}/{name}",' for name in names]
