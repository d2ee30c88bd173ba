"""A federation of two clients and a server with real keys; messages from random numbers, encoded as clients do."""

import numpy as np
from federation import Federation

from artifacts.formats import tensors_file
from stages.encode import encode
from stages.methods.params.encoding import DeltaEncoding
from stages.receipt import ask


class Signed(Federation):
    names = ("a", "b")

    def __init__(self, root):
        super().__init__(root)
        self.model = root / "public/model.safetensors"
        self.roster = root / "public/roster.json"

    def message(self, name, round=1):
        return self.place(name) / f"outbox/message-{round:04}.safetensors"

    def envelope(self, name, round=1):
        return self.place(name) / f"outbox/message-{round:04}.safetensors.intoto.jsonl"

    def head(self, name, round=1):
        return self.place(name) / f"outbox/head-{round:04}.intoto.jsonl"

    def receipts(self, round=1):
        return self.root / f"server/outbox/receipts-{round:04}.intoto.jsonl"

    def found(self, path, federation=None):
        return super().found(path, [*self.names, "server"], federation)

    def send(self, name, round=1, model=None, **params):
        """A message of this round from random numbers, encoded as a client does."""
        began = model or self.model
        rng = np.random.default_rng([round, *name.encode()])
        drawn = {n: rng.uniform(-1, 1, t.shape).astype(np.float32) for n, t in tensors_file.read(began).tensors.items()}
        update = self.write_update(name, drawn, began, self.place(name) / f"private/update-{round:04}.safetensors")
        encode(began, update, self.message(name, round), params=DeltaEncoding(**params))

    def begin(self, path, round=0):
        zeros = {"layer.bias": np.zeros(3, np.float32), "layer.weight": np.zeros((3, 5), np.float32)}
        return super().begin(path, zeros, round=round)

    def ask(self, name, round=1):
        ask(self.head(name, round), roster=self.roster, round=round)
        return self.head(name, round)
