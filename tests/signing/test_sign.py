"""`sign`, `verify` and `aggregate --require-signed`: what passes, and every way in which it must not."""

import base64
import json
import shutil

import pytest

from artifacts.digests import canonical_json
from artifacts.errors import InputError, UsageError, VerificationError
from artifacts.formats import envelope_file, tensors_file
from artifacts.identity import dsse, keys, roster
from artifacts.ledgers import egress
from stages.sign import sign
from stages.verify import check_same, require_signed, verify


def read_payloads(path):
    return [json.loads(base64.b64decode(json.loads(line)["payload"])) for line in path.read_text().splitlines()]


def forge(path, change, secret=None):
    """Change the statements of an envelope file; sign them with `secret`, or leave the old signatures."""
    lines = []
    for envelope in envelope_file.read(path).envelopes:
        statement = envelope.statement
        change(statement)
        payload = canonical_json(statement).encode()
        made = dsse.Envelope(payload, {} if secret else envelope.signatures)
        lines.append((made.signed(secret) if secret else made).line())
    path.write_bytes(b"".join(lines))


def secret_of(federation, name):
    return roster.signing_key(keys.read(federation.key(name)), "envelopes")


def refused(federation, match, file=None, **more):
    file = file or federation.message("a")
    found, passed = verify([file], roster=federation.roster, **more)
    assert not passed
    with pytest.raises(VerificationError, match=match):
        raise VerificationError(found["files"][0]["reason"])


def test_signed_files_pass_by_hand(federation, fedsynth_json, fedsynth):
    files = [federation.message("a"), federation.message("b")]
    found = fedsynth_json("verify", *files, "--roster", federation.roster)
    assert [row["signed_by"] for row in found["files"]] == ["a", "b"]
    claim = found["files"][0]["claim"]
    start = tensors_file.read(federation.model)
    assert (claim["client"], claim["round"], claim["model"]) == ("a", 1, start.sha256)
    assert (claim["epsilon"], claim["disclosures"], claim["kind"]) == ("∞", ["update"], "message")
    code, out, _ = fedsynth("verify", *files, "--roster", federation.roster)
    assert code == 0 and out.count("ok") == 2 and "FAIL" not in out
    out = federation.root / "server/outbox/model-0001.safetensors"
    made = fedsynth_json("aggregate", federation.model, *files, "--require-signed", federation.roster, "-o", out)
    assert made["messages"] == 2


def test_signing_again_gives_the_same_bytes(federation):
    before = federation.envelope("a").read_bytes()
    entries = len(egress.read(federation.place("a") / "egress.jsonl").entries)
    sign([federation.message("a")], roster=federation.roster, force=True)
    assert federation.envelope("a").read_bytes() == before
    assert len(egress.read(federation.place("a") / "egress.jsonl").entries) == entries


def test_the_envelope_is_in_the_ledger_and_costs_nothing(federation, fedsynth_json):
    entry = egress.read(federation.place("a") / "egress.jsonl").latest(federation.envelope("a").name)
    assert (entry.kind, entry.round, entry.privacy, entry.disclosures) == ("envelope", 1, [], [])
    account = fedsynth_json("account", federation.place("a"), "--delta", "1e-5")
    assert len(account["clients"]) == 1


def test_nothing_private_and_no_circumstance_stands_in_an_envelope(federation):
    private = {tensors_file.read(p).sha256 for p in (federation.place("a") / "private").glob("*.safetensors")}
    text = json.dumps(read_payloads(federation.envelope("a")))
    assert private and not any(digest in text for digest in private)
    assert str(federation.root) not in text
    provenance = read_payloads(federation.envelope("a"))[0]["predicate"]
    assert provenance.keys() == {"buildDefinition", "runDetails"}
    assert provenance["runDetails"].keys() == {"builder"}  # neither time nor invocation
    assert provenance["runDetails"]["builder"].keys() == {"id", "version"}
    public, committed = provenance["buildDefinition"]["resolvedDependencies"]
    assert public["digest"] == {"sha256": tensors_file.read(federation.model).sha256}
    assert "digest" not in committed and committed["annotations"].keys() == {"kind", "commitment", "salt"}


