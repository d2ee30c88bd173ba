"""What someone could do to a run, case by case, and the check that must say so.

Not a test: the fixture `helper` hands this module out. Two kinds of people: one who changes bytes, and an insider who
has the writer and the key, so that digests, seals and the ledger fit again.
"""

import base64
import json
import shutil
import struct
import zlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from artifacts import dataset_file, keys, ledger, tensors_file
from artifacts.commitments import commit
from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.envelope_file import write as write_envelopes
from artifacts.metadata import InputRef
from artifacts.roster import read_roster, signing_key
from artifacts.statements import on_file
from stages.data.png import encode_png

KINDS = (
    "message", "surrogate", "proxy", "state", "dataset", "secagg-keys", "secagg-shares", "secagg-masked",
    "secagg-survivors", "secagg-unmask", "envelope", "head",
)  # fmt: skip
FILES = {kind: f"{kind}-0001.safetensors" for kind in KINDS} | {
    "dataset": "synthetic.parquet",
    "envelope": "message-0001.safetensors.intoto.jsonl",
    "head": "head-0002.intoto.jsonl",
}
CASES = {}


def case(check, what, *, group="content", or_else=None):
    """A case: the check that must catch it, and what is done in words."""

    def enter(function):
        assert what not in CASES
        CASES[what] = SimpleNamespace(check=check, checks={check, or_else}, group=group, do=function)
        return function

    return enter


class Run:
    """A copy of the run, and client 01 in it."""

    def __init__(self, root, forge):
        self.root, self.forge = root, forge
        self.client, self.other = root / "clients/01", root / "clients/00"
        self.out, self.private = self.client / "outbox", self.client / "private"
        self.ledger = self.client / "egress.jsonl"

    def path(self, kind):
        return self.out / FILES[kind]

    @property
    def key(self):
        return keys.read(self.private / "client.key")

    def enter(self, path, metadata):
        """The insider's ledger: written from the start, with the bytes that are there now."""
        entries = ledger.read(self.ledger).entries
        self.ledger.unlink()
        with ledger.locked(self.ledger) as book:
            for entry in entries:
                about = metadata if entry.file == path.name else _told(entry)
                data = (self.out / entry.file).read_bytes()
                book.enter(file=entry.file, sha256=sha256_hex(data), size=len(data), metadata=about)

    def rewrite(self, kind, tensors=None, file=None, **changes):
        """A file again with other tensors or metadata, by the writer, and the ledger to it. No receipt is left."""
        path = self.out / file if file else self.path(kind)
        found = tensors_file.read(path)
        about = replace(found.metadata, **changes)
        path.unlink()
        elsewhere = self.root / "elsewhere/outbox" / path.name
        tensors_file.write(elsewhere, dict(found.tensors) | (tensors or {}), about)
        self._put(elsewhere, path, about)

    def rewrite_dataset(self, pngs=None, labels=None, **changes):
        path = self.path("dataset")
        found = dataset_file.read(path)
        about = replace(found.metadata, **changes)
        path.unlink()
        elsewhere = self.root / "elsewhere/outbox" / path.name
        rows = found.pngs.to_pylist() if pngs is None else pngs
        dataset_file.write(elsewhere, rows, found.labels if labels is None else labels, about)
        self._put(elsewhere, path, about)

    def forged(self, kind, **how):
        """The file with its header changed and its digests computed anew, and the ledger to it."""
        path = self.path(kind)
        about = tensors_file.read(path).metadata
        path.write_bytes(self.forge.forge_tensors(path.read_bytes(), **how))
        self._put(path, path, about)

    def _put(self, source, path, about):
        if source != path:
            shutil.copy(source, path)
        shutil.rmtree(self.root / "elsewhere", ignore_errors=True)
        for receipt in (self.root / "server/outbox").glob("receipt*"):
            receipt.unlink()
        self.enter(path, about)

    def lines(self):
        return self.ledger.read_text().splitlines()

    def write_lines(self, lines):
        self.ledger.write_text("\n".join(lines) + "\n")


def _told(entry):
    """Of an entry, what `enter` asks of metadata."""
    params = {"picked": True} if entry.picked else {}
    return SimpleNamespace(
        kind=entry.kind, round=entry.round, params=params, privacy=entry.privacy, disclosures=entry.disclosures
    )


# Bytes that are changed, file by file.


