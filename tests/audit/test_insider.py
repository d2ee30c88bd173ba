"""An insider with the key and our writer claims noise, versions or a choice: none of it switches a check off."""

import dataclasses
import shutil

import numpy as np
import pytest
from tampering.run import Run

from artifacts.formats import dataset_file, tensors_file
from artifacts.identity.commitments import commit
from artifacts.identity.roster import read_roster
from stages.audit import ReplayOptions, audit

NOISED = "noised-0001.safetensors"


def received(root):
    return [root / "public", root / "server/outbox"]


def audited(root, **options):
    return audit(root / "clients/01", received=received(root), **options)


def replayed(root):
    return audited(root, replay=ReplayOptions(device="cpu"))


def failures(report):
    return {(f.check, f.where.rsplit("/", 1)[-1]) for f in report.findings if f.level == "failure"}


@pytest.fixture
def run(tampered, forge):
    return Run(tampered, forge)


def train(run, fedsynth, name, *more):
    model, private = run.root / "public/model-0000.safetensors", run.private
    update, message = private / f"{name}.safetensors", run.out / f"{name}.safetensors"
    words = ["--noise-multiplier", 1, "--sampling-rate", 0.1, "--batch-size", 16, "--local-steps", 2, *more]
    assert fedsynth("train-client", model, private / "data.parquet", *words, "-o", update, "-q")[0] == 0
    assert fedsynth("encode", model, update, "-o", message, "-q")[0] == 0


# Replay


def other_versions(about):
    return dict(about.versions) | {"numpy": "1.0.0"}


def test_a_claimed_version_does_not_switch_replay_off(run):
    """What was changed is not confirmed, and the audit says which environment would have to confirm it."""
    about = run.about("message")
    found = tensors_file.read(run.path("message")).tensors
    run.rewrite("message", {n: v + np.float32(1) for n, v in found.items()}, versions=other_versions(about))
    (run.out / "message-0001.safetensors.intoto.jsonl").unlink()
    report = replayed(run.root)
    assert not report.passed and report.replayed.get("not confirmed") == 1
    (finding,) = [f for f in report.findings if f.check == "replay" and f.level == "unknown"]
    assert "It was made with" in finding.what and "numpy 1.0.0" in finding.what


def test_an_honest_file_of_other_versions_is_computed_again(run):
    """The versions are the only thing that differs: the bytes are the same again."""
    run.rewrite("message", versions=other_versions(run.about("message")))
    (run.out / "message-0001.safetensors.intoto.jsonl").unlink()
    report = replayed(run.root)
    assert "not confirmed" not in report.replayed and "different" not in report.replayed


def test_noise_under_a_claimed_version_fails_and_charges_nothing(run):
    """Noise is bound to the versions: under others the spend ledger knows no such computation, nor does it learn it."""
    book = (run.private / "spend.jsonl").read_bytes()
    about = tensors_file.read(run.private / NOISED).metadata
    found = tensors_file.read(run.private / NOISED)
    claimed = dict(about.versions) | {"scipy": "1.0.0"}
    tensors_file.write(run.private / NOISED, found.tensors, dataclasses.replace(about, versions=claimed), force=True)
    report = replayed(run.root)
    assert report.count("failure") and not report.passed
    assert (run.private / "spend.jsonl").read_bytes() == book


@pytest.mark.parametrize("how", ["picked", "salt"])
def test_a_set_that_cannot_be_computed_again_is_no_pass(run, how):
    about = run.about("dataset")
    if how == "picked":
        changes = {"params": dict(about.params) | {"picked": True}, "disclosures": about.disclosures}
    else:
        source = tensors_file.read(run.private / "generator.safetensors")
        other = commit(run.key, role="generator", kind="generator", sha256=source.sha256, context={"my": "own"})
        changes = {"inputs": (other,)}
    run.rewrite_dataset(dataset_file.read(run.path("dataset")).pngs.to_pylist(), **changes)
    report = replayed(run.root)
    assert report.error is not None and report.error.exit_code in (5, 6), report.verdict
    assert report.verdict.startswith(("INCOMPLETE", "FAIL"))


# Noise


def test_a_spend_ledger_that_was_put_back_is_found(run, fedsynth):
    book = run.private / "spend.jsonl"
    before = book.read_bytes()
    train(run, fedsynth, "first", "--seed", 11)
    book.write_bytes(before)
    train(run, fedsynth, "second", "--seed", 12)
    report = audited(run.root)
    assert ("events", "first.safetensors") in failures(report)
    assert ("events", "second.safetensors") not in failures(report)


