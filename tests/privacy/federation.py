"""A small federation for the tests of client-level privacy: a server, clients, messages, noise drawn again."""

import numpy as np
from federation import Federation

from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.ledgers import lineage
from stages.aggregate import aggregate
from stages.encode import encode
from stages.execution.versions import versions
from stages.methods.params.encoding import DeltaEncoding
from stages.privacy.events import PrivacyEvent
from stages.privacy.streams import SecretStream
from stages.registry import RULES

CENTRAL = {"rule": "dp-mean", "clip_norm": 1.0, "noise_multiplier": 0.5, "sampling_rate": 0.5, "clients": 8}


def flat(tensors):
    return np.concatenate([np.ravel(tensors[name]).astype(np.float64) for name in sorted(tensors)])


class ClientPrivacy(Federation):
    """A model that is whatever tensors one likes."""

    def __init__(self, root, tensors):
        super().__init__(root)
        self.tensors, self.server = tensors, self.settle("server")
        self.start = self.begin(root / "public/model-0000.safetensors", tensors)

    def client(self, name):
        return self.settle(name)

    def update(self, name, values, model=None):
        self.settle(name)
        return self.write_update(name, self.shaped(values, self.tensors), model or self.start)

    def message(self, name, values, model=None, before=None, **params):
        update = self.update(name, values, model)
        out = self.client(name) / f"outbox/message-{update.stem[-4:]}.safetensors"
        encode(model or self.start, update, out, params=DeltaEncoding(**params), before=before, force=True)
        return out

    def aggregate(self, messages, model=None, name=None, **params):
        model = model or self.start
        number = (tensors_file.read(model).metadata.round or 0) + 1
        out = self.server / f"outbox/{name or f'model-{number:04}'}.safetensors"
        before = params.pop("before", None)
        aggregate(model, messages, out, params=RULES.from_mapping({**CENTRAL, **params}), before=before, force=True)
        return out

    def moved(self, out, model=None):
        """By how much the model moved: the noised mean."""
        return flat(tensors_file.read(model or self.start).tensors) - flat(tensors_file.read(out).tensors)

    def noise(self, messages, scale, params, model=None):
        """The noise of an aggregate, drawn again with the key."""
        start = tensors_file.read(model or self.start)
        inputs = [lineage.by_digest(start, "model")]
        inputs += [lineage.by_digest(tensors_file.read(path), "message") for path in messages]
        context = {
            "inputs": [reference.to_json() for reference in inputs],
            "params": {**start.metadata.params, **RULES.from_mapping({**CENTRAL, **params}).to_json()},
            "seed": None, "stage": "aggregate", "client": None, "round": (start.metadata.round or 0) + 1,
            "versions": versions("numpy", "scipy"), "device": "cpu", "arithmetic": "float64",
        }  # fmt: skip
        stream = SecretStream(keys.read(self.server / "private/server.key").secret, context, "noise")
        return np.concatenate([np.ravel(stream.gaussian(self.tensors[n].shape, scale)) for n in sorted(self.tensors)])

    def events(self, path):
        return [PrivacyEvent.from_json(event) for event in tensors_file.read(path).metadata.privacy]

    @staticmethod
    def shaped(values, like):
        """A flat vector as tensors, in the order of their names."""
        ends = np.cumsum([like[name].size for name in sorted(like)])[:-1]
        parts = np.split(np.asarray(values, np.float32), ends)
        return {name: part.reshape(like[name].shape) for name, part in zip(sorted(like), parts, strict=True)}

    @staticmethod
    def values(seed, norm):
        """An update of ten numbers, so long."""
        x = np.random.default_rng(seed).normal(size=10)
        return x * norm / np.linalg.norm(x)

    @staticmethod
    def sent(path):
        """What a message holds, as one vector."""
        return flat(tensors_file.read(path).tensors)