def _flips(kind):
    @case("digest", f"a bit flipped at the end of a {kind}", group="bytes")
    def flip_last(run):
        data = bytearray(run.path(kind).read_bytes())
        data[-1 if kind not in ("envelope", "head") else -40] ^= 1
        run.path(kind).write_bytes(data)

    # There the metadata may stand, which then do not say what they must.
    @case("digest", f"a bit flipped in the middle of a {kind}", group="bytes", or_else="params")
    def flip_middle(run):
        data = bytearray(run.path(kind).read_bytes())
        data[len(data) // 2] ^= 4
        run.path(kind).write_bytes(data)

    @case("digest", f"another client's {kind} in its place", group="bytes")
    def swap(run):
        if kind == "dataset":
            about = replace(dataset_file.read(run.path(kind)).metadata, client="00")
            found = dataset_file.read(run.path(kind))
            dataset_file.write(run.root / "x/outbox/s.parquet", found.pngs.to_pylist(), found.labels, about)
            shutil.copy(run.root / "x/outbox/s.parquet", run.path(kind))
            shutil.rmtree(run.root / "x")
        else:
            shutil.copy(run.other / "outbox" / FILES[kind], run.path(kind))

    @case("digest", f"a {kind} cut short", group="bytes")
    def cut(run):
        run.path(kind).write_bytes(run.path(kind).read_bytes()[:-9])

    @case("digest", f"bytes after the end of a {kind}", group="bytes")
    def append(run):
        run.path(kind).write_bytes(run.path(kind).read_bytes() + b"patient 4711")

    @case("ledger", f"a copy of a {kind} that nobody recorded", group="bytes")
    def copy(run):
        path = run.path(kind)
        shutil.copy(path, path.with_name(f"again-{path.name}"))


for _kind in KINDS:
    _flips(_kind)


@case("digest", "messages of two rounds swapped", group="bytes")
def _(run):
    one, two = run.out / "message-0001.safetensors", run.out / "message-0002.safetensors"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


@case("digest", "a bit flipped in a model that the server sent", group="bytes")
def _(run):
    path = run.root / "server/outbox/model-0001.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@case("outbox", "a text file in the outbox", group="bytes")
def _(run):
    (run.out / "notes.txt").write_text("patient 4711")


@case("outbox", "a folder in the outbox", group="bytes")
def _(run):
    (run.out / "more").mkdir()


@case("outbox", "a link in the outbox to a private file", group="bytes")
def _(run):
    (run.out / "link.safetensors").symlink_to(run.private / "update-0001.safetensors")


@case("custody", "a private update put into the outbox, and entered")
def _(run):
    source = run.private / "update-0001.safetensors"
    about = tensors_file.read(source).metadata
    shutil.copy(source, run.out / source.name)
    with ledger.locked(run.ledger) as book:
        data = source.read_bytes()
        book.enter(file=source.name, sha256=sha256_hex(data), size=len(data), metadata=about)


@case("custody", "a message under the name of another client, and entered")
def _(run):
    run.rewrite("message", client="00")


# The ledger.


@case("chain", "an entry of the ledger edited", group="ledger")
def _(run):
    first, *rest = run.lines()
    run.write_lines([canonical_json(json.loads(first) | {"bytes": 1}), *rest])


@case("chain", "an entry dropped", group="ledger")
def _(run):
    run.write_lines(run.lines()[:1] + run.lines()[2:])


@case("chain", "an entry repeated", group="ledger")
def _(run):
    run.write_lines([*run.lines()[:2], *run.lines()[1:]])


@case("chain", "two entries in another order", group="ledger")
def _(run):
    first, second, *rest = run.lines()
    run.write_lines([second, first, *rest])


@case("ledger", "the ledger deleted", group="ledger")
def _(run):
    run.ledger.unlink()


@case("anchor", "the last entries cut off, with their files", group="ledger")
def _(run):
    run.write_lines(run.lines()[:5])
    kept = {entry.file for entry in ledger.read(run.ledger).entries}
    for path in run.out.iterdir():
        if path.name not in kept:
            path.unlink()


@case("anchor", "the ledger rewritten from the start, one file less", group="ledger")
def _(run):
    entries = [entry for entry in ledger.read(run.ledger).entries if entry.file != FILES["surrogate"]]
    run.path("surrogate").unlink()
    run.ledger.unlink()
    with ledger.locked(run.ledger) as book:
        for entry in entries:
            book.enter(file=entry.file, sha256=entry.sha256, size=entry.bytes, metadata=_told(entry))


@case("anchor", "a receipt changed", group="ledger")
def _(run):
    path = next((run.root / "server/outbox").glob("receipts*"))
    lines = path.read_bytes().splitlines()
    fields = json.loads(lines[1])
    payload = json.loads(base64.b64decode(fields["payload"]))
    payload["predicate"]["seq"] -= 1
    fields["payload"] = base64.b64encode(canonical_json(payload).encode()).decode()
    lines[1] = canonical_json(fields).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")


@case("ledger", "the ledger says another round than the file", group="ledger")
def _(run):
    about = tensors_file.read(run.path("message")).metadata
    run._put(run.path("message"), run.path("message"), replace(about, round=9))


@case("chain", "an entry of the spend ledger edited", group="ledger")
def _(run):
    path = run.private / "spend.jsonl"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, *(line.replace('"steps":2', '"steps":1') for line in rest)]) + "\n")