def test_with_a_budget_what_left_costs_more_than_was_spent(run, fedsynth):
    book = run.private / "spend.jsonl"
    before = book.read_bytes()
    train(run, fedsynth, "first", "--seed", 11)
    book.write_bytes(before)
    (run.private / "budget.yaml").write_text("epsilon: 1000\ndelta: 1.0e-5\nunit: record\n")
    said = [f.what for f in audited(run.root).findings if f.check == "budget" and f.level == "failure"]
    assert any("the spend ledger is not complete" in what for what in said), said


def test_a_deleted_spend_ledger_beside_noised_files_fails(run):
    (run.private / "spend.jsonl").unlink()
    report = audited(run.root)
    assert any(f.check == "budget" and "no spend ledger" in f.what for f in report.findings if f.level == "failure")


def test_a_borrowed_event_belongs_to_another_output(run):
    """An update without noise, and a message of it, say that they have the noise of another training."""
    events = tensors_file.read(run.private / NOISED).metadata.privacy
    plain = tensors_file.read(run.private / "update-0001.safetensors")
    forged = run.private / "update-0001.safetensors"
    tensors_file.write(forged, plain.tensors, dataclasses.replace(plain.metadata, privacy=events), force=True)
    source = tensors_file.read(forged)
    about = run.about("message")
    data = commit(run.key, role="update", kind="update", sha256=source.sha256, context={"any": "thing"})
    inputs = tuple(data if r.role == "update" else r for r in about.inputs)
    run.rewrite("message", privacy=events, disclosures=(), counts={}, inputs=inputs)
    (run.out / "message-0001.safetensors.intoto.jsonl").unlink()
    said = [f.what for f in audited(run.root).findings if f.check == "events" and f.level == "failure"]
    assert any("is of another output" in what for what in said), audited(run.root).findings


def test_noise_claimed_by_a_parameter_is_not_shown(run):
    about = run.about("message")
    params = dict(about.params) | {"noise_multiplier": 1.0, "clip_norm": 1.0}
    run.rewrite("message", privacy=run.events(), disclosures=(), counts={}, params=params)
    (run.out / "message-0001.safetensors.intoto.jsonl").unlink()
    assert ("events", "message-0001.safetensors") in failures(audited(run.root))


def test_an_invented_event_is_of_no_computation(run):
    (event,) = run.events()
    run.rewrite("message", file=NOISED, privacy=({**event, "id": "ab" * 32},))
    said = [f.what for f in audited(run.root).findings if f.check == "events" and f.level == "failure"]
    assert any("of no computation in the spend ledger" in what for what in said)


def test_without_the_key_noise_is_claimed_and_not_shown(run):
    (run.private / "client.key").unlink()
    report = audited(run.root)
    assert ("events", "the key of 01") in {(f.check, f.what) for f in report.findings if f.level == "unchecked"}
    assert report.verdict.startswith("INCOMPLETE") and "events" in report.verdict


def test_honest_noise_is_shown(every_kind, tmp_path):
    shutil.copytree(every_kind / "clients/01", tmp_path / "01")
    report = audit(tmp_path / "01", received=received(every_kind))
    assert not failures(report) and report.passed


# The federation


def test_noise_says_in_which_federation_it_was_released(run):
    federation = read_roster(run.root / "public/roster.json").federation
    assert [event["federation"] for event in run.events()] == [federation]


@pytest.mark.parametrize("said", ["another", None])
def test_noise_of_another_federation_or_of_none_does_not_count(run, said):
    """By the same key, with the same first model and our writer: what was released elsewhere is not of this one."""
    (event,) = run.events()
    changed = {name: value for name, value in event.items() if name != "federation"}
    run.rewrite("message", file=NOISED, privacy=(changed | ({"federation": said} if said else {}),))
    assert ("events", NOISED) in failures(audited(run.root))


def test_a_whole_client_of_another_federation_does_not_count(run, fedsynth):
    """The same keys in two federations: what was signed and noised in the first is shown in the second."""
    roster = run.root / "public/roster.json"
    identities = [run.root / f"clients/{name}/private/identity.json" for name in ("00", "01", "02")]
    shared = run.root / "public"
    if shared.is_symlink():
        copy = run.root / "mine"
        shutil.copytree(shared, copy)
        shared.unlink()
        copy.rename(shared)
    words = ["roster", *identities, run.root / "server/private/identity.json", "--federation", "second"]
    assert fedsynth(*words, "-o", roster, "--force", "-q")[0] == 0
    found = failures(audited(run.root))
    assert ("events", NOISED) in found and ("envelopes", "message-0001.safetensors.intoto.jsonl") in found
