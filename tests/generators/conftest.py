"""Small clients for the tests of generators: digits in a private folder, a key, generators that train at once."""

import json

import numpy as np
import pytest
import torch
from federation import Federation

from artifacts.ledgers import spend
from stages.data.images import LabelledImages, to_pixels
from stages.nets.generator_params import ImageShape
from stages.registry import GENERATORS
from stages.train_generator import train_generator

QUICK = {
    "ddpm": {"family": "ddpm", "base_width": 8, "multipliers": "1,2", "dropout": 0.2, "batch_size": 8},
    "vae": {"family": "vae", "filters": 4, "hidden_size": 16, "batch_size": 8},
    "merf": {"family": "merf", "features": 20, "filters": 4, "hidden_size": 16, "batch_size": 8},
    "gan": {"family": "gan", "filters": 4, "latent_size": 4, "batch_size": 8},
}


def write_client(folder, content, name="00"):
    """A client's folder with its data and a simulated key; returns the path of the data."""
    made = Federation(folder)
    made.settle(name)
    return made.write(made.key(name).with_name("data.parquet"), content, client=name)


@pytest.fixture
def client(tmp_path, digits):
    """The data of client 00: forty digits."""
    return write_client(tmp_path, digits.take(np.arange(40)))


@pytest.fixture(scope="session")
def quick():
    """Parameters of a family, small enough to train a few steps in no time."""
    return lambda family, **changed: GENERATORS.from_mapping({"family": family, **QUICK.get(family, {}), **changed})


@pytest.fixture(scope="session")
def make_client():
    return write_client


@pytest.fixture(scope="session")
def colours():
    """Colour images of 12×10 pixels in three named classes."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 3, 12, 10), dtype=np.uint8)
    return LabelledImages(images, np.arange(30) % 3, ("cat", "dog", "emu"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory, digits, quick):
    """Client 00 with 40 digits of the classes 0 to 4, and a hardly trained generator of each family."""
    folder = tmp_path_factory.mktemp("trained")
    rows = np.flatnonzero(digits.labels < 5)[:40]
    data = write_client(folder, digits.take(rows))
    for family in QUICK:
        params = quick(family, steps=2, data_fraction=1.0)
        train_generator([data], data.with_name(f"{family}.safetensors"), params=params, seed=1)
    return data.parent


@pytest.fixture(scope="session")
def setting(digits, quick):
    """A family, weights and records: enough of what a private step sees."""
    shape = ImageShape(channels=1, height=8, width=8, num_classes=10)

    def make(name, count=24):
        family = quick(name).build(shape)
        weights = family.initial(torch.Generator().manual_seed(4))
        some = digits.take(np.arange(count))
        return family, weights, torch.from_numpy(to_pixels(some.images)), torch.from_numpy(some.labels)

    return make


@pytest.fixture(scope="session")
def ledger_of():
    """The entries of the spend ledger beside a client's data."""

    def read(data):
        return [json.loads(line) for line in spend.beside(data.with_name("client.key")).read_text().splitlines()]

    return read


@pytest.fixture(scope="session")
def kinds_of(ledger_of):
    return lambda data: [entry["entry"] for entry in ledger_of(data)]
