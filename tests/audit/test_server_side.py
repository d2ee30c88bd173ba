"""What the server sends is held to the grammar of its kinds too, and a federation's signatures count in no other."""

import json
import shutil

import numpy as np
import pytest
from tampering.run import Run, stated

from artifacts.digests import sha256_hex
from artifacts.errors import VerificationError
from artifacts.formats import envelope_file, tensors_file
from artifacts.identity.dsse import Envelope
from artifacts.identity.roster import read_roster, signing_key
from artifacts.ledgers import egress
from stages.audit import audit
from stages.identity import roster
from stages.verify import require_signed
from stages.verify import verify as verify_files

MODEL = "model-0001.safetensors"


@pytest.fixture
def run(tampered, forge):
    return Run(tampered, forge)


def failures(report):
    return {f.check for f in report.findings if f.level == "failure"}


def send(run, data):
    """Another model in the server's outbox, with a ledger that fits."""
    path, ledger = run.root / "server/outbox" / MODEL, run.root / "server/private/egress.jsonl"
    path.write_bytes(data)
    entries = egress.read(ledger).entries
    ledger.unlink()
    with egress.locked(ledger) as book:
        for entry in entries:
            here = (path.parent / entry.file).read_bytes()
            book.enter(file=entry.file, sha256=sha256_hex(here), size=len(here), metadata=stated(entry))


def test_an_extra_tensor_in_a_model_that_goes_down(run, tmp_path):
    found = tensors_file.read(run.root / "server/outbox" / MODEL)
    made = tmp_path / "x/outbox" / MODEL
    tensors_file.write(made, {**found.tensors, "patients": np.arange(9, dtype=np.float32)}, found.metadata)
    send(run, made.read_bytes())
    assert "tensors" in failures(audit(run.root))


@pytest.mark.parametrize("params", [{"note": "mueller"}, {"arch": "mueller"}, {"weights": 1}])
def test_free_text_in_a_model_that_goes_down(run, params):
    def fields(about):
        about["params"] |= params

    send(run, run.forge.forge_tensors((run.root / "server/outbox" / MODEL).read_bytes(), fields=fields))
    assert "params" in failures(audit(run.root))


def test_a_deleted_record_of_what_a_model_was_made_from(run):
    next((run.root / "server/private").glob("model-0001*.lineage.json")).unlink()
    assert "lineage" in failures(audit(run.root))


def test_a_federation_has_an_id_of_its_own(tmp_path, run):
    identities = [run.root / f"clients/{name}/private/identity.json" for name in ("00", "01", "02")]
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    roster(identities, first)
    roster(identities, second)
    one, two = read_roster(first), read_roster(second)
    assert one.federation != two.federation and one.fingerprint != two.fingerprint
    roster(identities, first)  # again, the same
    assert read_roster(first).federation == one.federation


def test_a_signed_message_of_another_federation_with_the_same_keys_does_not_count(run, tmp_path):
    identities = [run.root / f"clients/{name}/private/identity.json" for name in ("00", "01", "02")]
    other = tmp_path / "roster.json"
    roster(identities, other)
    require_signed([run.path("message")], run.root / "public/roster.json")
    with pytest.raises(VerificationError, match="federation"):
        require_signed([run.path("message")], other)


def own_roster(run, **terms):
    """The same federation, with terms; `public` is the insider's copy."""
    public, old = run.root / "public", read_roster(run.root / "public/roster.json")
    copy = run.root / "copied"
    shutil.copytree(public, copy)
    public.unlink()
    copy.rename(public)
    identities = [run.root / f"clients/{name}/private/identity.json" for name in ("00", "01", "02")]
    identities.append(run.root / "server/private/identity.json")
    roster(identities, public / "roster.json", federation=old.federation, force=True, **terms)


def of_client(run):
    return audit(run.client, received=[run.root / "public", run.root / "server/outbox"])


def test_what_the_roster_asks_to_be_signed_must_be(run):
    own_roster(run, signed=["message"], rounds=(1, 1))
    said = [f for f in of_client(run).findings if "not signed" in f.what]
    assert [f.where.rsplit("/", 1)[-1] for f in said] == ["noised-0001.safetensors"]  # that of round 2 is not asked


def test_a_stripped_envelope_is_noticed_where_the_roster_asks_for_it(run):
    own_roster(run, signed=["message"], rounds=(1, 1))
    (run.out / "message-0001.safetensors.intoto.jsonl").unlink()
    said = [f.where.rsplit("/", 1)[-1] for f in of_client(run).findings if "not signed" in f.what]
    assert "message-0001.safetensors" in said


def test_an_expired_roster_signs_and_accepts_nothing(run):
    own_roster(run, expires="2020-02-29")
    with pytest.raises(VerificationError, match="expired on 2020-02-29"):
        verify_files([run.path("message")], roster=run.root / "public/roster.json")
    with pytest.raises(VerificationError, match="expired"):
        require_signed([run.path("message")], run.root / "public/roster.json")
    assert any("it expired on 2020-02-29" in f.what for f in of_client(run).findings)


def test_the_terms_are_part_of_the_fingerprint(run):
    before = read_roster(run.root / "public/roster.json").fingerprint
    own_roster(run, expires="2999-12-31")
    changed = read_roster(run.root / "public/roster.json")
    assert changed.fingerprint != before and not changed.has_expired


@pytest.mark.parametrize("terms", [{"expires": "29.2.2020"}, {"signed": ["patients"]}, {"signed": ["head"]}])
def test_terms_that_mean_nothing_are_refused(run, terms):
    with pytest.raises(Exception, match=r"signed|YYYY"):
        own_roster(run, **terms)


def test_an_envelope_whose_nonce_is_ones_own_is_noticed(run, monkeypatch):
    """Whoever signs by hand can put 32 bytes of their own into a signature that is valid."""
    path, key = run.path("envelope"), signing_key(run.key, "envelopes")
    lines = []
    for line in envelope_file.read(path).envelopes:
        fields = json.loads(line.line())
        (signature,) = fields["signatures"]
        assert Envelope(line.payload, {}).signed(key).signatures == line.signatures
        signature["sig"] = _other(signature["sig"])
        lines.append(json.dumps(fields, sort_keys=True, separators=(",", ":")))
    path.write_text("\n".join(lines) + "\n")
    run.put(path, envelope_file.read(path).metadata)
    said = [f.what for f in of_client(run).findings if f.check == "envelopes" and f.level == "failure"]
    assert any("not the one that the key makes" in what for what in said)


def _other(text):
    return ("0" if text[0] != "0" else "1") + text[1:]
