"""Where the workers of a run compute. There is no GPU here: what is said of one is that it is asked for, or missing."""

import os
import subprocess
import sys

import pytest
import torch

from artifacts.errors import UsageError
from stages.execution import devices
from stages.execution.torch_setup import make_gpu_reproducible, set_up
from stages.execution.workers import Workers

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def test_workers_take_the_devices_in_turn():
    with Workers(3, ["cpu", "cuda:1"]) as pool:
        for worker in pool.idle():
            worker.start(None, (devices.chosen_here, ()))
        assert [worker.finish() for worker in pool.all] == ["cpu", "cuda:1", "cpu"]


def test_auto_is_the_device_of_the_process():
    try:
        devices.work_on("cpu")
        assert set_up("auto") == torch.device("cpu")
        devices.work_on("cuda:63")
        with pytest.raises(UsageError, match=r"--device cuda:63: torch finds no such device here \(there is: cpu"):
            set_up("auto")
        assert set_up("cpu") == torch.device("cpu"), "what is asked for by name is that"
    finally:
        devices.work_on(None)


@no_gpu
@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("cuda:0,cuda:1", "--devices cuda:0: torch finds no such device here (there is: cpu)"),
        ("gpu0", "'gpu0' is none of cpu, mps, cuda and cuda:NUMBER"),
        ("cpu,", "'' is none of"),
    ],
)
def test_devices_that_are_not_there_are_refused_before_anything_is_made(fedsynth, tmp_path, given, complaint):
    code, _, err = fedsynth("run", "fedavg", "--devices", given, "-o", tmp_path / "run")
    assert (code, complaint in " ".join(err.split())) == (2, True), err
    assert not (tmp_path / "run").exists()


@no_gpu
def test_torch_is_not_imported_to_find_that_there_is_no_gpu():
    lines = "import sys; from stages.execution.devices import gpus; print(gpus(), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True)
    assert done.stdout.strip() == "[] False", done.stderr


def test_on_a_gpu_kernels_are_reproducible_and_float32_is_float32(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    make_gpu_reproducible()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"
