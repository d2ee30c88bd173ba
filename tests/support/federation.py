"""The federation that tests build by hand: places, keys, a model, data, updates. Test folders add their own steps."""

import json

from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.ledgers import lineage, spend
from artifacts.metadata import Metadata
from stages.data.dataset_images import dataset_params, save_dataset
from stages.identity import identity, roster
from stages.keygen import settle


class Federation:
    """A run folder: a server and clients, each in its place. Keys are simulated, unless `found` makes real ones."""

    def __init__(self, root):
        self.root = root

    def place(self, name):
        return self.root / "server" if name == "server" else self.root / "clients" / name

    def key(self, name):
        return self.place(name) / "private" / ("server.key" if name == "server" else "client.key")

    def settle(self, name, key=None):
        """A key and an outbox for a participant that has none; returns its place."""
        if not self.key(name).exists():
            owner = "server" if name == "server" else f"client {name}"
            settle(self.key(name), key or keys.simulated(0, owner), force=False)
            (self.place(name) / "outbox").mkdir(exist_ok=True)
        return self.place(name)

    def found(self, path, names, federation=None):
        """Real keys, and a roster of all."""
        for name in names:
            settle(self.key(name), keys.generate(), force=True)
            identity(self.place(name) / "private/identity.json", force=True)
        roster([self.place(name) / "private/identity.json" for name in names], path, federation=federation, force=True)
        return path

    def begin(self, path, tensors, **about):
        """A public model of whatever tensors one likes."""
        metadata = Metadata(kind="model", stage="init-model", custody="public", versions={}, **about)
        tensors_file.write(path, tensors, metadata)
        return path

    def write_update(self, name, tensors, model, path=None):
        """What a client would have trained from a model."""
        start = tensors_file.read(model)
        number = (start.metadata.round or 0) + 1
        path = path or self.place(name) / f"private/update-{number:04}.safetensors"
        about = Metadata(
            kind="update", stage="train-client", custody="private", client=name, round=number, versions={},
            inputs=(lineage.by_digest(start, "model"),),
        )  # fmt: skip
        tensors_file.write(path, tensors, about, force=True)
        return path

    def ledger(self, name="00"):
        """The entries of a participant's spend ledger."""
        return [json.loads(line) for line in spend.beside(self.key(name)).read_text().splitlines()]

    def charged(self, name="server"):
        """The first event of every reservation that costs something."""
        return [entry["events"][0] for entry in self.ledger(name) if entry.get("events")]

    @staticmethod
    def write(path, content, **changes):
        """A dataset, client 00's own and made by `partition` unless it is said otherwise."""
        fields = {"kind": "dataset", "stage": "partition", "custody": "private", "client": "00", "versions": {}}
        save_dataset(path, content, Metadata(**fields | {"params": dataset_params(content)} | changes), force=True)
        return path
