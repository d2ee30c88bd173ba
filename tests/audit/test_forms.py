"""The four forms in which evidence comes: a run folder, a home of a real federation, one client's folder, an outbox.

Each is clean, and passes or says what it was not given; and what is wrong with a file is found in every form.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from artifacts.formats import tensors_file
from artifacts.identity.roster import read_roster
from stages.audit import ReplayOptions, audit
from stages.recipes.recipe import change, load_recipe


@pytest.fixture
def outbox(homes, tmp_path):
    """What an officer is sent: the files of an outbox, in a folder of any name."""
    shutil.copytree(homes / "00/clients/00/outbox", tmp_path / "for the officer")
    return tmp_path / "for the officer"


def levels(report, *wanted):
    return {(f.level, f.check) for f in report.findings if f.level in (wanted or ("failure", "unknown", "unchecked"))}


def needs(report):
    return {what for what, _ in {(f.what, f.check) for f in report.findings if f.level == "unchecked"}}


def rewritten(path, **tensors):
    """The file with other tensors, which say what they say rightly: only its digest is another one."""
    found = tensors_file.read(path)
    tensors_file.write(path, found.tensors | tensors, found.metadata, force=True)


# Clean


def test_a_clients_home_passes(federated):
    report = audit(federated / "00", delta=1e-5)
    assert report.passed, report.findings
    assert report.verdict.startswith("PASS, anchored")
    assert [(sent.name, sent.role) for sent in report.sent] == [("00", "own"), ("server", "received")]
    assert any("received from server" in finding.what for finding in report.findings)


def test_the_servers_home_passes_for_the_server(federated):
    report = audit(federated / "server", delta=1e-5)
    assert report.passed, report.findings
    assert report.verdict.startswith("PASS for the server")
    assert {(sent.name, sent.role) for sent in report.sent} == {
        ("00", "received"), ("01", "received"), ("server", "own")
    }  # fmt: skip


def test_one_clients_folder_finds_what_the_server_sent_around_it(federated):
    assert audit(federated / "00/clients/00").passed


def test_one_clients_folder_elsewhere_says_what_it_needs(homes, tmp_path):
    moved = shutil.move(homes / "00/clients/00", tmp_path / "00")
    report = audit(moved)
    assert report.verdict.startswith("INCOMPLETE: needs ") and report.error.exit_code == 6
    assert needs(report) == {"what the server sent (--received)", "the roster"}
    given = audit(moved, received=[homes / "00/public", homes / "00/server/outbox"])
    assert given.passed and given.verdict.startswith("PASS, anchored")


def test_an_outbox_alone_is_incomplete_and_says_what_it_needs(outbox, homes):
    report = audit(outbox, received=[homes / "00/public", homes / "00/server/outbox"], delta=1e-5)
    open = ("chain", "ledger", "anchor", "budget", "lineage", "secrets")
    assert levels(report) == {("unchecked", check) for check in open}
    assert report.verdict.startswith("INCOMPLETE: needs the ledger of 00 for chain, ledger, anchor; ")
    assert report.sent[0].epsilon == {"any": {"pld": "inf", "rdp": "inf", "rest": None}}
    bare = audit(outbox)
    assert {("unchecked", "tensors"), ("unchecked", "envelopes")} <= levels(bare)
    assert not bare.count("failure")


def test_a_clients_folder_of_which_only_the_outbox_was_copied(homes, tmp_path):
    shutil.copytree(homes / "00/clients/00/outbox", tmp_path / "00/outbox")
    assert audit(tmp_path / "00").verdict.startswith("INCOMPLETE: needs the ledger of 00")


@pytest.mark.parametrize("command", ["audit", "report"])
def test_page_and_command_end_alike(outbox, federated, fedsynth, tmp_path, command):
    page = ["-o", tmp_path / "page.html", "--force"] if command == "report" else []
    one = federated / "00"
    received = ["--received", one / "public", "--received", one / "server/outbox"]
    for target, more, code in [
        (one, [], 0), (federated / "server", [], 0), (one / "clients/00", received, 0), (outbox, received, 6)
    ]:  # fmt: skip
        found, _, err = fedsynth(command, target, *more, *page)
        assert found == code, err
        if page:
            said = page[1].read_text()
            assert ("Records: complete" in said, "Records: incomplete" in said) == (code == 0, code == 6)
            assert "Exposure: no limit shown" in said and "message-0001.safetensors" in said
            assert str(federated.parent) not in said and ".cache" not in said


def test_all_homes_of_a_federation_side_by_side(federated, fedsynth_json):
    """Everybody is as it is at home, and what the server made is computed again from what the clients have."""
    report = audit(federated, replay=ReplayOptions(device="cpu"))
    assert report.passed, report.findings
    assert [(sent.name, sent.role) for sent in report.sent] == [("00", "own"), ("01", "own"), ("server", "own")]
    assert report.replayed["identical"] == 3, "two messages and a model"
    assert report.verdict.startswith("PASS, anchored")
    assert fedsynth_json("audit", federated)["passed"]


def test_homes_side_by_side_have_an_epsilon_and_a_page(federated, fedsynth, tmp_path, monkeypatch):
    """By a path from where one is."""
    report = audit(federated, delta=1e-5)
    assert report.passed, report.findings
    assert [sent.epsilon is not None for sent in report.sent] == [True, True, False], "its files have no noise"
    monkeypatch.chdir(federated.parent)
    code, _, err = fedsynth("report", federated.name, "--delta", "1e-5", "-o", tmp_path / "page.html")
    assert code == 0, err
    said = (tmp_path / "page.html").read_text()
    assert "Records: complete" in said and "Client 00" in said and "Client 01" in said


def test_the_page_of_a_home_has_its_recipe_and_the_parameters_of_its_files(federated, fedsynth, tmp_path):
    assert fedsynth("report", federated / "00", "-o", tmp_path / "page.html", "-q")[0] == 0
    said = (tmp_path / "page.html").read_text()
    assert "arch = softmax" in said and "tell_examples = False" in said
    (made,) = audit(federated / "00").to_json()["sent"][0]["made"]
    assert made["kind"] == "message" and "method = delta" in made["params"]


def test_the_officers_walk_at_a_hospital(homes, fedsynth, monkeypatch):
    """The commands of the page, as they are typed at a home."""
    text = (Path(__file__).parents[2] / "docs/data-protection-officer.md").read_text().split("```")[1]
    (homes / "00").rename(homes / "hospital-a")
    (homes / "01").rename(homes / "elsewhere")
    monkeypatch.chdir(homes)
    fingerprint = read_roster(homes / "hospital-a/public/roster.json").fingerprint
    lines = text.replace("FINGERPRINT", fingerprint).replace("clients/hospital-a", "clients/00").strip().splitlines()
    said = [fedsynth(*line.split()[1:]) for line in lines]
    assert [code for code, _, _ in said] == [0, 0, 0, 0], said
    assert "PASS, anchored" in said[0][1] and "identity not checked" not in said[0][1]


def test_what_could_be_checked_for_the_owner_alone_says_so(federated):
    """What others sent to a home is there without ledgers and keys: their budgets and lineage nobody looked at."""
    for home, owner in (("00", "00"), ("server", "server")):
        found = audit(federated / home).to_json()["checks"]
        for check in ("events", "lineage", "secrets"):
            assert found[check]["result"] == f"ok for {owner} alone"
        assert found["budget"]["result"] == f"none set for {owner} alone"
        assert found["tensors"]["result"] == "ok"


def test_an_identity_that_is_in_the_roster_is_nothing_strange(homes, fedsynth):
    """`federate join` leaves it beside the terms; one byte more, and nobody looked into it."""
    path = homes / "00/identity.json"
    key = homes / "00/clients/00/private/client.key"
    assert fedsynth("identity", "--key", key, "--client", "00", "-o", path)[0] == 0
    strange = [f.what for f in audit(homes / "00").findings if f.check == "custody"]
    assert strange == []
    path.write_bytes(path.read_bytes() + b" ")
    assert ["identity.json" in f.what for f in audit(homes / "00").findings if f.check == "custody"] == [True]


def test_no_key_no_search_for_it(homes, outbox):
    """That no key is in a file can be said by whoever has the key."""
    assert ("unchecked", "secrets") in levels(audit(outbox))
    (homes / "00/clients/00/private/client.key").unlink()
    assert ("unchecked", "secrets") in levels(audit(homes / "00"))


@pytest.mark.parametrize("home", ["00", "server"])
def test_the_page_of_a_home_knows_what_others_sent_to_it(federated, fedsynth, tmp_path, home):
    """It is neither missing nor unrecorded: it is in their ledgers, which are with them."""
    assert fedsynth("report", federated / home, "-o", tmp_path / "page.html")[0] == 0
    said = (tmp_path / "page.html").read_text()
    assert "not in the ledger" not in said and "(not here)" not in said
    assert "Not looked at:" in said and "whose keys those are nobody confirmed" in said
    assert ("their own records are with them" in said) == (home == "server")


def test_a_document_about_a_home_says_nothing_of_rules_that_are_elsewhere(federated, fedsynth, tmp_path):
    for home, other in (("00", "server"), ("server", "00")):
        assert fedsynth("export", federated / home, "--format", "satre", "-o", tmp_path / f"{home}.json")[0] == 0
        record = json.loads((tmp_path / f"{home}.json").read_text())
        assert {record["participants"][other][name] for name in ("gate", "policy", "budget")} == {
            "not known: its records are not here"
        }
        assert record["participants"][home]["policy"] is None
        assert {one["status"] for one in record["releases"]} == {"in the outbox"}
        assert all(one["sha256"] for one in record["releases"])


def test_a_crate_of_a_home_releases_what_its_owner_sent(federated, fedsynth, tmp_path):
    words = ["--license", "https://spdx.org/licenses/CC-BY-4.0", "--date", "2026-01-31", "--publisher", "A"]
    words += ["--project", "P", "--person", "B"]
    assert fedsynth("export", federated / "00", "--format", "ro-crate", "-o", tmp_path / "crate", *words)[0] == 0
    graph = json.loads((tmp_path / "crate/data/ro-crate-metadata.json").read_text())["@graph"]
    by_id = {entity["@id"]: entity for entity in graph}
    names = {of: {by_id[one["@id"]]["name"] for one in by_id["#run"][of]} for of in ("object", "result")}
    assert {name.split(":")[0] for name in names["result"]} == {"00"}
    assert {name.split(":")[0] for name in names["object"]} == {"server"}


def test_a_server_that_shows_one_client_another_model_is_found_when_homes_meet(homes, tmp_path):
    """In the client's home it is a good model: its ledger is with the server."""
    shown = homes / "00/server/outbox/model-0001.safetensors"
    zeroed(homes / "server/server/outbox/model-0001.safetensors", shown, tmp_path)
    report = audit(homes)
    assert levels(report) == {("failure", "ledger")}
    assert any("received from server, which recorded no such file" in f.what for f in report.findings)


