"""Bytes that someone changes, file by file, and files that are none of an outbox."""

import shutil
from dataclasses import replace

from tampering.run import FILES, KINDS, case

from artifacts.digests import sha256_hex
from artifacts.formats import dataset_file, tensors_file
from artifacts.ledgers import egress


def _flip(path, place, bit=1):
    data = bytearray(path.read_bytes())
    data[place] ^= bit
    path.write_bytes(data)


def _bytes(kind):
    @case("digest", f"a bit flipped at the end of a {kind}", group="bytes")
    def flip_last(run):
        _flip(run.path(kind), -1 if kind not in ("envelope", "head") else -40)

    # There the metadata may be, which then do not say what they must.
    @case("digest", f"a bit flipped in the middle of a {kind}", group="bytes", or_else="params")
    def flip_middle(run):
        _flip(run.path(kind), run.path(kind).stat().st_size // 2, bit=4)

    @case("digest", f"another client's {kind} in its place", group="bytes")
    def swap(run):
        if kind == "dataset":
            found = dataset_file.read(run.path(kind))
            about = replace(found.metadata, client="00")
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
    _bytes(_kind)


@case("digest", "messages of two rounds swapped", group="bytes")
def _(run):
    one, two = run.out / "message-0001.safetensors", run.out / "message-0002.safetensors"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


@case("digest", "a bit flipped in a model that the server sent", group="bytes", at_server=True)
def _(run):
    _flip(run.root / "server/outbox/model-0001.safetensors", -1)


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
    with egress.locked(run.ledger) as book:
        data = source.read_bytes()
        book.enter(file=source.name, sha256=sha256_hex(data), size=len(data), metadata=about)


@case("custody", "a message under the name of another client, and entered")
def _(run):
    run.rewrite("message", client="00")
