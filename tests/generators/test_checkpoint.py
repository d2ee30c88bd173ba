"""Checkpoints of `train-generator`: stopped anywhere, it goes on; what does not belong to it is refused."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from stages.generators.checkpoint import Checkpoint
from stages.train_generator import train_generator

FAMILIES = ["ddpm", "vae", "gan"]


class Stopped(Exception):
    """What a test raises in the middle of a training."""


def train(data, out, params, **options):
    return train_generator([data], out, params=params, **{"seed": 3, **options})


def stop_at(step):
    def report(done, total, text):
        if done == step:
            raise Stopped

    return report


def test_killed_and_started_again_it_ends_with_the_same_bytes(client, quick):
    params = quick("ddpm", steps=14)
    whole, out = client.with_name("whole.safetensors"), client.with_name("killed.safetensors")
    train(client, whole, params)
    script = f"""
import sys
from pathlib import Path
from stages.registry import GENERATORS
from stages.train_generator import train_generator
params = GENERATORS.from_mapping({params.to_json()!r})
def report(done, total, text):
    print(done, flush=True)
    if done == 9:
        sys.stdin.read()  # wait here for the end
train_generator([Path(sys.argv[1])], Path(sys.argv[2]), params=params, seed=3, checkpoint_every=4, report=report)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(client), str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout:
            if line.strip() == "9":
                process.send_signal(signal.SIGKILL)
                break
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    checkpoint = out.with_name(out.name + ".checkpoint")
    assert tensors_file.read(checkpoint, kind="generator").metadata.custody == "private"
    summary = train(client, out, params)
    assert summary["resumed_from"] == 8
    assert out.read_bytes() == whole.read_bytes()
    assert not checkpoint.exists()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stop", [1, 2, 5])
def test_stopped_anywhere_it_ends_with_the_same_bytes(client, quick, family, stop):
    params = quick(family, steps=6)
    whole, out = client.with_name("whole.safetensors"), client.with_name("stopped.safetensors")
    train(client, whole, params, checkpoint_every=0)
    with pytest.raises(Stopped):
        train(client, out, params, checkpoint_every=2, report=stop_at(stop))
    summary = train(client, out, params, checkpoint_every=1)
    assert summary["resumed_from"] == stop // 2 * 2
    assert out.read_bytes() == whole.read_bytes()


@pytest.fixture
def stopped(client, quick):
    """A training of the VAE, stopped after its checkpoint at step 2; returns the path of the output."""
    out = client.with_name("generator.safetensors")
    with pytest.raises(Stopped):
        train(client, out, quick("vae", steps=5), checkpoint_every=2, report=stop_at(3))
    return out


@pytest.mark.parametrize(
    ("changed", "options", "said"),
    [
        ({"learning_rate": 0.5}, {}, r"with other parameters \(learning_rate\)"),
        ({"steps": 6}, {}, r"with other parameters \(steps\)"),
        ({}, {"seed": 8}, "with other seed"),
        ({}, {"client": "07"}, "with other client"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(stopped, client, quick, changed, options, said):
    params = quick("vae", **{"steps": 5, **changed})
    with pytest.raises(InputError, match=said):
        train(client, stopped, params, **options)
    with pytest.raises(InputError, match="Delete it, or add --force"):
        train(client, stopped, params, **options)
    assert train(client, stopped, params, force=True, **options)["resumed_from"] == 0
    fresh = stopped.with_name("fresh.safetensors")
    train(client, fresh, params, **options)
    assert fresh.read_bytes() == stopped.read_bytes()


def test_a_checkpoint_of_other_data_is_refused(stopped, digits, quick, tmp_path, make_client):
    other = make_client(tmp_path / "other", digits.take(np.arange(50, 90)))
    with pytest.raises(InputError, match="with other data"):
        train(other, stopped, quick("vae", steps=5))


def test_force_goes_on_from_a_checkpoint_of_the_same_training(stopped, client, quick):
    assert train(client, stopped, quick("vae", steps=5), force=True)["resumed_from"] == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign"])
def test_a_damaged_checkpoint_is_reported(stopped, fedsynth, client, damage):
    path = stopped.with_name(stopped.name + ".checkpoint")
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "flipped":
        data[-5] ^= 1
    elif damage == "empty":
        data = b""
    else:
        data = b"not a checkpoint at all"
    path.write_bytes(data)
    options = ["--family", "vae", "--filters", "4", "--hidden-size", "16", "--batch-size", "8", "--steps", "5"]
    code, _, err = fedsynth("train-generator", client, *options, "--seed", "3", "-o", stopped)
    assert code == 3
    assert str(path) in err
    assert "delete it to begin the training anew" in err
    assert not stopped.exists()


def test_a_checkpoint_with_other_tensors_is_refused(stopped, client, quick):
    path = stopped.with_name(stopped.name + ".checkpoint")
    found = tensors_file.read(path)
    tensors = dict(found.tensors)
    del tensors["means.vae.decoder.fc1.bias"]
    tensors_file.write(path, tensors, found.metadata, force=True)
    with pytest.raises(InputError, match="with other tensors"):
        train(client, stopped, quick("vae", steps=5))


def test_a_full_disk_while_saving_leaves_the_last_checkpoint(stopped, client, quick, monkeypatch):
    path = stopped.with_name(stopped.name + ".checkpoint")
    before = path.read_bytes()

    def full(self, state):
        raise InputError("cannot write: no space left on device")

    monkeypatch.setattr(Checkpoint, "save", full)
    with pytest.raises(InputError, match="no space"):
        train(client, stopped, quick("vae", steps=5), checkpoint_every=1)
    assert path.read_bytes() == before
