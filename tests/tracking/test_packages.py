"""`--log` against MLflow, TensorBoard and Weights & Biases themselves, in an environment that has them."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
_PYTHON = Path(os.environ.get("TRACKERS_PYTHON", ROOT / ".venv-trackers/bin/python"))

_MLFLOW = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
runs = client.search_runs([client.get_experiment_by_name("fedsynth").experiment_id])
print(json.dumps([
    {
        "name": run.info.run_name, "status": run.info.status, "params": run.data.params, "tags": run.data.tags,
        "metrics": sorted(run.data.metrics),
        "accuracy": [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, "accuracy")],
    }
    for run in runs
]))
"""
_TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1]).Reload()
print(json.dumps([[e.step, e.value] for e in found.Scalars("accuracy")]))
"""


@pytest.fixture
def tracked(tmp_path):
    """Python of that environment, in an empty folder."""
    if not _PYTHON.exists():
        pytest.skip(f"{_PYTHON} is not there: make test-trackers")

    def run(script, *words, **variables):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | variables
        done = subprocess.run(
            [_PYTHON, "-c", script, *map(str, words)], cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


_RUN = "from fedsynth_cli.app import main; main()"
_WORDS = ("run", "fedavg", "--set", "init-model.arch=softmax", "--workers", 1, "-q", "-o", "runs/first")


def curve(tmp_path, folder="runs/first"):
    files = sorted((tmp_path / folder / "metrics").glob("round-*.json"))
    return [[number, json.loads(path.read_text())["accuracy"]] for number, path in enumerate(files)]


def test_mlflow_and_tensorboard_have_each_round_once(tracked, tmp_path):
    logs = ("--log", "mlflow:sqlite:///mlflow.db", "--log", "tensorboard:events")
    tracked(_RUN, *_WORDS, "--rounds", 1, *logs)
    tracked(_RUN, *_WORDS, "--rounds", 3, *logs)
    (run,) = json.loads(tracked(_MLFLOW, "sqlite:///mlflow.db"))
    assert run["accuracy"] == curve(tmp_path)
    assert len(run["accuracy"]) == 4
    assert (run["name"], run["status"]) == ("first", "FINISHED")
    assert run["params"]["init-model.arch"] == "softmax"
    assert run["tags"] == {"mlflow.runName": "first"}
    assert "loss" in run["metrics"]
    shown = json.loads(tracked(_TENSORBOARD, "events/first"))
    assert shown == [[number, pytest.approx(value)] for number, value in curve(tmp_path)]


def test_a_sweep_is_a_run_for_each_point(tracked, tmp_path):
    tracked(_RUN, *_WORDS, "--rounds", 1, "--sweep", "seed=0,1", "--log", "mlflow:sqlite:///mlflow.db")
    runs = {run["name"]: run for run in json.loads(tracked(_MLFLOW, "sqlite:///mlflow.db"))}
    assert set(runs) == {"first-seed=0", "first-seed=1"}
    for number in (0, 1):
        assert runs[f"first-seed={number}"]["accuracy"] == curve(tmp_path, f"runs/first/seed={number}")


def test_private_numbers_are_there_when_asked_for_only(tracked):
    words = ("run", "fedlap", "--shrink", "--workers", 1, "-q", "--log", "mlflow:sqlite:///mlflow.db")
    tracked(_RUN, *words, "-o", "plain")
    tracked(_RUN, *words, "-o", "asked", "--private")
    runs = {run["name"]: run["metrics"] for run in json.loads(tracked(_MLFLOW, "sqlite:///mlflow.db"))}
    assert not any(name.startswith(("client_", "server/")) for name in runs["plain"])
    assert {"client_00/radius", "server/distance"} <= set(runs["asked"])


def test_wandb_keeps_metrics_and_nothing_of_this_machine(tracked, tmp_path):
    tracked(_RUN, *_WORDS, "--rounds", 1, "--log", "wandb", WANDB_MODE="offline", HOSTNAME="ward-7")
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    (record,) = folder.glob("*.wandb")
    content = record.read_bytes()
    assert b"accuracy" in content
    assert str(tmp_path).encode() not in content
    assert not list((folder / "files").glob("*"))
