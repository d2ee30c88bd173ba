"""A run to tamper with, and the list of what is done to it, with the check that must say so.

Two kinds of people: one who changes bytes, and an insider who has the writer and the key, so that digests, seals and
the ledger fit again.
"""

import shutil
from dataclasses import asdict, replace
from types import SimpleNamespace

from artifacts.digests import sha256_hex
from artifacts.formats import dataset_file, envelope_file, tensors_file
from artifacts.identity import keys
from artifacts.identity.roster import signing_key
from artifacts.identity.statements import on_ledger
from artifacts.ledgers import egress, spend

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


def case(check, what, *, group="content", or_else=None, at_server=False):
    """A case: the check that must catch it, what is done in words, and whether the client's folder does not show it."""

    def enter(function):
        assert what not in CASES
        CASES[what] = SimpleNamespace(
            check=check, checks={check, or_else}, group=group, do=function, at_server=at_server
        )
        return function

    return enter


class Run:
    """A copy of the run, and client 01 in it, which with the server's folder is all that may be changed."""

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

    def about(self, kind):
        return (dataset_file if kind == "dataset" else tensors_file).read(self.path(kind)).metadata

    def tensors(self, kind):
        return tensors_file.read(self.path(kind)).tensors

    def events(self):
        """Those of a message with noise."""
        return tensors_file.read(self.out / "noised-0001.safetensors").metadata.privacy

    def enter(self, path, metadata):
        """The insider's ledger: written from the start, with the bytes that are there now."""
        self.start_anew(egress.read(self.ledger).entries, path.name, metadata)

    def start_anew(self, entries, changed=None, metadata=None):
        """A ledger of these entries, whose heads fit it. The `changed` file stays as it is and has these metadata."""
        self.ledger.unlink()
        for entry in entries:
            path = self.out / entry.file
            if entry.kind == "head" and entry.file != changed:
                path.write_bytes(self._head(path))
            data = path.read_bytes()
            about = metadata if entry.file == changed else stated(entry)
            if entry.kind == "envelope" and entry.file != changed:
                about.round = envelope_file.read(path).metadata.round  # of the file that it is on, as that now is
            with egress.locked(self.ledger) as book:
                book.enter(file=entry.file, sha256=sha256_hex(data), size=len(data), metadata=about)

    def _head(self, path):
        """The file's statement about the ledger as it now is."""
        (envelope,) = envelope_file.read(path, kind="head").envelopes
        said, book = envelope_file.head_of(envelope), egress.read(self.ledger)
        said = replace(said, head=book.head, seq=len(book.entries))
        said = replace(said, spend=spend.commitment(self.private / "spend.jsonl", self.key, said.occasion))
        about = asdict(said)
        asked = on_ledger(about.pop("head"), about.pop("seq"), **about)
        return asked.signed(signing_key(self.key, "envelopes")).line()

    def rewrite(self, kind, tensors=None, file=None, **changes):
        """A file again with other tensors or metadata, by the writer, and the ledger to it. No receipt is left."""
        path = self.out / file if file else self.path(kind)
        found = tensors_file.read(path)
        about = replace(found.metadata, **changes)
        self._written(path, about, tensors_file.write, dict(found.tensors) | (tensors or {}))

    def rewrite_dataset(self, pngs=None, **changes):
        path = self.path("dataset")
        found = dataset_file.read(path)
        about = replace(found.metadata, **changes)
        rows = found.pngs.to_pylist() if pngs is None else pngs
        self._written(path, about, dataset_file.write, rows, found.labels)

    def _written(self, path, about, write, *content):
        elsewhere = self.root / "elsewhere/outbox" / path.name
        write(elsewhere, *content, about)
        shutil.copy(elsewhere, path)
        shutil.rmtree(self.root / "elsewhere")
        self.put(path, about)

    def forged(self, kind, **how):
        """The file with its header changed and its digests computed anew, and the ledger to it."""
        path, about = self.path(kind), self.about(kind)
        path.write_bytes(self.forge.forge_tensors(path.read_bytes(), **how))
        self.put(path, about)

    def put(self, path, about):
        """Enter the file as it is now. What the server countersigned before is gone."""
        for receipt in (self.root / "server/outbox").glob("receipt*"):
            receipt.unlink()
        self.enter(path, about)

    def lines(self):
        return self.ledger.read_text().splitlines()

    def write_lines(self, lines):
        self.ledger.write_text("\n".join(lines) + "\n")


def stated(entry):
    """Of an entry, what `enter` asks of metadata."""
    params = {"picked": True} if entry.picked else {}
    return SimpleNamespace(
        kind=entry.kind, round=entry.round, params=params, privacy=entry.privacy, disclosures=entry.disclosures
    )