def test_the_server_signs_what_it_gives_out(federation, fedsynth_json):
    files = [federation.message("a"), federation.message("b")]
    out = federation.root / "server/outbox/model-0001.safetensors"
    fedsynth_json("aggregate", federation.model, *files, "-o", out)
    fedsynth_json("sign", out, "--roster", federation.roster)
    found = fedsynth_json("verify", out, "--roster", federation.roster)
    assert found["files"][0]["signed_by"] == "server"
    text = json.dumps(read_payloads(envelope_file.beside(out)))
    assert not any(tensors_file.read(file).sha256 in text for file in files)  # who took part is not told
    fedsynth_json("sign", federation.model, "--key", federation.key("server"), "--roster", federation.roster)
    fedsynth_json("verify", federation.model, "--roster", federation.roster)


def claim(**fields):
    def change(statement):
        if "kind" in statement["predicate"]:
            statement["predicate"].update(fields)

    return change


def provenance(name, value):
    def change(statement):
        definition = statement["predicate"].get("buildDefinition")
        if definition is not None:
            definition["externalParameters"][name] = value

    return change


def subject(**fields):
    return lambda statement: statement["subject"][0].update(fields)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (subject(digest={"sha256": "0" * 64}), "another file"),
        (claim(disclosures=[]), "of predicate.disclosures"),
        (claim(epsilon="by events"), "of predicate.epsilon"),
        (claim(round=2), "of predicate.round"),
        (claim(client="b"), "of predicate.client"),
        (claim(model="0" * 64), "of predicate.model"),
        (claim(federation="other"), "of predicate.federation"),
        (claim(simulation=True), "of predicate.simulation"),
        (claim(events=[{"unit": "record"}]), "of predicate.events"),
        (provenance("federation", "other"), "externalParameters.federation"),
        (provenance("params", {"clip_norm": 1.0}), "externalParameters.params"),
        (provenance("note", "hidden"), "externalParameters.note"),
    ],
)
def test_a_statement_that_is_not_true_of_the_file_is_refused(federation, change, match):
    """Changed on the way it has no signature; made so by the client itself it contradicts the file."""
    whole = federation.envelope("a").read_bytes()
    forge(federation.envelope("a"), change)
    refused(federation, "not signed by the key of 'a'")
    federation.envelope("a").write_bytes(whole)
    forge(federation.envelope("a"), change, secret_of(federation, "a"))
    refused(federation, match)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (claim(note="hidden"), "does not have the fields"),
        (claim(picked=1), "malformed field"),
        (claim(custody="nowhere"), "does not have the fields"),
        (subject(uri="urn:x"), "not on one file"),
        (subject(digest={"sha256": "0" * 64, "sha512": "0"}), "not on one file"),
        (subject(name="../x"), "plain name"),
        (lambda s: s.update(extra=1), "not an in-toto statement"),
        (lambda s: s.update(_type="https://in-toto.io/Statement/v0"), "Wrong statement type"),
        (lambda s: s.update(predicateType="urn:other"), "neither two statements"),
    ],
)
def test_a_file_of_envelopes_has_one_form(federation, change, match):
    forge(federation.envelope("a"), change, secret_of(federation, "a"))
    refused(federation, match)


def test_only_the_canonical_spelling_is_read(federation):
    whole = federation.envelope("a").read_text()
    for text in (whole.replace('{"payload"', '{ "payload"'), whole + "\n", whole.rstrip("\n"), whole * 2, "", "x\n"):
        federation.envelope("a").write_text(text)
        refused(federation, "not a whole file of envelopes")


def test_picked_is_the_clients_own_word(federation):
    forge(federation.envelope("a"), claim(picked=True), secret_of(federation, "a"))
    found, passed = verify([federation.message("a")], roster=federation.roster)
    assert passed and found["files"][0]["claim"]["picked"]


def test_what_a_person_picked_is_signed_as_such(empty):
    """Its events would give an ε; the choice of someone who had seen private data takes it away."""
    from stages.release import let_out, look

    federation = empty("picked")
    federation.found(federation.roster)
    federation.begin(federation.model)
    for name, seen in (("a", True), ("b", False)):
        (federation.place(name) / "private/policy.yaml").write_text("rules: []\n")
        federation.send(name, clip_norm=1.0, noise_multiplier=1.0, least_clients=2)
        held = federation.place(name) / "pending" / federation.message(name).name
        with pytest.raises(UsageError, match="waits to be released"):
            sign([held], roster=federation.roster)
        let_out(look(held), by="person", seen_private=seen)
        (federation.place(name) / "private/policy.yaml").unlink()
    files = [federation.message(name) for name in ("a", "b")]
    sign(files, roster=federation.roster)
    found, passed = verify(files, roster=federation.roster)
    assert passed
    assert [(f["claim"]["picked"], f["claim"]["epsilon"]) for f in found["files"]] == [
        (True, "∞"),
        (False, "by events"),
    ]


