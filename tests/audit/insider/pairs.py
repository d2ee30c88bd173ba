"""What an insider rewrites together: two or more of file, ledger, envelope, receipt and spend ledger, each to fit."""

import dataclasses
import json
import shutil

from insider.cases import Case, path_of, replace, settle

from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.formats import envelope_file, tensors_file
from artifacts.identity import dsse
from artifacts.identity.commitments import commit, opens
from artifacts.identity.dsse import Envelope
from artifacts.identity.roster import verify_key
from artifacts.ledgers import egress


def rechained(path, change):
    """A ledger of which some entries are others, with a chain that fits again."""
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    head, lines = ZEROS, []
    for number, entry in enumerate(change(entries), start=1):
        lines.append(canonical_json({**entry, "seq": number, "previous": head}))
        head = sha256_hex(lines[-1].encode())
    path.write_text("".join(f"{line}\n" for line in lines))


def spend_and_heads(change):
    """The spend ledger is another, and every head commits to that one; no receipt is left."""

    def do(run):
        rechained(run.private / "spend.jsonl", change)
        path = path_of(run, "message")
        settle(run, path, tensors_file.read(path).metadata)

    return do


def _spend_alone(run):
    rechained(run.private / "spend.jsonl", lambda entries: entries[:1])


def _file_ledger_and_envelope_of_another_round(run):
    """The message of round 2 under the name of round 1, entered and signed as such."""
    first, second = path_of(run, "message"), run.out / "message-0002.safetensors"
    about = tensors_file.read(second).metadata
    replace(first, second.read_bytes())
    settle(run, first, about)


def _ledger_and_receipts(run):
    """A file that left, its entry and all receipts are gone."""
    (run.out / "message-0002.safetensors").unlink()
    for folder in (run.private, run.root / "server/outbox"):
        for receipt in folder.glob("receipt*.intoto.jsonl"):
            receipt.unlink()
    (run.out / "head-0002.intoto.jsonl").unlink()
    gone = ("message-0002.safetensors", "head-0002.intoto.jsonl")
    rechained(run.ledger, lambda entries: [entry for entry in entries if entry["file"] not in gone])


def _not_reserved(entries):
    return [entry for entry in entries if entry["entry"] != "reserved"]


def _cheaper(entries):
    """Every reservation with twice the noise: what left cost more than was charged."""
    for entry in entries:
        for event in entry.get("events", ()):
            event["noise_multiplier"] *= 2
    return entries


def _made_again(run, kind, round=None, changed=None):
    """A file with another event or of another round, from a private file that says the same, with salts that fit."""
    path = path_of(run, kind)
    found = tensors_file.read(path)
    events = tuple(dict(event) | (changed or {}) for event in found.metadata.privacy)
    about = dataclasses.replace(found.metadata, privacy=events, round=found.metadata.round if round is None else round)
    context = {"stage": about.stage, "client": about.client, "round": about.round, "params": dict(about.params)}
    if about.kind == "surrogate":
        context["inputs"] = [one.to_json() for one in about.inputs if one.commitment is None]

    def again(one):
        if one.commitment is None:
            return one
        kept = next(p for p in run.private.iterdir() if opens(run.key, one, sha256_hex(p.read_bytes())))
        if kept.suffix == ".safetensors":
            behind = tensors_file.read(kept)
            says = dataclasses.replace(behind.metadata, privacy=events, round=about.round)
            if changed is not None:
                kept.unlink()
            kept = kept.with_name(f"forged-{kept.name}")
            tensors_file.write(kept, behind.tensors, says)
        digest = sha256_hex(kept.read_bytes())
        return commit(run.key, role=one.role, kind=one.kind, sha256=digest, context=context)

    about = dataclasses.replace(about, inputs=tuple(map(again, about.inputs)))
    elsewhere = run.root / "elsewhere/outbox" / path.name
    tensors_file.write(elsewhere, found.tensors, about)
    replace(path, elsewhere.read_bytes())
    shutil.rmtree(run.root / "elsewhere")
    settle(run, path, about)


def _cheap(**changed):
    """The event of a noised training says something else, in its files, in the spend ledger and in what is sent."""

    def other(entries):
        for entry in entries:
            for event in entry["events"] if entry.get("stage") == "train-client" else ():
                event.update(changed)
        return entries

    def do(run):
        rechained(run.private / "spend.jsonl", other)
        _made_again(run, "noised", changed=changed)

    words = ", ".join(f"{name} {value}" for name, value in changed.items())
    return "file, spend, head", f"noise with {words}", do, None


def _of_round(kind):
    what = f"a {kind} of a round of one's own"
    return "file, ledger, private file", what, lambda run: _made_again(run, kind, round=29021968), None


def _identity_of_ones_own(run):
    """A key in the roster that does not come from the client's: nobody could say which signatures it makes."""
    mine, public, copy = bytes(range(32)), run.root / "public", run.root / "mine"
    shutil.copytree(public, copy)
    public.unlink()
    copy.rename(public)
    said = json.loads((public / "roster.json").read_text())
    said["clients"]["01"]["envelopes"] = verify_key(mine).hex()
    (public / "roster.json").write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")
    for receipt in (run.root / "server/outbox").glob("receipt*"):
        receipt.unlink()

    def signed(data):
        lines = map(dsse.parse, data.splitlines())
        return b"".join(Envelope(line.payload, {}).signed(mine).line() for line in lines)

    envelope = path_of(run, "envelope")
    replace(envelope, signed(envelope.read_bytes()))
    run.start_anew(egress.read(run.ledger).entries)
    head = path_of(run, "head")
    head.write_bytes(signed(head.read_bytes()))
    run.put(head, envelope_file.read(head).metadata)


PAIRS = [
    *(
        _cheap(**{name: value})
        for name, value in (
            ("sampling_rate", 0.001),
            ("steps", 1),
            ("trust", "server"),
            ("adjacency", "replace-one"),
            ("clip_norm", 0.5),
            ("unit", "client"),
        )
    ),
    *map(_of_round, ("state", "surrogate", "proxy", "topk", "residuals")),
    ("roster, envelope, head", "an identity that is not the key's", _identity_of_ones_own, None),
    ("spend", "the spend ledger put back, heads and receipts as they were", _spend_alone, None),
    ("spend, head", "the spend ledger put back, heads signed again", spend_and_heads(lambda e: e[:1]), None),
    ("spend, head", "no reservation in the spend ledger, heads signed again", spend_and_heads(_not_reserved), None),
    ("spend, head", "cheaper reservations, heads signed again", spend_and_heads(_cheaper), None),
    ("file, ledger, envelope", "the message of another round", _file_ledger_and_envelope_of_another_round, "names"),
    ("ledger, receipt", "a file, its entry and the receipts gone", _ledger_and_receipts, "entries"),
]


def pair_cases(run):
    del run
    for field, how, do, free in PAIRS:
        yield Case("pair", field, how, do, free)
