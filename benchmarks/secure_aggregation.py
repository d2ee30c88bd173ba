"""A round of secure aggregation: seconds and bytes for one client and for the server, by clients and parameters.

Every client's steps are run through the files, as on the command line without the start of Python. Against a plain
round: `encode` at the client, `aggregate --as update` at the server. The last client drops after it sent its shares, so
that the server recovers a mask key too. Of the vectors of a large round few fit on a disk: with more than 4 GB of them
the mathematics are timed without files, one client's masks and the server's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from measuring import Row, Setting, seconds

from artifacts import keys as key_files
from artifacts import lineage, tensors_file
from artifacts.metadata import Metadata
from stages.aggregate import aggregate
from stages.encode import encode
from stages.identity import identity, roster
from stages.keygen import settle
from stages.methods.params.aggregation import Aggregation
from stages.methods.params.encoding import Encoding
from stages.secagg import client_steps, masks
from stages.secagg.collect import collect
from stages.secagg.mask import mask
from stages.secagg.primitives import new_pair
from stages.secagg.ring import Ring
from stages.secagg.terms import Terms
from stages.secagg.total import secure_sum
from stages.secagg.unmask import confirm, unmask

ABOUT = "a round of secure aggregation against encode and aggregate: one client, the server, bytes"
_MOST_BYTES = 4_000_000_000
_STEPS = ("keys", "shares", "masked", "survivors", "unmask")


def measure(setting: Setting) -> Iterator[Row]:
    sizes = ((3, 1000),) if setting.quick else ((10, 64_000), (100, 64_000), (10, 10_000_000), (100, 10_000_000))
    for clients, parameters in sizes:
        if clients * parameters * 8 > _MOST_BYTES:  # updates and masked vectors, four bytes each
            yield from _mathematics(clients, parameters)
        else:
            yield from _Run(setting.folder / f"{clients}-{parameters}", clients, parameters).rows()


class _Run:
    """One round over files; the times of a step are those of its clients, one after the other."""

    def __init__(self, folder: Path, clients: int, parameters: int) -> None:
        self.folder, self.parameters = folder, parameters
        self.names = [f"{i:03}" for i in range(clients)]
        self.taken: dict[str, list[float]] = {}
        self.model = folder / "public/model.safetensors"
        about = Metadata(kind="model", stage="init-model", custody="public", round=0, versions={})
        tensors_file.write(self.model, {"w": np.zeros(parameters, np.float32)}, about)
        start = lineage.by_digest(tensors_file.read(self.model), "model")
        rng = np.random.default_rng(0)
        for name in self.names:
            settle(self.private(name, "client.key"), key_files.generate(), force=False)
            identity(self.private(name, "identity.json"))
            update = Metadata(
                kind="update", stage="train-client", custody="private", client=name, round=1, versions={},
                inputs=(start,),
            )  # fmt: skip
            values = rng.uniform(-1, 1, parameters).astype(np.float32)
            tensors_file.write(self.private(name, "update.safetensors"), {"w": values}, update)
        self.roster = folder / "public/roster.json"
        roster([self.private(name, "identity.json") for name in self.names], self.roster)

    def private(self, name: str, file: str) -> Path:
        return self.folder / "clients" / name / "private" / file

    def up(self, name: str, step: str) -> Path:
        return self.folder / "clients" / name / "outbox" / f"{step}.safetensors"

    def down(self, step: str) -> Path:
        return self.folder / "server/outbox" / f"{step}.safetensors"

    def time(self, step: str, act: Callable[[], object]) -> None:
        start = time.perf_counter()
        act()
        self.taken.setdefault(step, []).append(time.perf_counter() - start)

    def collect(self, step: str, to: str, who: list[str], terms: Terms | None = None) -> None:
        files = [self.up(name, step) for name in who]
        keys = None if step == "keys" else self.down("keys")
        self.time("collect", lambda: collect(files, self.down(to), roster=self.roster, keys=keys, terms=terms))

    def rows(self) -> Iterator[Row]:
        there = self.names[:-1]
        for name in self.names:
            self.time("keys", lambda n=name: client_steps.keys(self.up(n, "keys"), round=1))  # type: ignore[misc]
        self.collect("keys", "keys", self.names, Terms(range=1.0))
        for name in self.names:
            self.time(
                "shares",
                lambda n=name: client_steps.shares(self.down("keys"), self.up(n, "shares"), roster=self.roster),  # type: ignore[misc]
            )
        self.collect("shares", "shares", self.names)
        for name in there:
            update = self.private(name, "update.safetensors")
            self.time("mask", lambda n=name, u=update: mask(self.down("shares"), self.model, u, self.up(n, "masked")))  # type: ignore[misc]
        self.collect("masked", "survivors-list", there)
        for name in there:
            self.time("confirm", lambda n=name: confirm(self.down("survivors-list"), self.up(n, "survivors")))  # type: ignore[misc]
        self.collect("survivors", "confirmed", there)
        for name in there:
            self.time("unmask", lambda n=name: unmask(self.down("confirmed"), self.up(n, "unmask")))  # type: ignore[misc]
        files = [self.up(name, step) for step in ("masked", "unmask") for name in there]
        self.time(
            "sum",
            lambda: secure_sum(
                files, self.folder / "server/private/sum.safetensors", roster=self.roster, keys=self.down("keys"),
                shares=self.down("shares"), survivors=self.down("confirmed"),
            ),
        )  # fmt: skip
        for name in there:
            update = self.private(name, "update.safetensors")
            self.time(
                "encode", lambda n=name, u=update: encode(self.model, u, self.up(n, "message"), params=Encoding())
            )  # type: ignore[misc]
        messages = [self.up(name, "message") for name in there]
        plain = self.folder / "server/private/plain.safetensors"
        self.time("aggregate", lambda: aggregate(self.model, messages, plain, params=Aggregation(), result="update"))
        yield from self._told(there[0])

    def _told(self, name: str) -> Iterator[Row]:
        what = f"{len(self.names)} clients, {self.parameters:,} parameters"
        middle = {step: float(np.median(times)) for step, times in self.taken.items()}
        client = sum(middle[step] for step in ("keys", "shares", "mask", "confirm", "unmask"))
        yield _row(f"{what}: a client", "encode", client, middle["encode"], seconds, middle)
        server = sum(self.taken["collect"]) + middle["sum"]
        yield _row(f"{what}: the server", "aggregate", server, middle["aggregate"], seconds, {"sum": middle["sum"]})
        sent = sum(self.up(name, step).stat().st_size for step in _STEPS)
        yield _row(
            f"{what}: sent by a client", "its message", sent, self.up(name, "message").stat().st_size, _bytes, {}
        )
        lists = sum(self.down(step).stat().st_size for step in ("keys", "survivors-list", "confirmed"))
        every = self.down("shares").stat().st_size
        own = lists + every // len(self.names)  # `collect --for`
        yield _row(f"{what}: sent to a client (--for)", "one list for all", own, lists + every, _bytes, {})


def _mathematics(clients: int, parameters: int) -> Iterator[Row]:
    """Quantising and masking at one client; the masks that the server takes off, one client having dropped."""
    names, session = [f"{i:03}" for i in range(clients)], "0" * 64
    pairs = {name: new_pair() for name in names}
    values = np.random.default_rng(0).uniform(-1, 1, parameters).astype(np.float32)
    ring = Ring.plain(modulus=32, reach=1.0, bits=20)
    publics = {name: pair.public for name, pair in pairs.items() if name != names[0]}
    start = time.perf_counter()
    total = masks.masked(
        ring.quantised(values), client=names[0], seed=os.urandom(32), secret=pairs[names[0]].secret, publics=publics,
        session=session,
    )  # fmt: skip
    client = time.perf_counter() - start
    start = time.perf_counter()
    masks.uncover(
        total, session=session, seeds={name: os.urandom(32) for name in names[:-1]},
        dropped={names[-1]: pairs[names[-1]].secret}, publics={name: pairs[name].public for name in names[:-1]},
    )  # fmt: skip
    server = time.perf_counter() - start
    start = time.perf_counter()
    values.astype(np.float64) + 1.0
    plain = time.perf_counter() - start
    what = f"{clients} clients, {parameters:,} parameters, no files"
    yield _row(f"{what}: a client", "one addition", client, plain, seconds, {})
    yield _row(f"{what}: the server", f"{clients - 1} additions", server, plain * (clients - 1), seconds, {})


def _row(
    what: str, against: str, ours: float, theirs: float, spell: Callable[[float], str], raw: dict[str, float]
) -> Row:
    return Row(what=what, against=against, ours=spell(ours), theirs=spell(theirs), ratio=ours / theirs, raw=raw)


def _bytes(value: float) -> str:
    return f"{value / 1e6:.2f} MB" if value >= 1e5 else f"{value / 1e3:.1f} kB"
