"""The cases, generated from the files of a run and the declarations of their kinds; nothing here lists a field."""

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from dataclasses import replace as replaced_by
from typing import Any

import numpy as np
import pytest
from insider.mutations import MARK, all_changes
from tampering.run import FILES

from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.disclosures import DISCLOSURES
from artifacts.errors import FedsynthError
from artifacts.formats import any_file, envelope_file, tensors_file
from artifacts.identity.dsse import Envelope, EnvelopeError
from artifacts.identity.roster import read_roster, signing_key
from artifacts.identity.statements import on_file
from artifacts.kinds import KINDS
from artifacts.ledgers import egress
from artifacts.metadata import MetadataError
from stages.secagg import session
from stages.secagg.primitives import sign

# Files of kinds that the tampering suite has not, or made in another way.
OTHERS = {kind: f"{kind}-0001.safetensors" for kind in ("noised", "compressed", "topk", "lowrank", "residuals")}
DATASETS = {"dataset": FILES["dataset"], "merf": "merf.parquet"}
TENSORS = [*(kind for kind in FILES if FILES[kind].endswith(".safetensors")), *OTHERS]
STATEMENTS = ["envelope", "head"]
DIGESTS = ("payload_sha256", "seal_sha256")
BORROWED = ("arithmetic", "counts", "disclosures", "inputs", "privacy", "versions")


class NotHere(Exception):
    """A case that this machine has no means for."""


@dataclass(frozen=True)
class Case:
    """`field` is what is changed, `how` in what way. `free` names what the guide lists as open without a replay."""

    kind: str
    field: str
    how: str
    do: Any
    free: str | None = None
    at_server: bool = False

    def __str__(self):
        return f"{self.kind}: {self.field}: {self.how}"


def path_of(run, kind):
    return run.out / (FILES | OTHERS | DATASETS)[kind]


# What the guide lists as free: by the first name of a field of the metadata, if the value is still a declared one.
FREE = {
    "params": "hyper-parameters",
    "versions": "versions",
    "arithmetic": "processor",
    "simulation": "simulation",
    "counts": "counts",
    "tensors": "values",
    "rows": "values",
    "name": "names",
    "mode": "modes",
    "time": "times",
}


def metadata_cases(run):
    found = {kind: _metadata(run, path_of(run, kind)) for kind in [*TENSORS, *DATASETS]}
    for kind, stated_here in found.items():
        changes = [*all_changes(stated_here, leave=DIGESTS), *_borrowed(kind, found), *_declared(stated_here)]
        for where, how, after in changes:
            field = ".".join(map(str, where)) or "metadata"
            if how.removeprefix("without ") in DIGESTS:
                continue  # they are computed anew in any case

            def do(run, kind=kind, after=after):
                _write_metadata(run, kind, after)

            yield Case(kind, field, how, do, FREE.get(str(where[0]) if where else ""))


def _borrowed(kind, found):
    """What another file of the run says in the same field: all of it valid, and none of it of this file."""
    mine, known = found[kind], set()
    for other, theirs in found.items():
        for name in BORROWED:
            value = theirs.get(name)
            text = canonical_json([name, value])
            if value != mine.get(name) and value is not None and text not in known:
                known.add(text)
                yield (name,), f"as {other} has it", {**mine, name: value}


def _declared(mine):
    """Every disclosure that there is, beside those that the file declares."""
    said = mine.get("disclosures", [])
    for word in sorted(DISCLOSURES.keys() - set(said)):
        yield ("disclosures",), f"{word} too", {**mine, "disclosures": sorted([*said, word])}


def _metadata(run, path):
    if path.suffix == ".parquet":
        return any_file.scan(path).metadata.to_json(payload_sha256=ZEROS, seal_sha256=ZEROS)
    return run.forge.take_apart(path.read_bytes())[1]


def _write_metadata(run, kind, after):
    """The metadata as the insider wants them, in a file whose digests and seal fit, by whatever writer."""
    path = path_of(run, kind)
    data, before = path.read_bytes(), any_file.scan(path).metadata
    if path.suffix == ".parquet":

        def change(footer):
            pair = footer["5:list<struct>"][1]
            found = {name: after[name] for name in after if name not in DIGESTS} if isinstance(after, dict) else {}
            digest = json.loads(pair["2:binary"])["payload_sha256"]
            pair["2:binary"] = canonical_json({**found, "payload_sha256": digest, "seal_sha256": ZEROS}).encode()

        forged = run.forge.forge_footer(data, change)
    else:

        def fields(about):
            kept = {name: about[name] for name in DIGESTS}
            about.clear()
            about.update({**after, **kept} if isinstance(after, dict) else {})

        forged = run.forge.forge_tensors(data, fields=fields)
    replace(path, forged)
    settle(run, path, before)


