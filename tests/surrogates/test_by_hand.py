"""The examples of FedLAP and FedDM run as they are."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def run_example(name, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", str(ROOT / "examples" / name), str(folder)]
    done = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_fedlap_by_hand(tmp_path):
    assert "PASS" in run_example("fedlap.sh", tmp_path / "run")
    rows = list(csv.DictReader((tmp_path / "run/metrics/curve.csv").read_text().splitlines()))
    assert [row["round"] for row in rows] == ["1", "2"]
    assert float(rows[-1]["accuracy"]) > 0.5


@pytest.mark.slow
def test_feddm_by_hand(tmp_path):
    assert "PASS" in run_example("feddm.sh", tmp_path / "run")
    assert json.loads((tmp_path / "run/metrics/round-0001.json").read_text())["accuracy"] > 0.5