def test_who_signed_matters(federation, empty):
    shutil.copy(federation.envelope("b"), federation.envelope("a"))
    refused(federation, "not signed by the key of 'a'")  # another client's envelope
    stranger = empty("stranger")
    stranger.found(stranger.roster)
    forge(federation.envelope("a"), lambda s: None, secret_of(stranger, "a"))
    refused(federation, "not signed by the key of 'a'")  # the right name, a wrong key
    federation.envelope("a").unlink()
    refused(federation, "is not signed: no envelope")


def test_secagg_keys_sign_no_envelopes(federation):
    other = roster.signing_key(keys.read(federation.key("a")), "secagg")
    forge(federation.envelope("a"), lambda s: None, other)
    refused(federation, "not signed by the key of 'a'")


def test_another_federation_and_unknown_clients(federation, tmp_path):
    identities = [federation.place(name) / "private/identity.json" for name in ("a", "b", "server")]
    from stages.identity import roster as write

    write(identities, tmp_path / "renamed.json", federation="other")
    found, passed = verify([federation.message("a")], roster=tmp_path / "renamed.json")
    assert not passed and "federation" in found["files"][0]["reason"]
    write(identities[1:], tmp_path / "without.json")
    found, passed = verify([federation.message("a")], roster=tmp_path / "without.json")
    assert not passed and "'a' is not in the roster" in found["files"][0]["reason"]


def test_an_envelope_of_another_round_is_refused(federation):
    """Swapped between rounds, or sent again."""
    federation.begin(federation.root / "public/model-0001.safetensors", round=1)
    federation.send("a", round=2, model=federation.root / "public/model-0001.safetensors")
    shutil.copy(federation.envelope("a"), federation.envelope("a", 2))
    refused(federation, "another file", federation.message("a", 2))
    sign([federation.message("a", 2)], roster=federation.roster, force=True)
    refused(federation, "another file", federation.message("a"), envelope=federation.envelope("a", 2))


def test_a_flipped_bit_is_refused(federation):
    data = bytearray(federation.message("a").read_bytes())
    data[-1] ^= 1
    federation.message("a").write_bytes(data)
    refused(federation, "do not match their digest")


def test_aggregate_takes_only_signed_files(federation, fedsynth):
    files = [federation.message("a"), federation.message("b")]
    out = federation.root / "server/outbox/model-0001.safetensors"
    federation.envelope("b").unlink()
    command = ["aggregate", federation.model, *files, "-o", out, "--require-signed", federation.roster]
    code, _, err = fedsynth(*command)
    assert code == 5 and "is not signed" in err and not out.exists()
    code, _, err = fedsynth(*command, "--rule", "fedlap")
    assert code == 5 and "is not signed" in err and not out.exists()


def test_what_was_aggregated_is_what_was_verified(federation):
    signed = require_signed([federation.message("a")], federation.roster)
    check_same([tensors_file.read(federation.message("a")).sha256], signed)
    with pytest.raises(VerificationError, match="changed after"):
        check_same([tensors_file.read(federation.message("b")).sha256], signed)


def test_what_cannot_be_signed(federation, tmp_path):
    with pytest.raises(InputError, match="it stays where it is"):
        sign([federation.place("a") / "private/update-0001.safetensors"], roster=federation.roster)
    with pytest.raises(InputError, match="is itself a signed envelope"):
        sign([federation.envelope("a")], roster=federation.roster)
    with pytest.raises(VerificationError, match="not that of 'a'"):
        sign([federation.message("a")], roster=federation.roster, key=federation.key("b"), force=True)
    (federation.place("a") / "egress.jsonl").unlink()
    with pytest.raises(VerificationError, match="not in the ledger"):
        sign([federation.message("a")], roster=federation.roster, force=True)


def test_exit_codes(federation, fedsynth):
    shutil.copy(federation.envelope("b"), federation.envelope("a"))
    code, out, err = fedsynth("verify", federation.message("a"), "--roster", federation.roster)
    assert code == 5 and "FAIL" in out and "1 of 1 not verified" in err
    code, _, _ = fedsynth("verify", federation.message("a"), "--roster", federation.model)
    assert code == 3
    code, _, err = fedsynth("sign", federation.message("a"), federation.message("b"), "--roster", federation.roster,
                            "-o", federation.envelope("a"))  # fmt: skip
    assert code == 2 and "one file" in err
