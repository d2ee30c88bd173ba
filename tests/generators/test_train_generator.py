"""`train-generator`: private, replayable, and what it refuses."""

import dataclasses
import hashlib
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open

from artifacts.digests import sha256_file
from artifacts.errors import InputError, UsageError
from artifacts.formats import tensors_file
from stages.train_generator import train_generator

FAMILIES = ["ddpm", "vae", "gan"]


def train(data, out, params, **options):
    return train_generator([data], out, params=params, **{"seed": 3, **options})


@pytest.mark.parametrize("family", FAMILIES)
def test_the_file_says_what_it_is(client, quick, family):
    out = client.with_name("generator.safetensors")
    stated = []
    params = quick(family, steps=3)
    summary = train(client, out, params, report=lambda *call: stated.append(call))
    with safe_open(out, framework="numpy") as file:
        about = json.loads(file.metadata()["fedsynth"])
        counts = file.get_tensor("class_counts")
        dtypes = {str(file.get_tensor(name).dtype) for name in file.keys() if name != "class_counts"}  # noqa: SIM118
    assert (about["kind"], about["custody"], about["method"], about["client"]) == ("generator", "private", family, "00")
    assert about["params"].items() >= params.to_json().items()
    assert about["params"].items() >= {"channels": 1, "height": 8, "width": 8, "num_classes": 10}.items()
    assert about["params"]["class_names"] == [str(n) for n in range(10)]
    assert about["inputs"] == [{"role": "data", "kind": "dataset", "sha256": sha256_file(client)}]
    assert about["counts"] == {"num_examples": 30}  # ρ = 0.75 of forty
    assert (counts.dtype, counts.sum(), len(counts)) == (np.int64, 30, 10)
    assert dtypes == {"float32"}
    assert summary["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert [call[:2] for call in stated] == [(1, 3), (2, 3), (3, 3)]
    wanted = r"discriminator \d+\.\d{3}, generator \d+\.\d{3}" if family == "gan" else r"loss \d+\.\d{3}"
    assert all(re.fullmatch(wanted, text) for _, _, text in stated)
    assert not out.with_name("generator.safetensors.checkpoint").exists()


def test_the_stored_weights_are_the_running_average(client, quick, monkeypatch):
    import stages.methods.generator_training as loop

    ends = []
    original = loop.train
    monkeypatch.setattr(loop, "train", lambda *a, **k: ends.append(original(*a, **k)) or ends[-1])
    out = client.with_name("generator.safetensors")
    train(client, out, quick("ddpm", steps=3))
    stored = tensors_file.read(out).tensors
    for name, average in ends[0].average.items():
        np.testing.assert_array_equal(stored[name], average.numpy())
    assert not np.array_equal(stored["unet.conv_in.weight"], ends[0].weights["unet.conv_in.weight"].detach().numpy())


def test_two_processes_make_the_same_bytes(client, quick):
    """Another process, its global random state elsewhere. (The test that kills one does the same for ddpm.)"""
    outs = {family: client.with_name(f"{family}.safetensors") for family in ("vae", "gan")}
    for family, out in outs.items():
        train(client, out, quick(family, steps=3))
    script = """
import sys, torch
from pathlib import Path
from stages.registry import GENERATORS
from stages.train_generator import train_generator
torch.manual_seed(99)
for spec in sys.argv[2:]:
    family, out = spec.split("=", 1)
    params = GENERATORS.from_mapping(PARAMS[family])
    train_generator([Path(sys.argv[1])], Path(out), params=params, seed=3, checkpoint_every=1)
""".replace("PARAMS", repr({family: quick(family, steps=3).to_json() for family in outs}))
    again = [f"{family}={client.with_name(f'{family}-again.safetensors')}" for family in outs]
    subprocess.run([sys.executable, "-c", script, str(client), *again], check=True)
    for family, out in outs.items():
        assert out.read_bytes() == client.with_name(f"{family}-again.safetensors").read_bytes()


def test_seed_and_client_change_the_bytes(client, quick):
    digests = set()
    for number, options in enumerate([{}, {"seed": 4}, {"client": "01"}]):
        out = client.with_name(f"{number}.safetensors")
        train(client, out, quick("vae", steps=1), **options)
        digests.add(tensors_file.read(out).payload_sha256)
    assert len(digests) == 3


def test_a_generator_never_stands_in_an_outbox(fedsynth, client):
    out = client.parent.parent / "outbox" / "generator.safetensors"
    code, _, err = fedsynth("train-generator", client, "-o", out)
    assert code == 2
    assert "may not be in an outbox" in err
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_one_image_is_enough(tmp_path, digits, quick, make_client, family):
    data = make_client(tmp_path, digits.take(np.array([7])))
    out = data.with_name("generator.safetensors")
    assert train(data, out, quick(family, steps=2))["images"] == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_client_that_knows_one_class_only(tmp_path, digits, quick, make_client, family):
    content = digits.take(np.flatnonzero(digits.labels == 4)[:9])
    alone = dataclasses.replace(content, labels=content.labels * 0, class_names=("four",))
    data = make_client(tmp_path, alone)
    out = data.with_name("generator.safetensors")
    train(data, out, quick(family, steps=2))
    assert tensors_file.read(out).tensors["class_counts"].tolist() == [7]


def test_several_datasets_are_one(client, digits, quick, tmp_path, make_client):
    more = make_client(tmp_path / "more", digits.take(np.arange(40, 60)))
    out = client.with_name("generator.safetensors")
    summary = train_generator([client, more], out, params=quick("vae", steps=1, data_fraction=1.0), seed=0)
    assert summary["images"] == 60
    assert len(tensors_file.read(out).metadata.inputs) == 2


def test_datasets_that_do_not_go_together(client, colours, quick, tmp_path, make_client):
    other = make_client(tmp_path / "other", colours)
    with pytest.raises(InputError, match="do not go together: channels is 3 and 1"):
        train_generator([client, other], client.with_name("g.safetensors"), params=quick("vae"), seed=0)


def test_an_empty_dataset(tmp_path, digits, quick, make_client):
    data = make_client(tmp_path, digits.take(np.array([], np.int64)))
    with pytest.raises(InputError, match="holds no images"):
        train(data, data.with_name("g.safetensors"), quick("vae"))


def test_images_that_the_unet_cannot_take(client, quick):
    with pytest.raises(UsageError, match="sides are multiples of 16, found 8×8: give --multipliers 1,1,1,1,"):
        train(client, client.with_name("g.safetensors"), quick("ddpm", multipliers="1,1,1,1,1"))


@pytest.mark.parametrize("family", FAMILIES)
def test_colour_images_of_other_sizes(tmp_path, colours, quick, make_client, family):
    data = make_client(tmp_path, colours)
    out = data.with_name("g.safetensors")
    train(data, out, quick(family, steps=1))
    assert out.exists()


def test_a_training_that_diverges_is_reported(client, quick):
    out = client.with_name("g.safetensors")
    with pytest.raises(InputError, match=r"training diverged: .* NaN or infinity\. Lower --learning-rate"):
        train(client, out, quick("vae", steps=8, learning_rate=1e30))
    assert not out.exists()


def test_an_existing_output_is_refused_before_any_work(client, quick):
    out = client.with_name("g.safetensors")
    train(client, out, quick("vae", steps=1))
    with pytest.raises(InputError, match="already exists"):
        train(client, out, quick("vae", steps=2), report=lambda *call: pytest.fail("it trained"))
    assert train(client, out, quick("vae", steps=1), force=True)["out"] == str(out)


def test_global_random_state_is_left_alone(client, quick):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    train(client, client.with_name("g.safetensors"), quick("ddpm", steps=1))
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()
