"""What someone does to ledgers, receipts and signatures."""

import base64
import json
from dataclasses import replace

from tampering.run import FILES, case

from artifacts.digests import canonical_json, sha256_hex
from artifacts.formats.envelope_file import write as write_envelopes
from artifacts.identity.roster import read_roster, signing_key
from artifacts.identity.statements import on_file
from artifacts.ledgers import egress


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
    kept = {entry.file for entry in egress.read(run.ledger).entries}
    for path in run.out.iterdir():
        if path.name not in kept:
            path.unlink()


@case("anchor", "the ledger rewritten from the start, one file less", group="ledger")
def _(run):
    entries = [entry for entry in egress.read(run.ledger).entries if entry.file != FILES["surrogate"]]
    run.path("surrogate").unlink()
    run.start_anew(entries)


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
    run.put(run.path("message"), replace(run.about("message"), round=9))


@case("chain", "an entry of the spend ledger edited", group="ledger")
def _(run):
    path = run.private / "spend.jsonl"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, *(line.replace('"steps":2', '"steps":1') for line in rest)]) + "\n")


def _sign(run, file, signer, *, picked=False):
    """An envelope on this file in the place of the message's own, and the ledger to it."""
    path = run.path("envelope")
    federation = read_roster(run.root / "public/roster.json").federation
    said = on_file(file.name, sha256_hex(file.read_bytes()), run.about("message"), federation, picked=picked)
    written = write_envelopes(path, tuple(one.signed(signer) for one in said), force=True)
    run.put(path, written.metadata)


@case("envelopes", "an envelope of another file, under the name of this one", group="signatures")
def _(run):
    _sign(run, run.out / "message-0002.safetensors", signing_key(run.key, "envelopes"))


@case("envelopes", "an envelope signed with another key", group="signatures")
def _(run):
    _sign(run, run.path("message"), bytes(32))


@case("envelopes", "an envelope that says of 'picked' something else than the ledger", group="signatures")
def _(run):
    _sign(run, run.path("message"), signing_key(run.key, "envelopes"), picked=True)
