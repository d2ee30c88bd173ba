"""Rounds of secure aggregation over files, in one process: real keys, updates that are whatever one likes."""

import itertools

import numpy as np
import pytest
from federation import Federation

from artifacts.formats import tensors_file
from stages.encode import encode
from stages.methods.params.encoding import DeltaEncoding
from stages.secagg import client_steps
from stages.secagg.collect import collect
from stages.secagg.mask import mask
from stages.secagg.terms import SecaggTerms
from stages.secagg.total import secure_sum
from stages.secagg.unmask import confirm, unmask

SHAPES = {"layer.bias": (3,), "layer.weight": (3, 5)}
NAMES = tuple("abcdefghi")


class Round(Federation):
    """Each step is a method, for the clients that take part in it. `down` and `up` are where its files are."""

    def __init__(self, folder, clients=3, shapes=None, round=1):
        super().__init__(folder)
        self.names, self.round = NAMES[:clients], round
        self.shapes = shapes or SHAPES
        self.rng = np.random.default_rng(0)
        zeros = {name: np.zeros(shape, np.float32) for name, shape in self.shapes.items()}
        self.model = self.begin(folder / "public/model.safetensors", zeros, round=round - 1)
        self.roster = self.found(folder / "public/roster.json", self.names)
        self.updates = {name: self.update(name) for name in self.names}

    def up(self, name, step):
        return self.place(name) / f"outbox/secagg-{step}-{self.round:04}.safetensors"

    def down(self, step):
        return self.root / f"server/outbox/secagg-{step}-{self.round:04}.safetensors"

    def update(self, name, values=None, file="update"):
        drawn = {n: self.rng.uniform(-1, 1, shape).astype(np.float32) for n, shape in self.shapes.items()}
        path = self.place(name) / f"private/{file}-{self.round:04}.safetensors"
        return self.write_update(name, drawn if values is None else values, self.model, path)

    def noised(self, name, **params):
        """The update with its share of noise, written where it does not leave."""
        settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "least_clients": 2, **params}
        out = self.place(name) / f"private/message-{self.round:04}.safetensors"
        encode(self.model, self.updates[name], out, params=DeltaEncoding(**settings), force=True)
        self.updates[name] = out
        return out

    def keys(self, who=None, **terms):
        for name in who or self.names:
            client_steps.keys(self.up(name, "keys"), round=self.round)
        sent = [self.up(name, "keys") for name in who or self.names]
        # A bare majority, the least that is sound: what happens at the edge is what is tested.
        usual = {"range": 1.0, "threshold": len(sent) // 2 + 1}
        collect(sent, self.down("keys"), roster=self.roster, params=SecaggTerms(**(usual | terms)))

    def shares(self, who=None):
        for name in who or self.names:
            client_steps.shares(self.down("keys"), self.up(name, "shares"), roster=self.roster)
        self.collect("shares", who)

    def mask(self, name, force=False):
        return mask(self.down("shares"), self.model, self.updates[name], self.up(name, "masked"), force=force)

    def masks(self, who=None):
        for name in who or self.names:
            self.mask(name)
        self.collect("masked", who, "survivors")

    def confirm(self, who=None):
        for name in who or self.names:
            confirm(self.down("survivors"), self.up(name, "survivors"))
        self.collect("survivors", who, "confirmed")

    def unmask(self, who=None):
        for name in who or self.names:
            unmask(self.down("confirmed"), self.up(name, "unmask"))

    def collect(self, step, who=None, to=None, force=False):
        files = [self.up(name, step) for name in who or self.names]
        collect(files, self.down(to or step), roster=self.roster, keys=self.down("keys"), force=force)

    def sum(self, survivors=None, answers=None, result="sum"):
        out = self.root / f"server/private/{result}.safetensors"
        files = [self.up(name, "masked") for name in survivors or self.names]
        files += [self.up(name, "unmask") for name in answers or survivors or self.names]
        secure_sum(
            files, out, roster=self.roster, keys=self.down("keys"), shares=self.down("shares"),
            survivors=self.down("confirmed"), result=result, force=True,
        )  # fmt: skip
        return tensors_file.read(out)

    def plain_sum(self, survivors=None):
        """What the sum must be, with Python's whole numbers, in steps."""
        step = 1.0 / (2**19 - 1)
        totals = {name: np.zeros(shape, object) for name, shape in self.shapes.items()}
        for client, name in itertools.product(survivors or self.names, self.shapes):
            values = tensors_file.read(self.updates[client]).tensors[name].astype(np.float64)
            totals[name] = totals[name] + np.vectorize(lambda x: round(x / step), otypes=[object])(values)
        return totals, step

    def whole(self, **terms):
        self.keys(**terms)
        self.shares()
        self.masks()
        self.confirm()
        self.unmask()
        return self


@pytest.fixture
def begin(tmp_path):
    counter = itertools.count()
    return lambda clients=3, **more: Round(tmp_path / f"run{next(counter)}", clients, **more)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A whole round of three clients: made once, never changed."""
    return Round(tmp_path_factory.mktemp("secagg") / "run").whole()


@pytest.fixture(scope="session")
def round_class():
    return Round
