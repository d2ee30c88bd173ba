"""Hostile files for the place of an input, by the format that belongs there: (what, how to put it at a path).

Not a test. Whoever forges a file recomputes its digests, its chain and its signatures (tests/support/forge.py).
"""

import gzip
import io
import json
import os
import pickle
import random
import socket
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import yaml

from artifacts.digests import ZEROS
from artifacts.formats import Format, dataset_rows
from artifacts.identity import keys, roster
from stages.data.png import encode_png

PICTURE = encode_png(np.zeros((8, 8), np.uint8))


class Files:
    """`others`: files of every format, to be where one of another kind is needed; `secrets`: keys of signers."""

    def __init__(self, forge, mutations, readers, others, key_files):
        self._forge, self._mutations, self._readers, self._others = forge, mutations, readers, others
        found = [roster.signing_key(keys.read(path), "envelopes") for path in key_files]
        self._secrets = {roster.verify_key(secret).hex(): secret for secret in found}

    def hostile(self, path):
        """Everything for the place of this file: what is no file, damaged ones, forged ones. Made when it is put."""
        data = path.read_bytes()
        yield self._instead(path)
        for made in (self._damaged(path, data), self._forged(path, data)):
            yield ((what, partial(put, make)) for what, make in made)

    def _instead(self, path):
        """What is no file at all, or far more than one."""
        yield from {"nothing": Path.unlink, "a folder": folder, "a pipe": pipe, "a socket": unix_socket}.items()
        for target in ("nowhere", path.name, "/dev/zero", "/dev/full", "/proc/self/mem"):
            yield f"a link to {target}", partial(link, target)
        yield "ten gigabytes of zeros behind it", swell

    def _damaged(self, path, data):
        """Bytes that nobody forged."""
        yield from {
            "empty": lambda: b"",
            "one byte": lambda: data[:1],
            "a half": lambda: data[: len(data) // 2],
            "a byte short": lambda: data[:-1],
            "a byte more": lambda: data + b"\0",
            "twice": lambda: data * 2,
            "zeros": lambda: bytes(len(data)),
            "text": lambda: b"Dear server, the model is attached.\n",
            "escapes": lambda: self._mutations.ESCAPE.encode() * 9,
            "not UTF-8": lambda: b"\xff\xfe\x00" * 99,
            "pickle": lambda: pickle.dumps({"weights": [1.0] * 9}),
            "gzip": lambda: gzip.compress(data),
            "zip": partial(zipped, data),
            "PNG": lambda: PICTURE,
            "program": lambda: b"\x7fELF\x02\x01\x01" + bytes(99),
            "brackets": lambda: b"[" * 100_000,
            "braces": lambda: b'{"a":' * 50_000,
            "digits": lambda: b"9" * 5_000,
        }.items()
        for other in self._others:
            yield f"{other.name} in its place", other.read_bytes
        for number in range(40):
            yield f"mutant {number}", partial(self._mutations.mutate, data, random.Random(f"{path.name} {number}"))

    def _forged(self, path, data):
        """Whole, sealed, chained or signed, with something wrong in it."""
        match kind_of(path):
            case "tensors":
                return self._tensors(data)
            case "dataset":
                return self._dataset(data)
            case "envelope":
                return self._lines(data, self._unwrap, self._wrap)
            case "log":
                return self._lines(data, json.loads, None)
            case "json":
                return self._trees(json.loads(data), lambda tree: json.dumps(tree).encode(), self._mutations.VALUES)
            case "yaml":
                return self._yaml(data)
            case "key":
                return iter([(f"{size} bytes", partial(bytes, size)) for size in (1, 31, 33, 4096)])
            case "image":
                seeded = ((n, random.Random(n)) for n in range(40))
                change = self._mutations.mutate
                return ((f"chunks {n}", partial(lambda rng: self._forge.checksummed(change(data, rng)), rng))
                        for n, rng in seeded)  # fmt: skip
        return iter(())

    def _trees(self, tree, build, values):
        for what, change in self._mutations.variants(tree, values):
            yield what, partial(lambda change: build(change()), change)

    def _tensors(self, data):
        table, about, payload = self._forge.take_apart(data)
        table.pop("__metadata__")
        document = {"metadata": about | {"payload_sha256": ZEROS, "seal_sha256": ZEROS}, "table": table}

        def build(tree):
            return self._readers.seal_tensors(self._forge, json.dumps(tree).encode() + b"\n" + payload)

        yield from self._trees(document, build, self._mutations.VALUES)
        for value in (float("nan"), float("inf"), 3e38):
            strange = np.full(len(payload) // 4, value, "<f4").tobytes().ljust(len(payload), b"\0")
            yield f"numbers {value}", partial(self._forge.forge_tensors, data, payload=strange)
        for name in ("F16", "I64", "F64", "U8", "I32"):
            yield f"all of type {name}", partial(self._retyped, data, name)

    def _retyped(self, data, name):
        """The same shapes in another type, with the bytes that it takes."""
        width = {"F16": 2, "I64": 8, "F64": 8, "U8": 1, "I32": 4}[name]

        def change(table):
            position = 0
            for spec in (spec for key, spec in sorted(table.items()) if key != "__metadata__"):
                size = int(np.prod(spec["shape"], dtype=object)) * width
                spec.update(dtype=name, data_offsets=[position, position + size])
                position += size
            head = table.pop("__metadata__")
            ordered = dict(sorted(table.items()))
            table.clear()
            table.update({"__metadata__": head, **ordered})

        table, _, _ = self._forge.take_apart(data)
        count = sum(int(np.prod(spec["shape"])) for key, spec in table.items() if key != "__metadata__")
        return self._forge.forge_tensors(data, table=change, payload=bytes(count * width))

    def _dataset(self, data):
        text = self._footer_text(data)
        if text is None:  # not one of ours
            return

        def build(tree):
            names = tree["params"].get("class_names") if isinstance(tree, dict) and isinstance(
                tree.get("params"), dict) else None  # fmt: skip
            features = dataset_rows.huggingface(names) if isinstance(names, list) else None
            return self._forge.footer_text(data, self._forge.spelt(tree), features)

        yield from self._trees(json.loads(text) | {"seal_sha256": ZEROS}, build, self._mutations.VALUES)

    def _footer_text(self, data):
        found = []
        try:
            self._forge.forge_footer(data, lambda footer: found.extend(footer["5:list<struct>"]))
        except (ValueError, KeyError):
            return None
        return next((pair["2:binary"] for pair in found if pair["1:binary"] == b"fedsynth"), None)

    def _lines(self, data, parse, wrap):
        lines = [parse(line) for line in data.splitlines()]
        build = wrap or self._forge.chained
        return self._trees(lines, lambda tree: build(tree if isinstance(tree, list) else [tree]),
                           self._mutations.VALUES)  # fmt: skip

    def _unwrap(self, line):
        found = self._forge.dsse.parse(line)
        return {"statement": found.statement, "signers": sorted(found.signatures)}

    def _wrap(self, lines):
        out = b""
        for line in lines:
            try:
                secrets = [self._secrets[who] for who in line["signers"]]
                out += self._forge.enveloped(line["statement"], secrets)
            except (TypeError, KeyError, ValueError, AttributeError):
                out += self._forge.spelt(line).encode() + b"\n"
        return out

    def _yaml(self, data):
        def build(tree):
            return yaml.safe_dump(tree, sort_keys=False).encode("utf-8", "replace")

        yield from self._trees(yaml.safe_load(data), build, self._mutations.YAML_VALUES)
        words = data.split(b" ")
        for number in range(len(words)):
            for token in self._mutations.TOKENS:
                changed = [*words[:number], token, *words[number + 1 :]]
                yield f"word {number} = {token[:20]!r}", partial(b" ".join, changed)


def kind_of(path):
    """The format that belongs at this place, by its name."""
    endings = {
        Format.ENVELOPES: "envelope", Format.TENSORS: "tensors", Format.DATASET: "dataset", ".jsonl": "log",
        ".json": "json", ".yaml": "yaml", ".key": "key", ".png": "image",
    }  # fmt: skip
    return next((kind for ending, kind in endings.items() if path.name.endswith(ending)), "bytes")


def put(make, path):
    """These bytes in a file's place, with its mode."""
    data, mode = make(), path.stat().st_mode & 0o777
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)


def swell(path):
    """Sparse: it takes no room on the disk."""
    os.truncate(path, 10 << 30)


def folder(path):
    path.unlink()
    path.mkdir()


def pipe(path):
    path.unlink()
    os.mkfifo(path, 0o600)


def unix_socket(path):
    """Bound by a short name: a path of more than a hundred bytes is none for a socket."""
    path.unlink()
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def link(target, path):
    path.unlink()
    path.symlink_to(target)


def zipped(data):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("../../evil", data)
    return sink.getvalue()
