"""Each format against what its specification requires, and against figures that were computed elsewhere."""

import base64
import hashlib
import json
import math
from typing import get_args

import browser as browser_module
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from scipy.optimize import brentq
from scipy.stats import norm

from artifacts.digests import sha256_file


def gaussian_epsilon(sigma, delta):
    """ε of one Gaussian release of sensitivity 1, exactly (Balle and Wang 2018, Theorem 8)."""

    def excess(epsilon):
        a, b = 1 / (2 * sigma), epsilon * sigma
        return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b) - delta

    return brentq(excess, 0, 50)


def test_a_card_has_the_epsilon_unit_adjacency_and_trust_of_the_files(export, noised):
    card = export(noised, "dp-card")
    total = next(g for g in card["guarantees"] if g["holds"] == "if no person is in two clients' data")
    exact = gaussian_epsilon(4, 1e-5)
    assert exact <= total["epsilon"]["pld"] <= 1.02 * exact
    assert total["epsilon"]["rdp"] >= total["epsilon"]["pld"]
    assert (card["delta"], list(card["unit"]), list(card["adjacency"])) == (1e-5, ["record"], ["add-or-remove"])
    assert list(card["trust"]) == ["nobody"]
    assert card["mechanisms"][0]["noise_multiplier"] == 4.0
    assert card["composition"]["releases"] == 1
    assert card["implementation"]["audit"]["verdict"].startswith("not audited")
    # What SP 800-226 wants of a claim, and the registry.
    assert {"unit", "adjacency", "delta", "guarantees", "trust", "composition", "implementation", "empirical_bound",
            "without_noise", "mechanisms"} <= card.keys()  # fmt: skip
    assert {"dp_flavor", "model", "privacy_unit", "epsilon", "mechanisms"} <= card["registry"].keys()


def test_a_card_has_words_for_every_unit_adjacency_and_trust():
    from stages.export.formats.dp_card import ADJACENCY, TRUST, UNITS
    from stages.privacy.events import Adjacency, Trust, Unit

    assert [set(words) for words in (UNITS, ADJACENCY, TRUST)] == [set(get_args(w)) for w in (Unit, Adjacency, Trust)]


def test_a_card_says_infinity_where_nothing_has_noise(export, finished_run):
    card = export(finished_run, "dp-card")
    own = [g for g in card["guarantees"] if g["who"] == "00"]
    assert [g["epsilon"]["pld"] for g in own] == ["inf"]
    assert "update" in own[0]["why_infinite"]
    assert {"update", "num_examples"} == {d["name"] for d in card["without_noise"]["disclosures"]}
    assert card["about"]["simulation"]
    text = export(finished_run, "dp-card", out="card.md")
    assert "**ε is ∞**" in text
    assert text.count("[to be written]") == len(card["to_be_written"])


def test_a_record_has_rules_thresholds_versions_and_decision_of_each_release(export, forge, tmp_path):
    from artifacts.identity import keys
    from stages.keygen import settle
    from stages.release import let_out, look

    client = tmp_path / "clients/00"
    settle(client / "private/client.key", keys.generate(), force=False)
    before = forge.write_tensors(client / "outbox/before.safetensors", kind="message", round=1)
    rule = {"kinds": ["message"], "max_bytes": 5000, "disclosures": ["update"], "epsilon": math.inf}
    (client / "private/policy.yaml").write_text(yaml.safe_dump({"delta": 1e-5, "rules": [rule]}))
    for name, by, seen in (("rule", "rules", False), ("picked", "person", True)):
        forge.write_tensors(client / f"outbox/{name}.safetensors", kind="message", round=2)
        let_out(look(client / f"pending/{name}.safetensors"), by=by, seen_private=seen)
    forge.write_tensors(client / "outbox/waits.safetensors", kind="message", round=3)
    record = export(tmp_path, "satre", code=5)  # nobody's stage made these
    releases = {release["file"].removesuffix(".safetensors"): release for release in record["releases"]}
    assert set(releases) == {"before", "rule", "picked"}
    assert {name: r["decision"]["by"] for name, r in releases.items()} == {
        "before": "stage", "rule": "rules", "picked": "person",
    }  # fmt: skip
    assert releases["picked"]["chosen_by_someone_who_saw_private_data"] is True
    assert releases["before"]["sha256"] == sha256_file(before)
    assert releases["before"]["versions"] == forge.VERSIONS
    assert releases["before"]["epsilon_alone"] == "inf"
    policy = record["participants"]["00"]["policy"]
    assert policy == {"delta": 1e-5, "rules": [{"rule": 1, **rule, "epsilon": "inf"}]}
    assert set(record["statements"]) == {"3.1.16", "3.3.07", "3.3.09", "5.6.01"}