def replace(path, data):
    path.unlink()
    path.write_bytes(data)


def settle(run, path, before):
    """What an insider does next: sign again, write the ledger anew with what the file says now, lose the receipts."""
    about = before
    with contextlib.suppress(FedsynthError, MetadataError, ValueError, TypeError, KeyError, AttributeError):
        about = any_file.scan(path).metadata
        if about.kind.startswith("secagg"):
            _sign_step(run, path, about)
            about = any_file.scan(path).metadata
        if (envelope := envelope_file.beside(path)).exists():
            federation = read_roster(run.root / "public/roster.json").federation
            digest = sha256_hex(path.read_bytes())
            said = on_file(path.name, digest, about, federation, picked=egress.was_picked(about))
            lines = tuple(one.signed(signing_key(run.key, "envelopes")) for one in said)
            replace(envelope, envelope_file.content(lines))
    run.put(path, about)


def _sign_step(run, path, about):
    """Secure aggregation's own signatures, by the client's own key."""
    found, identity = tensors_file.read(path), signing_key(run.key, "secagg")
    tensors, params = dict(found.tensors), dict(about.params)
    if about.kind == "secagg-keys":
        both = [tensors[name][0].tobytes() for name in ("cipher_keys", "mask_keys")]
        signature = sign(identity, session.keys_statement(about.client, about.round, *both))
        tensors["signatures"] = np.frombuffer(signature, np.uint8).reshape(1, -1)
    elif "signature" in params:
        params = session.signed(about, tensors, identity)
    else:
        return

    def fields(metadata):
        metadata["params"] = params

    ordered = b"".join(np.ascontiguousarray(tensors[spec.name]).tobytes() for spec in found.specs)
    replace(path, run.forge.forge_tensors(path.read_bytes(), fields=fields, payload=ordered))


def tensor_cases(run):
    for kind in TENSORS:
        found = tensors_file.read(path_of(run, kind)).tensors
        for name, array in found.items():
            for how, new in _arrays(array):

                def do(run, kind=kind, name=name, new=new):
                    _write_tensors(run, kind, {name: new})

                same = new is not None and new.dtype == array.dtype and new.shape == array.shape
                yield Case(kind, f"tensor {name}", how, do, FREE["tensors"] if same else None)

        def extra(run, kind=kind):
            _write_tensors(run, kind, {MARK: np.arange(9, dtype=np.float32)})

        yield Case(kind, "tensors", "one more", extra)


def _arrays(array):
    """A tensor of another type, shape or value; None where it is left out."""
    yield "left out", None
    for dtype in (np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8):
        if array.dtype != dtype:
            with np.errstate(all="ignore"):
                yield f"as {np.dtype(dtype).name}", array.astype(dtype)
    if array.ndim:
        yield "a row more", np.concatenate([array, np.zeros((1, *array.shape[1:]), array.dtype)])
        yield "a row less", array[:-1]
        yield "an axis more", array[None]
    if array.size > 1 and array.ndim:
        yield "backwards", array[::-1].copy()
    if array.size:
        first = array.copy()
        flat = first.reshape(-1)
        if array.dtype.kind == "f":
            for how, value in (("a negative zero", -0.0), ("a denormal", 1e-44), ("a large one", 1e30)):
                other = first.copy()
                other.reshape(-1)[0] = value
                yield how, other
        raw = flat.view(np.uint8).copy()
        raw[0] ^= 1
        yield "its last bit", raw.view(array.dtype).reshape(array.shape)


def _write_tensors(run, kind, tensors):
    path = path_of(run, kind)
    found = tensors_file.read(path)
    values = {**found.tensors, **tensors}
    with pytest.MonkeyPatch.context() as patched:
        for check in ("_check_stated", "_check_promises", "check_finite"):
            patched.setattr(tensors_file, check, lambda *_: None)
        elsewhere = run.root / "elsewhere/outbox" / path.name
        tensors_file.write(elsewhere, {n: v for n, v in values.items() if v is not None}, found.metadata)
    replace(path, elsewhere.read_bytes())
    shutil.rmtree(run.root / "elsewhere")
    settle(run, path, found.metadata)


def statement_cases(run):
    """What is signed, changed and signed again by the client's key."""
    for kind in STATEMENTS:
        for number, line in enumerate(envelope_file.read(path_of(run, kind)).envelopes):
            for where, how, after in all_changes(line.statement):

                def do(run, kind=kind, number=number, after=after):
                    _write_statement(run, kind, number, after)

                yield Case(kind, f"statement {number} {'.'.join(map(str, where))}", how, do)


