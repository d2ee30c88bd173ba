"""MLflow, by its client: a run of its experiment `fedsynth` for each run folder."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping

_EXPERIMENT = "fedsynth"
_LONGEST = 500  # of a parameter's value, the least that any of MLflow's stores takes


def opened(place: str | None) -> MlflowTracker:
    # Read when it is imported. It reports to nobody.
    os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    return MlflowTracker(place)


class MlflowTracker:
    """Without a place MLflow's own: MLFLOW_TRACKING_URI, else a database in the current folder.

    The client, unlike `mlflow.start_run`, adds no tag with the user's name, the program or its repository.
    """

    def __init__(self, place: str | None) -> None:
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic"):  # a line for each table of a new database
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client = MlflowClient(tracking_uri=place)
        found = self._client.get_experiment_by_name(_EXPERIMENT)
        self._experiment = self._client.create_experiment(_EXPERIMENT) if found is None else found.experiment_id
        self._begun: list[str] = []

    def begin(self, name: str, params: Mapping[str, str], known: str | None) -> str:
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        if known is not None:
            try:
                run = self._client.get_run(known).info.run_id
                self._client.update_run(run, status="RUNNING")
                self._begun.append(run)
                return str(run)
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
        run = self._client.create_run(self._experiment, run_name=name).info.run_id
        self._client.log_batch(run, params=[Param(key, value[:_LONGEST]) for key, value in params.items()])
        self._begun.append(run)
        return str(run)

    def log(self, run: str, round: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(run, metrics=[Metric(key, value, now, round) for key, value in values.items()])

    def end(self) -> None:
        for run in self._begun:
            self._client.set_terminated(run)