def test_croissant_has_what_version_1_1_requires(export, synthetic):
    found = export(synthetic, "croissant")
    required = {"@context", "@type", "conformsTo", "name", "description", "license", "url", "creator", "datePublished"}
    assert required <= found.keys()
    assert found["conformsTo"][0] == "http://mlcommons.org/croissant/1.1"
    (file,) = found["distribution"]
    assert {"@type", "@id", "name", "contentUrl", "encodingFormat", "sha256"} <= file.keys()
    assert (file["contentUrl"], file["sha256"]) == ("synthetic.parquet", sha256_file(synthetic))
    (rows,) = found["recordSet"]
    assert [field["source"]["extract"]["column"] for field in rows["field"]] == ["image", "label"]
    assert all(field["source"]["fileObject"]["@id"] == file["@id"] for field in rows["field"])
    assert any("ε = ∞" in words for words in found["rai:personalSensitiveInformation"])


def test_a_card_for_the_hub_has_front_matter_that_parses(export, synthetic, finished_run):
    for path, wanted in (
        (synthetic, {"task_categories": ["image-classification"], "license": "other"}),
        (finished_run / "server/outbox/model-0001.safetensors", {"library_name": "fedsynth", "license": "other"}),
    ):
        text = export(path, "hf-card", out="README.md")
        _, front, body = text.split("---\n", 2)
        assert wanted.items() <= yaml.safe_load(front).items()
        assert sha256_file(path) in body


@pytest.mark.parametrize("hostile", ["| # **x** `y`\n\n# title", "<script>alert(1)</script>", "[a](b)"])
def test_a_name_from_a_file_is_no_markup(hostile):
    from stages.export.text import table

    assert len(table(["a", "b"], [[hostile, "x"]])) == 3
    cell = table(["a"], [[hostile]])[2][2:-2]
    for character in "|`*<>[]#":
        assert cell.count(character) == cell.count(f"\\{character}")


def test_a_crate_has_the_entities_of_the_five_safes_profile(export, finished_run):
    """Profile 0.4: every MUST of the metadata file, the phases, and the bag around it."""
    bag = export(finished_run, "ro-crate", out="crate")
    graph = json.loads((bag / "data/ro-crate-metadata.json").read_text())["@graph"]
    by_id = {entity["@id"]: entity for entity in graph}
    assert len(by_id) == len(graph)
    descriptor, root = by_id["ro-crate-metadata.json"], by_id["./"]
    assert (descriptor["about"], descriptor["conformsTo"]) == ({"@id": "./"}, {"@id": "https://w3id.org/ro/crate/1.2"})
    assert root["conformsTo"] == {"@id": "https://w3id.org/5s-crate/0.4"}
    workflow = by_id[root["mainEntity"]["@id"]]
    assert workflow["conformsTo"] == {"@id": "https://w3id.org/workflowhub/workflow-ro-crate/1.0"}
    assert by_id[root["sourceOrganization"]["@id"]]["@type"] == "Project"
    mentioned = [by_id[action["@id"]] for action in root["mentions"]]
    (run,) = [action for action in mentioned if action["@type"] == "CreateAction"]
    assert run["instrument"] == root["mainEntity"]
    assert by_id[run["agent"]["@id"]]["@type"] == "Person"
    assert by_id[by_id[run["agent"]["@id"]]["affiliation"]["@id"]]["@type"] == "Organization"
    phases = {a["additionalType"]["@id"].partition("#")[2]: a for a in mentioned if a["@type"] == "AssessAction"}
    status = {phase: action["actionStatus"].removeprefix("http://schema.org/") for phase, action in phases.items()}
    # The run passes its audit; it has neither policy nor gate.
    assert status == {
        "CheckValue": "CompletedActionStatus", "SignOff": "PotentialActionStatus",
        "DisclosureCheck": "PotentialActionStatus",
    }  # fmt: skip
    assert all({"@id": "./"} in action["object"] for action in phases.values())
    outputs = [by_id[result["@id"]] for result in run["result"]]
    sent = sorted(sha256_file(path) for path in finished_run.rglob("outbox/*"))
    assert sorted(output["identifier"].removeprefix("urn:sha256:") for output in outputs) == sent
    # Whatever is referred to is described or is an address.
    for entity in graph:
        for value in entity.values():
            for reference in value if isinstance(value, list) else [value]:
                if isinstance(reference, dict) and not reference["@id"].startswith("http"):
                    assert reference["@id"] in by_id
    for manifest in ("manifest-sha512.txt", "tagmanifest-sha512.txt"):
        for line in (bag / manifest).read_text().splitlines():
            digest, name = line.split("  ")
            assert hashlib.sha512((bag / name).read_bytes()).hexdigest() == digest
    assert (bag / "bag-info.txt").read_text().startswith("External-Identifier: urn:uuid:")


def test_a_crate_of_a_run_that_fails_lists_no_outputs(export, run_copy):
    (run_copy / "clients/00/outbox/notes.txt").write_text("hello")
    bag = export(run_copy, "ro-crate", out="crate", code=5)
    graph = json.loads((bag / "data/ro-crate-metadata.json").read_text())["@graph"]
    assert not [entity for entity in graph if entity["@type"] == "DigitalDocument"]
    status = {entity["@id"]: entity.get("actionStatus") for entity in graph}
    assert status["#disclosure"] == status["#run"] == "http://schema.org/FailedActionStatus"