def _write_statement(run, kind, number, after):
    path = path_of(run, kind)
    found = envelope_file.read(path)
    lines = list(found.envelopes)
    lines[number] = Envelope(canonical_json(after).encode(), {}).signed(signing_key(run.key, "envelopes"))
    replace(path, b"".join(line.line() for line in lines))
    about = found.metadata
    with contextlib.suppress(FedsynthError, EnvelopeError, MetadataError):
        about = any_file.scan(path).metadata
    run.put(path, about)


def file_cases(run):
    """Every file of an outbox under another name, in another place, as a link, with another mode or with attributes."""
    del run
    for kind in [*TENSORS, *DATASETS, *STATEMENTS]:
        for how, do, free in _FILES:
            yield Case(kind, "file", how, lambda run, kind=kind, do=do: do(run, path_of(run, kind)), free)
    for how, do in _PLACES:
        yield Case("folder", "place", how, do)


def _renamed(name):
    def do(run, path):
        """With a ledger to it, whose heads fit again."""
        new = path.with_name(name(path))
        path.rename(new)
        for receipt in (run.root / "server/outbox").glob("receipt*"):
            receipt.unlink()
        entries = egress.read(run.ledger).entries
        run.start_anew([replaced_by(e, file=new.name) if e.file == path.name else e for e in entries])

    return do


def _numbered(path, number):
    stem = path.name.partition(".")[0].rpartition("-")[0] or path.name.partition(".")[0]
    return f"{stem}-{number}{''.join(path.suffixes)}"


def _linked(run, path):
    target = run.private / f"behind-{path.name}"
    path.rename(target)
    path.symlink_to(target)


def _attribute(run, path):
    del run
    with contextlib.suppress(OSError):  # a disk without them
        os.setxattr(path, "user.note", MARK.encode())
        return
    raise NotHere("this disk has no extended attributes")


_FILES = [
    ("renamed by a person", _renamed(lambda p: f"{MARK}-1968{''.join(p.suffixes)}"), "names"),
    ("renamed with a number", _renamed(lambda p: _numbered(p, 29021968)), "names"),
    ("renamed to another kind", _renamed(lambda p: f"model-0001{''.join(p.suffixes)}"), "names"),
    ("renamed to a line break", _renamed(lambda p: f"a\nb{''.join(p.suffixes)}"), None),
    ("renamed to an escape", _renamed(lambda p: f"\x1b[2J{''.join(p.suffixes)}"), None),
    ("renamed to another script", _renamed(lambda p: f"мюллер{''.join(p.suffixes)}"), None),
    ("renamed to spaces", _renamed(lambda p: f"a b{''.join(p.suffixes)}"), None),
    ("a link in its place", _linked, None),
    ("a hard link beside it", lambda run, p: os.link(p, p.with_name(f"again-{p.name}")), None),
    ("in a sub-folder", lambda run, p: ((run.out / "more").mkdir(), p.rename(run.out / "more" / p.name)), None),
    ("beside the outbox", lambda run, p: shutil.copy(p, run.client / p.name), None),
    ("may be run", lambda run, p: p.chmod(0o755), None),
    ("set-user-id", lambda run, p: p.chmod(0o4600), None),
    ("readable by its group", lambda run, p: p.chmod(0o640), "modes"),
    ("another time", lambda run, p: os.utime(p, (1968, 1968)), "times"),
    ("an extended attribute", _attribute, None),
]


def _outbox_behind_a_link(run):
    run.out.rename(run.private / "real")
    run.out.symlink_to(run.private / "real")


def _ledger_behind_a_link(run):
    run.ledger.rename(run.private / "real.jsonl")
    run.ledger.symlink_to(run.private / "real.jsonl")


def _data_in_public(run):
    shared = run.root / "public"
    copy = run.root / "mine"
    shutil.copytree(shared, copy)
    shared.unlink()
    copy.rename(shared)
    shutil.copy(run.private / "data.parquet", shared / "extra.parquet")


_PLACES = [
    ("the outbox behind a link", _outbox_behind_a_link),
    ("the ledger behind a link", _ledger_behind_a_link),
    ("a second outbox in the private folder", lambda run: shutil.copytree(run.out, run.private / "outbox")),
    ("a folder beside the outbox", lambda run: shutil.copytree(run.out, run.client / "more")),
    ("private data among the public files", _data_in_public),
    ("the spend ledger deleted", lambda run: (run.private / "spend.jsonl").unlink()),
    ("the ledger deleted", lambda run: run.ledger.unlink()),
]


def generated(run):
    """All of them."""
    for source in (metadata_cases, tensor_cases, statement_cases, file_cases):
        yield from source(run)


def covered(cases):
    """The kinds that a client may send and no case touches."""
    made = {case.kind for case in cases}
    return {kind.name for kind in KINDS.values() if kind.leaves} - made