# What an insider hides, with digests, seals and a ledger that fit.


@case("tensors", "an extra tensor in a message")
def _(run):
    run.rewrite("message", {"patients": np.arange(9, dtype=np.float32)})


@case("tensors", "a tensor of a message made larger")
def _(run):
    name = sorted(tensors_file.read(run.path("message")).tensors)[0]
    run.rewrite("message", {name: np.zeros(99, np.float32)})


@case("tensors", "an extra tensor in a state")
def _(run):
    run.rewrite("state", {"patients": np.arange(9, dtype=np.float32)})


@case("tensors", "an extra tensor in a masked update")
def _(run):
    run.rewrite("secagg-masked", {"patients": np.arange(9, dtype=np.int32)})


def _extra(kind, dtype):
    @case("tensors", f"an extra tensor in a {kind}")
    def extra(run):
        payload = tensors_file.read(run.path(kind)).data
        _, _, old = run.forge.take_apart(payload)

        def table(found):
            end = max(entry["data_offsets"][1] for name, entry in found.items() if name != "__metadata__")
            found["zz"] = {"dtype": dtype, "shape": [8], "data_offsets": [end, end + 8]}

        run.forged(kind, table=table, payload=old + bytes(8))


for _kind in ("surrogate", "proxy", "secagg-keys", "secagg-shares", "secagg-survivors", "secagg-unmask"):
    _extra(_kind, "U8")


@case("tensors", "numbers hidden in the labels of a surrogate")
def _(run):
    labels = tensors_file.read(run.path("surrogate")).tensors["labels"].copy()
    labels[0] = 4711_1968_02_29
    run.rewrite("surrogate", {"labels": labels})


@case("tensors", "more images in a surrogate than its parameters say")
def _(run):
    found = tensors_file.read(run.path("surrogate")).tensors
    twice = {name: np.concatenate([found[name]] * 2) for name in ("images", "labels")}
    run.rewrite("surrogate", twice)


@case("tensors", "more images in a proxy than its parameters say")
def _(run):
    found = tensors_file.read(run.path("proxy")).tensors
    run.rewrite("proxy", {name: np.concatenate([found[name]] * 2) for name in ("images", "labels", "weights")})


@case("digest", "bytes in a gap between two tensors")
def _(run):
    _, _, payload = run.forge.take_apart(run.path("message").read_bytes())

    def table(found):
        last = max((name for name in found if name != "__metadata__"), key=lambda n: found[n]["data_offsets"][1])
        found[last]["data_offsets"] = [offset + 8 for offset in found[last]["data_offsets"]]

    start = min(e["data_offsets"][1] for n, e in run.forge.take_apart(run.path("message").read_bytes())[0].items()
                if n != "__metadata__")  # fmt: skip
    run.forged("message", table=table, payload=payload[:start] + b"patient1" + payload[start:])


@case("digest", "bits in the spaces of a header")
def _(run):
    run.forged("message", mangle=lambda header: header.replace('},"', '}, "', 1))


@case("digest", "bits in the order of a header's tensors")
def _(run):
    def table(found):
        names = [name for name in found if name != "__metadata__"]
        moved = {name: found.pop(name) for name in names}
        for name in reversed(names):
            found[name] = moved[name]

    run.forged("message", table=table)


@case("params", "bits in the order of the metadata")
def _(run):
    run.forged("message", text=lambda line: json.dumps(dict(reversed(json.loads(line).items())), separators=(",", ":")))


@case("params", "an extra key in the metadata")
def _(run):
    run.forged("message", fields=lambda about: about.update(patient="Mueller"))


@case("params", "an extra parameter")
def _(run):
    about = tensors_file.read(run.path("message")).metadata
    run.rewrite("message", params={**about.params, "patient": "Mueller"})


@case("params", "an extra parameter of a surrogate")
def _(run):
    about = tensors_file.read(run.path("surrogate")).metadata
    run.rewrite("surrogate", params={**about.params, "patient": 4711})


@case("params", "an extra parameter of a dataset")
def _(run):
    run.rewrite_dataset(params={**dataset_file.read(run.path("dataset")).metadata.params, "patient": 4711})


