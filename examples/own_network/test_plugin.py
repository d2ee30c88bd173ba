"""What the author of a plug-in tests of it: pytest examples/own_network."""

from pathlib import Path

import numpy as np
import pytest

from artifacts.formats import tensors_file
from fedsynth_cli.app import run
from stages.plugins import using
from stages.registry import ALGORITHMS

PLUGIN = Path(__file__).with_name("own_network.py")


@pytest.fixture
def update(tmp_path):
    """A client's update after one round, by the commands that everybody types."""
    home = tmp_path / "clients/00/private"
    model = tmp_path / "public/model.safetensors"
    for line in (
        f"partition digits --clients 1 -o {tmp_path}",
        f"init-model --arch patches --channels 4 --like {tmp_path}/public/test.parquet -o {model}",
        f"train-client {model} {home}/data.parquet --algorithm heavy-ball --local-steps 2 -o {home}/update.safetensors "
        f"--state-out {home}/state.safetensors",
    ):
        assert run([*line.split(), "--quiet", "--plugin", str(PLUGIN)]) == 0
    return model, home / "update.safetensors"


def test_what_leaves_is_rounded_and_near_the_update(update, tmp_path):
    model, private = update
    out = tmp_path / "clients/00/outbox/message.safetensors"
    line = ["encode", model, private, "--method", "rounded", "--step", 0.01, "-o", out, "--plugin", PLUGIN]
    assert run(list(map(str, line))) == 0
    whole = tensors_file.read(private).tensors
    for name, sent in tensors_file.read(out).tensors.items():
        assert np.abs(sent / 0.01 - np.round(sent / 0.01)).max() < 1e-4
        assert np.abs(sent - whole[name]).max() < 0.00501


def test_the_velocity_by_hand():
    """A gradient of 1 and a velocity of 2, of which 0.3 counts; from 1.0 to 0.4 in three steps of 0.1."""
    import torch

    weight = torch.nn.Parameter(torch.tensor([1.0]))
    weight.grad = torch.tensor([1.0])
    with using([str(PLUGIN)]):
        algorithm = ALGORITHMS.from_mapping({"algorithm": "heavy-ball"})
        client = algorithm.client({"w": weight}, {"w": torch.tensor([2.0])}, {})
    client.correct({"w": weight})
    assert weight.grad.item() == pytest.approx(1.6)
    kept = client.finish({"w": torch.nn.Parameter(torch.tensor([0.4]))}, 3, 0.1)
    assert kept["w"].item() == pytest.approx(2.0)
