"""A federation of two clients and a server with real keys, one round of messages, all of it signed."""

import shutil

import numpy as np
import pytest

from artifacts import keys, lineage, tensors_file
from artifacts.metadata import Metadata
from stages.encode import encode
from stages.identity import identity, roster
from stages.keygen import settle
from stages.methods.params.encoding import Encoding
from stages.receipt import ask
from stages.sign import sign

NAMES = ("a", "b")


class Federation:
    def __init__(self, root):
        self.root = root
        self.model = root / "public/model.safetensors"
        self.roster = root / "public/roster.json"

    def place(self, name):
        return self.root / "server" if name == "server" else self.root / "clients" / name

    def key(self, name):
        return self.place(name) / "private" / ("server.key" if name == "server" else "client.key")

    def message(self, name, round=1):
        return self.place(name) / f"outbox/message-{round:04}.safetensors"

    def envelope(self, name, round=1):
        return self.place(name) / f"outbox/message-{round:04}.safetensors.intoto.jsonl"

    def head(self, name, round=1):
        return self.place(name) / f"outbox/head-{round:04}.intoto.jsonl"

    def receipts(self, round=1):
        return self.root / f"server/outbox/receipts-{round:04}.intoto.jsonl"

    def found(self, path, names=NAMES, federation=None):
        everybody = [*names, "server"]
        for name in everybody:
            settle(self.key(name), keys.generate(), force=True)
            identity(self.place(name) / "private/identity.json", force=True)
        identities = [self.place(name) / "private/identity.json" for name in everybody]
        roster(identities, path, federation=federation, force=True)

    def send(self, name, round=1, model=None):
        """A message of this round from random numbers, encoded as a client does."""
        began = model or self.model
        rng = np.random.default_rng([round, *name.encode()])
        start = tensors_file.read(began)
        drawn = {n: rng.uniform(-1, 1, t.shape).astype(np.float32) for n, t in start.tensors.items()}
        update = self.place(name) / f"private/update-{round:04}.safetensors"
        about = Metadata(
            kind="update", stage="train-client", custody="private", client=name, round=round, versions={},
            inputs=(lineage.by_digest(start, "model"),),
        )  # fmt: skip
        tensors_file.write(update, drawn, about)
        encode(began, update, self.message(name, round), params=Encoding())

    def begin(self, path, round=0):
        zeros = {"layer.bias": np.zeros(3, np.float32), "layer.weight": np.zeros((3, 5), np.float32)}
        about = Metadata(kind="model", stage="init-model", custody="public", round=round, versions={})
        tensors_file.write(path, zeros, about)
        return path

    def ask(self, name, round=1):
        ask(self.head(name, round), roster=self.roster, round=round)
        return self.head(name, round)


@pytest.fixture(scope="session")
def signed_federation(tmp_path_factory):
    """Made once, never changed."""
    made = Federation(tmp_path_factory.mktemp("signing") / "run")
    made.found(made.roster)
    made.begin(made.model)
    for name in NAMES:
        made.send(name)
        sign([made.message(name)], roster=made.roster)
    return made


@pytest.fixture
def federation(signed_federation, tmp_path):
    """A copy to change."""
    shutil.copytree(signed_federation.root, tmp_path / "run")
    return Federation(tmp_path / "run")


@pytest.fixture
def empty(tmp_path):
    return lambda folder: Federation(tmp_path / folder)