@case("params", "names of patients as names of classes")
def _(run):
    params = dict(dataset_file.read(run.path("dataset")).metadata.params)
    run.rewrite_dataset(params=params | {"class_names": [f"patient {n}" for n in range(10)]})


@case("params", "a message among the versions of libraries")
def _(run):
    run.rewrite("message", versions={"fedsynth": "0", "mueller": "1968.02.29"})


@case("params", "a seed in the metadata")
def _(run):
    run.forged("message", fields=lambda about: about.update(seed=7))


@case("params", "a count that is not declared")
def _(run):
    run.forged("surrogate", fields=lambda about: about.update(counts={"num_examples": 480}))


@case("params", "a stage that makes no such file")
def _(run):
    run.rewrite("message", stage="shuffle")


@case("disclosures", "a message that declares nothing")
def _(run):
    run.rewrite("message", disclosures=(), counts={})


@case("disclosures", "a surrogate whose radius is not declared")
def _(run):
    told = tensors_file.read(run.path("surrogate")).metadata.disclosures
    run.rewrite("surrogate", disclosures=tuple(name for name in told if name != "radius"))


@case("disclosures", "a surrogate with norms of layers that are not declared")
def _(run):
    run.rewrite("surrogate", {"norms": np.ones(2, np.float32)})


@case("disclosures", "a proxy whose layer norms are not declared")
def _(run):
    run.rewrite("proxy", disclosures=("derived_images", "update"))


@case("disclosures", "a dataset whose class counts are not declared")
def _(run):
    run.rewrite_dataset(disclosures=("class_set", "derived_images"))


@case("disclosures", "a picked dataset with noise that declares nothing")
def _(run):
    about = dataset_file.read(run.path("dataset")).metadata
    events = tensors_file.read(run.out / "noised-0001.safetensors").metadata.privacy
    run.rewrite_dataset(params={**about.params, "picked": True}, disclosures=(), privacy=events)


def _with_event(run, **changes):
    (event,) = tensors_file.read(run.out / "noised-0001.safetensors").metadata.privacy
    run.rewrite("message", file="noised-0001.safetensors", privacy=({**event, **changes},))


@case("events", "more noise claimed than was reserved")
def _(run):
    _with_event(run, noise_multiplier=8.0)


@case("events", "an event that never happened")
def _(run):
    _with_event(run, id=ZEROS)


@case("events", "an event that nobody understands")
def _(run):
    _with_event(run, mechanism="magic")


@case("lineage", "noise claimed for an update that had none")
def _(run):
    events = tensors_file.read(run.out / "noised-0001.safetensors").metadata.privacy
    run.rewrite("message", privacy=events, disclosures=("num_examples",))


@case("budget", "a file without noise beside a budget")
def _(run):
    (run.private / "budget.yaml").write_text("epsilon: 50\ndelta: 1e-5\nunit: record\n")


@case("budget", "more spent than the budget allows")
def _(run):
    (run.private / "budget.yaml").write_text("epsilon: 0.01\ndelta: 1e-5\nunit: record\n")


def _in_tensor(run, secret):
    found = tensors_file.read(run.path("message")).tensors
    name = max(found, key=lambda n: found[n].size)
    data = found[name].tobytes()
    hidden = data[:101] + secret + data[101 + len(secret) :]  # at an odd place
    run.rewrite("message", {name: np.frombuffer(hidden, np.float32).reshape(found[name].shape)})


SPELLINGS = {
    "as it is": lambda secret: secret,
    "in hexadecimal digits": lambda secret: secret.hex().encode(),
    "in base64": lambda secret: base64.b64encode(b"x" + secret),
}
for _name, _spell in SPELLINGS.items():

    @case("secrets", f"the client's key in a tensor, {_name}")
    def _(run, spell=_spell):
        _in_tensor(run, spell(run.key.secret))


@case("secrets", "a derived key in a tensor")
def _(run):
    _in_tensor(run, run.key.derive("commitment"))


@case("secrets", "the key in a picture of a dataset")
def _(run):
    stored = zlib.compress(run.key.secret + bytes(8 * 9 - 32), 0)  # not compressed
    run.rewrite_dataset(pngs=[_png(8, 8, stored), *_pngs(run)[1:]])


@case("secrets", "a key that others can read")
def _(run):
    (run.private / "client.key").chmod(0o644)


def _pngs(run):
    return dataset_file.read(run.path("dataset")).pngs.to_pylist()


