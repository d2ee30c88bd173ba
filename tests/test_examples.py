"""The examples run as they stand."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run_example(name, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", str(ROOT / "examples" / name), str(folder)]
    done = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_fedavg_by_hand(tmp_path):
    out = run_example("fedavg.sh", tmp_path / "run")
    assert "PASS" in out
    rows = list(csv.DictReader((tmp_path / "run/metrics/curve.csv").read_text().splitlines()))
    assert [row["round"] for row in rows] == ["1", "2"]
    assert float(rows[-1]["accuracy"]) > 0.5


@pytest.mark.slow
def test_fedssyn_by_hand(tmp_path):
    command = ["sh", str(ROOT / "examples" / "fedssyn.sh"), str(tmp_path / "run"), "40"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout and "picked=True" in done.stdout
    for name in ("sheet.png", "pairs.png", "memorisation.json"):
        assert (tmp_path / "run/clients/01/private" / name).exists()


def test_private_records_by_hand(tmp_path):
    out = run_example("private_records.sh", tmp_path / "run")
    assert "exit code 4" in out and "PASS" in out
    assert "finite" in out and "∞" not in out


def test_secure_aggregation_by_hand(tmp_path):
    out = run_example("secagg.sh", tmp_path / "run")
    assert "PASS" in out and "dropped    02" in out
    assert (tmp_path / "run/server/outbox/model-0001.safetensors").exists()
