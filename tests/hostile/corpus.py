"""Write the corpora: a few small files for each reader, by our own writers where there is one.

Run it after a change of a format: python tests/hostile/corpus.py
"""

import io
import json
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "support")]

import forge  # noqa: E402
import readers  # noqa: E402

from artifacts.digests import ZEROS, canonical_json  # noqa: E402
from artifacts.identity import keys, roster, statements  # noqa: E402
from artifacts.ledgers import chain as chains  # noqa: E402
from artifacts.ledgers import (  # noqa: E402
    egress,
    gate,
    lineage,
    merkle,
    proofs,
    receipt_log,
    spend,
    tree_heads,
)
from artifacts.metadata import InputRef  # noqa: E402
from stages.data.png import encode_png  # noqa: E402
from stages.federate.messages import Letter, letter_bytes  # noqa: E402
from stages.federate.parcels import Parcel, Task  # noqa: E402
from stages.federate.sealed import Address, seal  # noqa: E402
from stages.federate.terms import agreed  # noqa: E402
from stages.privacy.events import PrivacyEvent  # noqa: E402
from stages.recipes.recipe import load_recipe  # noqa: E402

EVENT = PrivacyEvent.planned(
    unit="record", sampling_rate=0.1, noise_multiplier=1.0, clip_norm=1.0, steps=9, trust="nobody"
).to_json()
INPUTS = (InputRef(role="model", kind="model", sha256="a" * 64),)
RECIPES = ("fedavg", "dp-sgd", "fedssyn", "scaffold", "tofu", "fedavg-secure", "fedssyn-comparison")


def tensors():
    """Documents of `seal_tensors`, and the files themselves."""
    folder = Path(tempfile.mkdtemp())
    common = {"inputs": INPUTS, "round": 1}
    kinds = {
        "model": forge.metadata("model", params={"arch": "softmax", "net_arch": "softmax"}, round=0),
        "message": forge.metadata("message", stage="encode", method="plain", params={"method": "plain"}, **common),
        "noisy": forge.metadata("message", stage="encode", privacy=(EVENT,), disclosures=(), counts={}, **common),
        "update": forge.metadata("update", counts={"num_examples": 3}, seed=5, client="00", **common),
    }
    for name, metadata in kinds.items():
        path = folder / ("outbox" if metadata.custody == "outbound" else "private") / name
        forge.tensors_file.write(path, {"w": np.arange(6, dtype="f4").reshape(2, 3), "b": np.ones(2, "f4")}, metadata)
        data = path.read_bytes()
        found, about, payload = forge.take_apart(data)
        found.pop("__metadata__")
        about |= {"payload_sha256": ZEROS, "seal_sha256": ZEROS}
        yield name, data, json.dumps({"metadata": about, "table": found}).encode() + b"\n" + payload, about, found
    shutil.rmtree(folder)


def datasets():
    folder = Path(tempfile.mkdtemp())
    png = encode_png(np.zeros((2, 2), np.uint8))
    for name, rows in (("three", 3), ("none", 0)):
        path = folder / f"{name}.parquet"
        forge.dataset_file.write(path, [png] * rows, np.arange(rows) % 2, forge.metadata("dataset"))
        data = path.read_bytes()
        position = data.rfind(b'{"custody"')
        about = json.loads(data[position : data.index(b"}", data.index(b'"versions"', position)) + 2])
        yield name, data, json.dumps(about | {"seal_sha256": ZEROS}).encode() + b"\n" + data
    shutil.rmtree(folder)


def dsprites():
    """Its public npz with three images: deflated, and the pickled member that is never read."""
    images, latents = np.zeros((3, 64, 64), np.uint8), np.ones((3, 6))
    for name, method in (("deflated", zipfile.ZIP_DEFLATED), ("stored", zipfile.ZIP_STORED)):
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w", method) as archive:
            for member, array in (
                ("imgs", images[: 3 if method else 1]),
                ("latents_values", latents[: 3 if method else 1]),
            ):
                written = io.BytesIO()
                np.lib.format.write_array(written, array)
                archive.writestr(zipfile.ZipInfo(f"{member}.npy"), written.getvalue(), method)
        yield name, sink.getvalue()


