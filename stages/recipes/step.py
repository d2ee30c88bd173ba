"""One command of a pipeline, with the files that it reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command. Paths are relative to the run folder; `options` holds what the command line says beyond them.

    `out_folder` is what follows `-o` where a command writes a folder of files; `out` is then one of them.
    """

    command: str
    owner: str
    round: int
    out: str
    out_folder: str | None = None
    inputs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    also_writes: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def section(self) -> str:
        """Where recipes and params files have its parameters: `secagg` for all commands of that group."""
        return self.command.split()[0]

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.out, *self.also_writes)
