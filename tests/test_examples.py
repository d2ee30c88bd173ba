"""The examples run as they are."""

import csv
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def run_example(command_path, tmp_path):
    def run(name, *arguments):
        command = ["sh", str(ROOT / "examples" / name), str(tmp_path / "run"), *arguments]
        done = subprocess.run(command, env=os.environ | {"PATH": command_path}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_fedavg_by_hand(tmp_path, run_example):
    out = run_example("fedavg.sh")
    assert "PASS" in out
    rows = list(csv.DictReader((tmp_path / "run/metrics/curve.csv").read_text().splitlines()))
    assert [row["round"] for row in rows] == ["1", "2"]
    assert float(rows[-1]["accuracy"]) > 0.5


@pytest.mark.slow
def test_fedssyn_by_hand(tmp_path, run_example):
    out = run_example("fedssyn.sh", "40")
    assert "PASS" in out and "picked=True" in out
    for name in ("sheet.png", "pairs.png", "memorisation.json"):
        assert (tmp_path / "run/clients/01/private" / name).exists()


@pytest.mark.slow
def test_private_records_by_hand(tmp_path, run_example):
    out = run_example("private_records.sh")
    assert "exit code 4" in out and "PASS" in out
    assert "finite" in out and "∞" not in out


@pytest.mark.slow
def test_secure_aggregation_by_hand(tmp_path, run_example):
    out = run_example("secagg.sh")
    assert "PASS" in out and "dropped    02" in out
    assert (tmp_path / "run/server/outbox/model-0001.safetensors").exists()
