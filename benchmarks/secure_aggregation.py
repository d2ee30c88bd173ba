"""A round of secure aggregation: seconds and bytes for one client and for the server, by clients and parameters.

Every client's steps are run through the files, as on the command line without the start of Python. Against a plain
round: `encode` at the client, `aggregate --as update` at the server. The last client drops after it sent its shares, so
that the server recovers a mask key too. `sparse` is `--graph sparse` with a tenth of colluders and a threshold of 95%.

Of a round with more than 4 GB of vectors a sample is run: all clients' keys and shares, three clients' masks, and at
the server the reading of these three files. Of one with 1,000 clients: all keys, three clients' shares, and in memory
the masks of one and of the server, over a graph drawn as clients draw it. A twentieth of the clients drop there; the
time of the masks that the server takes off is that of a few, times their number. Signing the survivors and answering do
not depend on the number of parameters; there they are left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Row, Setting, seconds

from artifacts.formats import tensors_file
from artifacts.identity import keys as key_files
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from stages.aggregate import aggregate
from stages.encode import encode
from stages.identity import identity, roster
from stages.keygen import settle
from stages.methods.averaging import WeightedMean
from stages.methods.params.aggregation import MeanRule
from stages.methods.params.encoding import DeltaEncoding
from stages.secagg import client_steps, masks
from stages.secagg.collect import CIPHERTEXT_BYTES, collect, for_reader
from stages.secagg.graph import drawn
from stages.secagg.mask import mask
from stages.secagg.primitives import new_pair
from stages.secagg.roster import read_roster
from stages.secagg.session import Session, read_session
from stages.secagg.terms import SecaggTerms
from stages.secagg.total import secure_sum
from stages.secagg.unmask import confirm, unmask
from stages.secagg.vectors import Vectors

TITLE = "Secure aggregation"
_MOST_BYTES = 4_000_000_000
_FEW = 3
_SAMPLE = 25  # masks of either kind that the server takes off
_STEPS = ("keys", "shares", "masked", "survivors", "unmask")


def measure(setting: Setting) -> Iterator[Row]:
    sizes = [(3, 1000, False)] if setting.smoke else [(10, 64_000, False), (100, 64_000, False), (100, 64_000, True)]
    if not setting.smoke:
        sizes.append((10, 10_000_000, False))
    if setting.full:
        sizes += [(100, 10_000_000, True), (1000, 64_000, True), (1000, 10_000_000, True)]
    for clients, parameters, sparse in sizes:
        folder = setting.folder / f"{clients}-{parameters}-{sparse}"
        terms = SecaggTerms(range=1.0)
        if sparse:
            terms = SecaggTerms(range=1.0, graph="sparse", threshold=clients - clients // 20)
        if clients >= 1000:
            yield from _Run(folder, clients, parameters, terms, masking=0).sample()
        elif clients * parameters * 8 > _MOST_BYTES:  # updates and masked vectors, four bytes each
            yield from _Run(folder, clients, parameters, terms, masking=_FEW).part()
        else:
            yield from _Run(folder, clients, parameters, terms, masking=clients - 1).rows()


class _Run:
    """One round over files; the times of a step are those of its clients, one after the other."""

    def __init__(self, folder: Path, clients: int, parameters: int, terms: SecaggTerms, *, masking: int) -> None:
        self.folder, self.parameters, self.terms = folder, parameters, terms
        self.what = f"{clients} clients, {parameters:,} parameters" + (", sparse" if terms.graph == "sparse" else "")
        self.names = [f"{i:04}" for i in range(clients)]
        self.there = self.names[:masking]
        self.taken: dict[str, list[float]] = {}
        self.processor: dict[str, list[float]] = {}
        self.model = folder / "public/model.safetensors"
        about = Metadata(kind="model", stage="init-model", custody="public", round=0, versions={})
        tensors_file.write(self.model, {"w": np.zeros(parameters, np.float32)}, about)
        start = lineage.by_digest(tensors_file.read(self.model), "model")
        rng = np.random.default_rng(0)
        for name in self.names:
            settle(self.private(name, "client.key"), key_files.generate(), force=False)
            identity(self.private(name, "identity.json"))
            if name not in self.there:
                continue
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
        start, used = time.perf_counter(), time.process_time()
        act()
        self.taken.setdefault(step, []).append(time.perf_counter() - start)
        self.processor.setdefault(step, []).append(time.process_time() - used)

    def middle(self, *steps: str) -> float:
        """Of the processor's time, which others on the machine do not change much: the sum of the steps' medians."""
        return sum(float(np.median(self.processor[step])) for step in steps)

    def collect(self, step: str, to: str, who: list[str]) -> None:
        files = [self.up(name, step) for name in who]
        given: dict[str, Any] = {"params": self.terms} if step == "keys" else {"keys": self.down("keys")}
        if step == "shares":
            given["each"] = True
        self.time("collect", lambda: collect(files, self.down(to), roster=self.roster, **given))

    def mask(self) -> None:
        """Keys and shares of all clients, and the masked updates of those who have one."""
        for name in self.names:
            self.time("keys", lambda n=name: client_steps.keys(self.up(n, "keys"), round=1))  # type: ignore[misc]
        self.collect("keys", "keys", self.names)
        for name in self.names:
            self.time(
                "shares",
                lambda n=name: client_steps.shares(self.down("keys"), self.up(n, "shares"), roster=self.roster),  # type: ignore[misc]
            )
        self.collect("shares", "shares", self.names)
        for name in self.there:
            update = self.private(name, "update.safetensors")
            own = for_reader(self.down("shares"), name)
            self.time("mask", lambda n=name, u=update, o=own: mask(o, self.model, u, self.up(n, "masked")))  # type: ignore[misc]

    def encode(self) -> None:
        for name in self.there:
            update = self.private(name, "update.safetensors")
            self.time(
                "encode", lambda n=name, u=update: encode(self.model, u, self.up(n, "message"), params=DeltaEncoding())
            )  # type: ignore[misc]

    def part(self) -> Iterator[Row]:
        """One client's masks through the files, the server's reading of a few of them, and the masks of all there."""
        self.mask()
        self.encode()
        known = read_roster(self.roster)
        session = read_session(self.down("keys"), known)
        vectors = Vectors(session, known)
        for name in self.there:
            self.time("add", lambda n=name: vectors.add(self.up(n, "masked")))  # type: ignore[misc]
        drew = {n: set(tensors_file.read(self.up(n, "shares")).metadata.params["receivers"]) for n in self.names}
        sampled = list(self._masks(session, drew))
        average = WeightedMean()
        for name in self.there:
            read = self.up(name, "message")
            self.time("average", lambda f=read: average.add(tensors_file.read(f).tensors, 1))  # type: ignore[misc]
        middle = {step: float(np.median(times)) for step, times in self.taken.items()}
        what = self.what
        client = middle["keys"] + middle["shares"] + middle["mask"]
        yield _row(f"{what}: a client, to its mask", "encode", client, middle["encode"], seconds, middle)
        used = self.middle("keys", "shares", "mask")
        yield _row(f"{what}: its processor time", "encode", used, self.middle("encode"), seconds, {})
        yield _row(f"{what}: reading one", "reading a message", middle["add"], middle["average"], seconds, {})
        yield _row(f"{what}: its processor time", "a message", self.middle("add"), self.middle("average"), seconds, {})
        yield from sampled
        name = self.there[0]
        masked, message = (self.up(name, file).stat().st_size for file in ("masked", "message"))
        yield _row(f"{what}: the masked update", "a message", masked, message, _bytes, {})

    def sample(self) -> Iterator[Row]:
        """A client's keys and shares by those of a few, and the masks, in memory, over a graph that is drawn here."""
        for name in self.names:
            self.time("keys", lambda n=name: client_steps.keys(self.up(n, "keys"), round=1))  # type: ignore[misc]
        self.collect("keys", "keys", self.names)
        for name in self.names[:_FEW]:
            self.time(
                "shares",
                lambda n=name: client_steps.shares(self.down("keys"), self.up(n, "shares"), roster=self.roster),  # type: ignore[misc]
            )
        session = read_session(self.down("keys"), read_roster(self.roster))
        assert session.neighbours is not None
        drew = {n: set(drawn([m for m in self.names if m != n], session.neighbours)) for n in self.names}
        used, file = self.middle("keys", "shares"), self.up(self.names[0], "shares").stat().st_size
        everybody = len(self.names) * CIPHERTEXT_BYTES
        yield Row(what=f"{self.what}: a client's keys and shares, processor time", ours=seconds(used))
        yield _row(f"{self.what}: its shares", "for everybody, at least", file, everybody, _bytes, {})
        yield from self._masks(session, drew)

    def _masks(self, session: Session, drew: Mapping[str, set[str]]) -> Iterator[Row]:
        """Processor seconds of the masks of one client and of the server, against those of a complete graph."""
        gone = self.names[-max(1, len(self.names) // 20) :]
        there = self.names[: -len(gone)]
        name, vector = there[0], np.zeros(self.parameters, np.uint32)
        others = {n: session.mask_keys[n] for n in self.names if n != name}
        peers = {n: key for n, key in others.items() if n in drew[name] or name in drew[n]}
        for step, publics in (("few", peers), ("many", others)):
            self.time(
                step,
                lambda p=publics: masks.masked(  # type: ignore[misc]
                    vector, client=name, seed=os.urandom(32), secret=new_pair().secret, publics=p, session=session.id
                ),
            )
        few, many = self.middle("few"), self.middle("many")
        what = f"{self.what}: a client's masks with {len(peers)}, processor time"
        yield _row(what, f"with all {len(others)}", few, many, seconds, {})
        pairs = {u: [v for v in there if v in drew[u] or u in drew[v]] for u in gone}
        some, one = there[:_SAMPLE], gone[0]  # whose masks these are does not matter for their time
        known = {one: {n: session.mask_keys[n] for n in pairs[one][:_SAMPLE]}}
        self.time(
            "uncover",
            lambda: masks.uncover(
                vector, session=session.id, seeds={n: os.urandom(32) for n in some},
                dropped={one: new_pair().secret}, publics=known,
            ),
        )  # fmt: skip
        each = self.middle("uncover") / (len(some) + len(known[one]))
        streams, complete = len(there) + sum(map(len, pairs.values())), len(there) * (1 + len(gone))
        what = f"{self.what}: the server takes off {streams:,} masks, {len(gone)} dropped, by a sample"
        yield _row(what, f"{complete:,}", each * streams, each * complete, seconds, {})

    def rows(self) -> Iterator[Row]:
        there = self.there
        self.mask()
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
        self.encode()
        messages = [self.up(name, "message") for name in there]
        plain = self.folder / "server/private/plain.safetensors"
        self.time("aggregate", lambda: aggregate(self.model, messages, plain, params=MeanRule(), result="update"))
        yield from self._stated(there[0])

    def _stated(self, name: str) -> Iterator[Row]:
        what = self.what
        middle = {step: float(np.median(times)) for step, times in self.taken.items()}
        client = sum(middle[step] for step in ("keys", "shares", "mask", "confirm", "unmask"))
        yield _row(f"{what}: a client", "encode", client, middle["encode"], seconds, middle)
        used = self.middle("keys", "shares", "mask", "confirm", "unmask")
        yield _row(f"{what}: its processor time", "encode", used, self.middle("encode"), seconds, {})
        server = sum(self.taken["collect"]) + middle["sum"]
        yield _row(f"{what}: the server", "aggregate", server, middle["aggregate"], seconds, {"sum": middle["sum"]})
        used = sum(self.processor["collect"]) + self.middle("sum")
        yield _row(f"{what}: its processor time", "aggregate", used, self.middle("aggregate"), seconds, {})
        sent = sum(self.up(name, step).stat().st_size for step in _STEPS)
        yield _row(
            f"{what}: sent by a client", "its message", sent, self.up(name, "message").stat().st_size, _bytes, {}
        )
        lists = sum(self.down(step).stat().st_size for step in ("keys", "survivors-list", "confirmed"))
        own = lists + for_reader(self.down("shares"), name).stat().st_size
        whole = len(self.names) ** 2 * CIPHERTEXT_BYTES  # if all shares went to everybody
        yield _row(f"{what}: sent to a client", "one list for all", own, lists + whole, _bytes, {})


def _row(
    what: str, against: str, ours: float, theirs: float, spell: Callable[[float], str], raw: dict[str, float]
) -> Row:
    return Row(what=what, against=against, ours=spell(ours), theirs=spell(theirs), ratio=ours / theirs, raw=raw)


def _bytes(value: float) -> str:
    return f"{value / 1e6:.2f} MB" if value >= 1e5 else f"{value / 1e3:.1f} kB"