def _chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _png(height, width, stream, *more):
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [_chunk(b"IHDR", header), *more, _chunk(b"IDAT", stream), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


_ROWS = zlib.compress(bytes(8 * 9))


@case("images", "a text chunk in a PNG")
def _(run):
    run.rewrite_dataset(pngs=[_png(8, 8, _ROWS, _chunk(b"tEXt", b"patient\0Mueller")), *_pngs(run)[1:]])


@case("images", "a palette in a PNG")
def _(run):
    run.rewrite_dataset(pngs=[_png(8, 8, _ROWS, _chunk(b"PLTE", b"Mueller68")), *_pngs(run)[1:]])


@case("images", "bytes behind the pixels of a PNG")
def _(run):
    run.rewrite_dataset(pngs=[_png(8, 8, zlib.compress(bytes(8 * 9) + b"Mueller")), *_pngs(run)[1:]])


@case("images", "bytes behind the end of a PNG")
def _(run):
    run.rewrite_dataset(pngs=[_pngs(run)[0] + b"Mueller", *_pngs(run)[1:]])


@case("images", "a larger picture among the others")
def _(run):
    run.rewrite_dataset(pngs=[*_pngs(run)[:-1], encode_png(np.zeros((16, 16), np.uint8))])


@case("images", "a text in the place of a picture")
def _(run):
    run.rewrite_dataset(pngs=[b"Mueller 29.2.1968", *_pngs(run)[1:]])


# Where it comes from.


@case("lineage", "a private input named by its digest")
def _(run):
    update = sha256_hex((run.private / "update-0001.safetensors").read_bytes())
    model = tensors_file.read(run.path("message")).metadata.inputs[0]
    run.rewrite("message", inputs=(model, InputRef(role="update", kind="update", sha256=update)))


@case("lineage", "a commitment to the update of another round")
def _(run):
    digest = sha256_hex((run.private / "update-0002.safetensors").read_bytes())
    model = tensors_file.read(run.path("message")).metadata.inputs[0]
    other = commit(run.key, role="update", kind="update", sha256=digest, context={})
    run.rewrite("message", inputs=(model, other))


@case("lineage", "a commitment that is a random number")
def _(run):
    model = tensors_file.read(run.path("message")).metadata.inputs[0]
    secret = InputRef(role="update", kind="update", commitment=sha256_hex(b"Mueller"), salt="0" * 32)
    run.rewrite("message", inputs=(model, secret))


@case("lineage", "the private update changed after it was sent")
def _(run):
    path = run.private / "update-0001.safetensors"
    found = tensors_file.read(path)
    tensors_file.write(path, {n: t + 1 for n, t in found.tensors.items()}, found.metadata, force=True)


@case("lineage", "the private data deleted")
def _(run):
    (run.private / "data.parquet").unlink()


@case("lineage", "a message for a model that the server never sent")
def _(run):
    found = tensors_file.read(run.path("message")).metadata
    strange = InputRef(role="model", kind="model", sha256=sha256_hex(b"another"))
    run.rewrite("message", inputs=(strange, *found.inputs[1:]))


@case("lineage", "a model made from a message that no client recorded")
def _(run):
    path = next((run.root / "server/private").glob("model-0001*.lineage.json"))
    record = json.loads(path.read_text())
    record["inputs"][-1]["sha256"] = sha256_hex(b"another")
    path.write_text(canonical_json(record) + "\n")


# Signatures.


@case("envelopes", "an envelope of another file, under the name of this one", group="signatures")
def _(run):
    path = run.path("envelope")
    found = tensors_file.read(run.path("message")).metadata
    roster = read_roster(run.root / "public/roster.json")
    other = run.out / "message-0002.safetensors"
    digest = sha256_hex(other.read_bytes())
    said = on_file(other.name, digest, found, roster.federation, picked=False)
    signer = signing_key(run.key, "envelopes")
    path.unlink()
    written = write_envelopes(path, tuple(one.signed(signer) for one in said), force=True)
    run._put(path, path, written.metadata)


@case("envelopes", "an envelope signed with another key", group="signatures")
def _(run):
    path, file = run.path("envelope"), run.path("message")
    found = tensors_file.read(file)
    roster = read_roster(run.root / "public/roster.json")
    said = on_file(file.name, found.sha256, found.metadata, roster.federation, picked=False)
    path.unlink()
    written = write_envelopes(path, tuple(one.signed(bytes(32)) for one in said), force=True)
    run._put(path, path, written.metadata)


def table():
    """All cases by what is done and which check says so, as the guide shows them."""
    groups = {}
    for what, one in CASES.items():
        groups.setdefault((one.group, one.check), []).append(what)
    return groups
