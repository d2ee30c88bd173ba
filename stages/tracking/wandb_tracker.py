"""Weights & Biases: a run of its own for each run folder, by its key and mode (WANDB_API_KEY, WANDB_MODE)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

_PROJECT = "fedsynth"


def opened(place: str | None) -> WandbTracker:
    import wandb  # noqa: F401

    return WandbTracker(place or _PROJECT)


class WandbTracker:
    """Nothing goes there but parameters and metrics: no code, output, git repository, host, program or load."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._runs: dict[str, Any] = {}

    def begin(self, name: str, params: Mapping[str, str], known: str | None) -> str:
        import wandb

        run = known or uuid.uuid4().hex
        settings = wandb.Settings(
            console="off", disable_git=True, disable_code=True, save_code=False, disable_job_creation=True, silent=True,
            x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True, x_save_requirements=False,
            host="", program="",
        )  # fmt: skip
        self._runs[run] = wandb.init(
            project=self._project, id=run, name=name, config=dict(params), resume="allow", reinit="create_new",
            settings=settings,
        )  # fmt: skip
        return run

    def log(self, run: str, round: int, values: Mapping[str, float]) -> None:
        self._runs[run].log(dict(values), step=round)

    def end(self) -> None:
        for run in self._runs.values():
            run.finish()