def foreign_parquet():
    """As other programs write it: compressed, with a dictionary, statistics and more columns."""
    table = forge.image_table([encode_png(np.full((2, 2, 3), row, np.uint8)) for row in range(3)], [0, 1, 1])
    table = table.append_column("patient", pa.array(["a", "b", "b"]))
    for codec in ("snappy", "zstd", "none"):
        sink = io.BytesIO()
        pq.write_table(table, sink, compression=codec)
        yield codec, sink.getvalue()


def logs(folder):
    """The three kinds of logs, written as the stages do."""
    key = keys.simulated(0, "a")
    with egress.locked(folder / "egress") as book:
        for number in range(3):
            about = forge.metadata("message", privacy=(EVENT,) if number else (), round=number)
            book.enter(file=f"m{number}", sha256=f"{number}" * 64, size=10, metadata=about)
    spend.open_for(folder / "spend", key)
    with spend.locked(folder / "spend", key) as book:
        book.reserve(stage="train-client", context="c" * 64, data=["d" * 64], events=[EVENT])
        book.release(context="c" * 64, part="update", output="e" * 64, event="a" * 64)
    with chains.locked(folder / "gate", gate._is_entry) as log:
        for entry, by in (("held", ""), ("released", "person")):
            log.append({"entry": entry, "file": "m", "sha256": "a" * 64, "by": by, "seen_private": False})
    with chains.locked(folder / "receipt-log", receipt_log._is_entry) as log:
        for leaf in ("a", "b"):
            log.append({"leaf": leaf * 64})
    return {name: (folder / name).read_bytes() for name in ("egress", "spend", "gate", "receipt-log")}


def statements_of():
    """Documents of `sign_lines`: on a file, on one head, on the heads of two clients."""
    metadata = forge.metadata("message", stage="encode", inputs=INPUTS, round=1, params={"method": "plain"})
    on_file = statements.on_file("m.safetensors", "a" * 64, metadata, "f", picked=False)
    heads = [
        statements.on_ledger("b" * 64, 3, spend="c" * 64, federation="f", client=name, round=1, simulation=True)
        for name in ("a", "b")
    ]
    leaves = [merkle.leaf_hash(head.payload) for head in heads]
    yield "file", [(1, line) for line in on_file]
    yield "head", [(1, heads[0])]
    yield "receipt", [(2, heads[0]), (-1, tree_heads.grown(leaves, {"a": 0}, federation="f", round=1))]
    both = tree_heads.grown(leaves, {"a": 0, "b": 1}, federation="f", round=1)
    yield "receipts", [*((2, head) for head in heads), (-1, both)]