def test_a_message_that_the_server_made_up_is_found_when_homes_meet(homes, tmp_path):
    path = homes / "server/clients/01/outbox/message-0001.safetensors"
    zeroed(path, path, tmp_path)
    report = audit(homes)
    assert any("received from 01, which recorded no such file" in f.what for f in report.findings)


def test_homes_of_two_federations_do_not_belong_together(homes):
    terms = homes / "01/federation.yaml"
    terms.write_text(terms.read_text().replace("seed: 5", "seed: 6"))
    assert ("failure", "custody") in levels(audit(homes))


def test_a_home_that_was_not_brought_is_received(homes):
    shutil.rmtree(homes / "01")
    report = audit(homes)
    assert {(sent.name, sent.role) for sent in report.sent} == {
        ("00", "own"), ("01", "received"), ("server", "own")
    }  # fmt: skip
    assert report.passed, report.findings


def zeroed(source, target, folder):
    """A file like this one, of zeros, put somewhere by hand."""
    found = tensors_file.read(source)
    made = folder / "made/outbox" / source.name
    tensors_file.write(made, {name: np.zeros_like(value) for name, value in found.tensors.items()}, found.metadata)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(made.read_bytes())


# Wrong


FORMS = {
    "client's home": (lambda homes: homes / "00/clients/00/outbox", lambda homes: audit(homes / "00")),
    "server's home": (lambda homes: homes / "server/clients/00/outbox", lambda homes: audit(homes / "server")),
    "one client": (lambda homes: homes / "00/clients/00/outbox", lambda homes: audit(homes / "00/clients/00")),
    "outbox": (
        lambda homes: homes / "00/clients/00/outbox",
        lambda homes: audit(
            homes / "00/clients/00/outbox", received=[homes / "00/public", homes / "00/server/outbox"]
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_message_that_was_made_again_is_not_what_was_signed(homes, form):
    """`encode --force` after `sign`: the old envelope is of other bytes."""
    where, audited = FORMS[form]
    path = where(homes) / "message-0001.safetensors"
    found = tensors_file.read(path).tensors
    rewritten(path, **{name: np.zeros_like(value) for name, value in found.items()})
    assert ("failure", "envelopes") in levels(audited(homes)), form


@pytest.mark.parametrize("form", FORMS)
def test_a_tensor_that_the_model_does_not_have(homes, form):
    where, audited = FORMS[form]
    rewritten(where(homes) / "message-0001.safetensors", extra=np.zeros(3, np.float32))
    assert ("failure", "tensors") in levels(audited(homes)), form


@pytest.mark.parametrize("form", FORMS)
def test_an_envelope_of_another_name(homes, form):
    where, audited = FORMS[form]
    one = where(homes) / "message-0001.safetensors.intoto.jsonl"
    shutil.copy(one, one.with_name("message-0002.safetensors.intoto.jsonl"))
    assert ("failure", "envelopes") in levels(audited(homes)), form


def test_a_home_without_its_owners_ledger_fails(homes):
    (homes / "00/clients/00/egress.jsonl").unlink()
    assert ("failure", "ledger") in levels(audit(homes / "00"))


def test_a_run_folder_in_which_a_ledger_and_a_private_folder_are_missing_fails(homes):
    """Only a folder with the terms of a federation is a home."""
    (homes / "server/federation.yaml").unlink()
    assert ("failure", "ledger") in levels(audit(homes / "server"))


def test_an_aggregate_of_messages_that_are_not_here_is_not_checked(homes):
    for path in (homes / "server/clients/01/outbox").iterdir():
        path.unlink()
    report = audit(homes / "server")
    assert ("unchecked", "lineage") in levels(report)
    assert "every message that it was made from" in needs(report)


# What was replaced


def test_what_was_replaced_counts_as_left(run_copy, fedsynth):
    """Parameters changed, encoded again with --force: the first file left too."""
    client, before = run_copy / "clients/01", audit(run_copy)
    message, model = client / "outbox/message-0001.safetensors", run_copy / "public/model-0000.safetensors"
    first = message.read_bytes()
    update = client / "private/update-0001.safetensors"
    code, _, err = fedsynth(
        "encode", model, update, "--sparsify", "rand-k", "--keep", "0.5", "-o", message, "--force", "-q"
    )
    assert code == 0, err
    after = audit(client)
    was, now = (next(s for s in report.sent if s.name == "01") for report in (before, after))
    assert (now.files, now.bytes) == (was.files + 1, was.bytes + message.stat().st_size)
    assert message.read_bytes() != first
    assert any("since replaced: it counts as left" in f.what for f in after.findings if f.level == "note")


# Whose keys


def test_whose_keys_these_are_is_not_known_from_the_evidence(federated):
    """Roster and receipts forged together fit each other; a fingerprint that came another way does not."""
    report = audit(federated / "00")
    assert report.passed and report.verdict.endswith("; identity not checked")
    shown = report.to_json()["roster"]
    assert shown["trusted"] is False
    trusted = audit(federated / "00", trust=shown["fingerprint"])
    assert trusted.passed and "identity not checked" not in trusted.verdict
    other = audit(federated / "00", trust="0" * 64)
    assert ("failure", "envelopes") in levels(other)


def test_two_rosters_are_one_too_many(homes, tmp_path):
    text = (homes / "00/public/roster.json").read_text()
    (tmp_path / "second").mkdir()
    (tmp_path / "second/roster.json").write_text(text.replace('"federation": "', '"federation": "x'))
    said = [f.what for f in audit(homes / "00", received=[tmp_path / "second"]).findings if f.level == "failure"]
    assert len(said) == 1 and "another roster" in said[0], said


def test_a_roster_in_another_spelling_is_refused(homes):
    path = homes / "00/public/roster.json"
    path.write_text(path.read_text().replace('"schema"', ' "schema"'))
    assert ("failure", "envelopes") in levels(audit(homes / "00"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tofu", "fedlap", "feddm", "scaffold", "dp-sgd"])
def test_every_home_passes_whatever_is_sent(federation_of, name):
    """Two rounds, so that what is sent goes on from what was sent before."""
    recipe = change(load_recipe(name), ["partition.clients=2"], 2)
    homes = federation_of(recipe)
    for home in (homes / "00", homes / "01", homes / "server", homes):
        report = audit(home)
        assert report.passed, (home.name, report.verdict)


def test_the_home_of_a_server_that_got_nothing_yet(homes):
    shutil.rmtree(homes / "server/clients")
    assert audit(homes / "server").verdict.startswith("INCOMPLETE: needs what the clients sent")