def test_results_for_acro_are_pass_review_and_fail(export, run_copy):
    found = json.loads((export(run_copy, "sacro", out="sacro") / "results.json").read_text())
    fields = {"uid", "status", "type", "properties", "files", "outcome", "command", "summary", "timestamp", "comments",
              "exception", "fair"}  # fmt: skip
    assert all(record.keys() == fields for record in found["results"].values())
    assert {record["status"] for record in found["results"].values()} == {"review"}
    message = run_copy / "clients/01/outbox/message-0001.safetensors"
    data = bytearray(message.read_bytes())
    data[-1] ^= 1
    message.write_bytes(data)
    found = json.loads((export(run_copy, "sacro", out="sacro", code=5) / "results.json").read_text())
    failed = [r["properties"]["participant"] + "/" + r["files"][0]["name"] for r in found["results"].values()
              if r["status"] == "fail"]  # fmt: skip
    assert failed == ["01/message-0001.safetensors"]
    assert not list((run_copy.parent / "documents/sacro").glob("*.pkl"))


def test_what_carries_noise_passes(noised, said, tmp_path):
    from stages.export.document import Said
    from stages.export.facts import Facts
    from stages.export.formats.sacro import _status
    from stages.export.releases import _decision, _release

    facts = Facts(noised, Said(delta=1e-5), "")
    (file,) = facts.files
    status, why = _status(_release(file, _decision(None, file), {}, 1e-5), facts)
    assert status == "pass"
    assert f"{math.ceil(gaussian_epsilon(4, 1e-5) * 100) / 100:.2f}"[:3] in why


def test_a_signature_is_the_same_again_and_right_by_another_library(fedsynth, forge, tmp_path):
    """Deterministic ECDSA over DSSE's encoding; the statement lists the file by its digest."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = tmp_path / "key.pem"
    pem.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    model = forge.write_tensors(tmp_path / "model.safetensors")
    line = ("export", model, "--format", "model-signing", "--key", pem, "-o")
    pem.chmod(0o644)
    code, _, err = fedsynth(*line, tmp_path / "a.sig")
    assert (code, "chmod" in err) == (3, True)
    pem.chmod(0o600)
    for name in ("a.sig", "b.sig"):
        assert fedsynth(*line, tmp_path / name)[0] == 0
    assert (tmp_path / "a.sig").read_bytes() == (tmp_path / "b.sig").read_bytes()
    envelope = json.loads((tmp_path / "a.sig").read_text())["dsseEnvelope"]
    payload, signature = (base64.b64decode(text) for text in (envelope["payload"], envelope["signatures"][0]["sig"]))
    kind = envelope["payloadType"]
    signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
    key.public_key().verify(signature, signed, ec.ECDSA(SHA256()))
    statement = json.loads(payload)
    (resource,) = statement["predicate"]["resources"]
    assert resource == {"name": ".", "algorithm": "sha256", "digest": sha256_file(model)}
    pem.write_text("no key")
    code, _, err = fedsynth(*line, tmp_path / "c.sig")
    assert (code, "is not a private key in PEM" in err) == (3, True)


def test_a_run_folder_is_not_signed_as_a_model(fedsynth, finished_run, tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    pem = tmp_path / "key.pem"
    pem.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    pem.chmod(0o600)
    code, _, err = fedsynth(
        "export", finished_run, "--format", "model-signing", "--key", pem, "-o", tmp_path / "run.sig"
    )
    assert (code, "has private files in it" in err) == (3, True)


def test_an_assessment_marks_what_a_person_must_write(export, finished_run):
    text = export(finished_run, "dpia", out="dpia.md")
    assert text.count("[to be written by a person]") == 11
    assert "ε is ∞" in text
    assert "PASS, unanchored (simulation)" in text


@pytest.mark.skipif(
    browser_module.program() is None, reason="Chromium is not installed (Debian: apt-get install chromium)"
)
def test_an_assessment_as_pdf_is_the_same_again_without_a_time(fedsynth, finished_run, tmp_path):
    found = []
    for number in (1, 2):
        out = tmp_path / f"{number}.pdf"
        code, _, err = fedsynth("export", finished_run, "--format", "dpia", "--delta", "1e-5", "-o", out)
        assert code == 0, err
        found.append(out.read_bytes())
    assert found[0] == found[1]
    assert found[0].startswith(b"%PDF-") and found[0].rstrip().endswith(b"%%EOF")
    assert b"(D:19700101000000+00'00')" in found[0] and b"Linux" not in found[0]


def test_without_chromium_an_assessment_as_pdf_is_refused(fedsynth, finished_run, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    out = tmp_path / "assessment.pdf"
    code, _, err = fedsynth("export", finished_run, "--format", "dpia", "--delta", "1e-5", "-o", out)
    assert (code, "apt-get install chromium" in err, out.exists()) == (3, True, False)