def images():
    """What `read_image` takes, each in a few pixels."""
    for mode in ("L", "RGB", "P", "LA", "RGBA", "1"):
        yield f"{mode}.png", _image(mode, "PNG")
    for kind in ("JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "TGA", "PCX", "SGI", "ICO", "JPEG2000"):
        yield f"rgb.{kind.lower()}", _image("RGB", kind)
    yield "lzw.tiff", _image("RGB", "TIFF", compression="tiff_lzw")


def _image(mode, kind, **options):
    sink = io.BytesIO()
    Image.new(mode, (5, 4)).save(sink, kind, **options)
    return sink.getvalue()


def corpora():
    """(reader, name, bytes) of every seed."""
    for name, data, document, about, found in tensors():
        yield "safetensors", name, data
        yield "safetensors-sealed", name, document
        yield "safetensors-inspected", name, document
        yield "metadata", name, json.dumps(about).encode()
        foreign = json.dumps({"__metadata__": {"by": "x"}, **found})
        yield (
            "safetensors-foreign",
            name,
            foreign.encode() + b"\n" + bytes(32),
        )
    for name, data, document in datasets():
        for reader in ("parquet", "parquet-sealed"):
            yield reader, name, data
        for reader in ("parquet-metadata", "parquet-inspected"):
            yield reader, name, document
    for name, data in foreign_parquet():
        yield "parquet-foreign", name, data
    for name, data in dsprites():
        yield "dsprites", name, data
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, data in logs(folder).items():
            for reader in (name, f"{name}-chained") if name in ("egress", "spend") else (name,):
                yield reader, "lines", data
        said = {"schema": "fedsynth.head/1", "ledger": "/a", "entries": 2, "second": "b" * 64, "head": "b" * 64}
        yield (
            "proof",
            "consistency",
            canonical_json(proofs.Consistency(folder, 1, 2, [b"n" * 32]).to_json()).encode() + b"\n",
        )
        yield "remembered", "one", json.dumps(said).encode()
        for name, owner in (("a", "a"), ("b", "b"), ("server", "server")):
            roster.write_identity(folder / name, name, keys.simulated(0, owner), force=True)
            yield "identity", name, (folder / name).read_bytes()
        roster.write_roster(folder / "roster", [folder / n for n in ("a", "b", "server")], "f", force=True)
        yield "roster", "three", (folder / "roster").read_bytes()
        lineage.write_record(folder / "lineage", folder / "model.safetensors", INPUTS * 2, force=True)
        yield "lineage", "two", (folder / "lineage").read_bytes()
    for name, lines in statements_of():
        said = [{"signers": signers, "statement": line.statement} for signers, line in lines]
        document = b"".join(json.dumps(line).encode() + b"\n" for line in said)
        yield "envelope-signed", name, document
        yield "envelope", name, readers.sign_lines(forge, document)
        if name == "receipt":
            yield "receipts", name, document
    yield "metrics", "round", json.dumps({"round": 0, "accuracy": 0.5, "custody": "public", "examples": 7}).encode()
    yield (
        "policy",
        "rules",
        b"""delta: 1.0e-5
rules:
  - kinds: [message, state]
    max_bytes: 5000000
    disclosures: [update]
    epsilon: .inf
  - {kinds: [dataset], disclosures: [], epsilon: 8.0}
  - kinds: [secagg-keys, envelope, head]
""",
    )
    yield "budget", "record", b"epsilon: 8.0\ndelta: 1.0e-5\nunit: record\n"
    yield "budget", "client", b"epsilon: 2\ndelta: 1e-6\nunit: client\n"
    for name in RECIPES:
        values = yaml.safe_load(load_recipe(name).to_yaml())
        short = {key: value for key, value in values.items() if key != "about"}
        yield "recipe", name, yaml.safe_dump(short, sort_keys=False).encode()
        sections = {"synthesize": {"count": 10}} | {k: v for k, v in short.items() if isinstance(v, dict)}
        yield "params", name, yaml.safe_dump(sections).encode()
    yield (
        "recipe",
        "own",
        b"""extends: fedavg
rounds: 3
participation: 0.5
sweep: {train-client.learning_rate: [0.1, 0.2], seed: [0, 1]}
presets: {small: {rounds: 1, encode: {tell_examples: true}}, other: {extends: fedprox}}
""",
    )
    yield (
        "recipe-toml",
        "own",
        b"""rounds = 3
participation = 0.5
[partition]
source = "digits"
clients = 3
[init-model]
arch = "softmax"
[train-client]
learning_rate = 0.1
[presets.small]
rounds = 1
[presets.small.partition]
clients = 4
""",
    )
    for name in ("fedavg", "fedssyn"):
        terms = agreed(load_recipe(name), ("a", "b"), seed=0, wait=600.0, most_bytes=10**8)
        yield "terms", name, terms.to_yaml().encode()
    task = Task(
        "0" * 64, {"torch": "2"}, "a", 1, ("x",), (2, None), (1,), (Parcel("m", "model", 0, 2, "9" * 64, b"ab"),)
    )
    letter = letter_bytes(Letter(task, 4096))
    yield "letter", "task", letter
    address = Address("f", "0" * 64, 1, 1, "server", "a")
    known = readers.parties(Path("roster.json"))
    yield "sealed", "task", seal(letter, address, size=4096, key=readers.PARTIES["server"], roster=known)
    for name, data in images():
        yield "image", name, data
    for name, pixels in (("grey", np.zeros((3, 5), np.uint8)), ("colour", np.full((3, 5, 3), 9, np.uint8))):
        for reader in ("png", "png-checksummed"):
            yield reader, name, encode_png(pixels)
    yield "key", "random", bytes(range(32))
    yield "key", "simulated", keys.simulated(0, "a").secret


if __name__ == "__main__":
    shutil.rmtree(readers.CORPUS, ignore_errors=True)
    for reader, name, data in corpora():
        path = readers.CORPUS / reader / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
