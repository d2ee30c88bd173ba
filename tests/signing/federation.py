"""A federation of two clients and a server with real keys; messages from random numbers, encoded as clients do."""

import numpy as np

from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from stages.encode import encode
from stages.identity import identity, roster
from stages.keygen import settle
from stages.methods.params.encoding import DeltaEncoding
from stages.receipt import ask


class Federation:
    names = ("a", "b")

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

    def found(self, path, federation=None):
        everybody = [*self.names, "server"]
        for name in everybody:
            settle(self.key(name), keys.generate(), force=True)
            identity(self.place(name) / "private/identity.json", force=True)
        identities = [self.place(name) / "private/identity.json" for name in everybody]
        roster(identities, path, federation=federation, force=True)

    def send(self, name, round=1, model=None, **params):
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
        encode(began, update, self.message(name, round), params=DeltaEncoding(**params))

    def begin(self, path, round=0):
        zeros = {"layer.bias": np.zeros(3, np.float32), "layer.weight": np.zeros((3, 5), np.float32)}
        about = Metadata(kind="model", stage="init-model", custody="public", round=round, versions={})
        tensors_file.write(path, zeros, about)
        return path

    def ask(self, name, round=1):
        ask(self.head(name, round), roster=self.roster, round=round)
        return self.head(name, round)
