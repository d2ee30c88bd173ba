"""What an insider rewrites together: two or more of file, ledger, envelope, receipt and spend ledger, each to fit."""

import json

from insider.cases import Case, path_of, replace, settle

from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.formats import tensors_file


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


PAIRS = [
    ("spend", "the spend ledger put back, heads and receipts as they were", _spend_alone, None),
    ("spend, head", "the spend ledger put back, heads signed again", spend_and_heads(lambda e: e[:1]), None),
    ("spend, head", "no reservation in the spend ledger, heads signed again", spend_and_heads(_not_reserved), None),
    ("spend, head", "cheaper reservations, heads signed again", spend_and_heads(_cheaper), None),
    ("file, ledger, envelope", "the message of another round", _file_ledger_and_envelope_of_another_round, None),
    ("ledger, receipt", "a file, its entry and the receipts gone", _ledger_and_receipts, "entries"),
]


def pair_cases(run):
    del run
    for field, how, do, free in PAIRS:
        yield Case("pair", field, how, do, free)
