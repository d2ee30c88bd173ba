"""A clean federation in every form, with and without key, receipts, trust and replay: a pass says what was missing."""

import itertools
import shutil

import pytest
from insider.cases import generated
from insider.forms import client
from tampering.run import Run
from test_generated import fresh

from artifacts.identity.roster import read_roster
from stages.audit import ReplayOptions, audit

GIVEN = ("key", "receipts", "trust", "replay")
# What the verdict says where something was not given. Without a key it is no pass at all.
SAYS = {"receipts": "unanchored", "trust": "identity not checked", "replay": "values not computed again"}
EVERYTHING = [frozenset(one) for number in range(5) for one in itertools.combinations(GIVEN, number)]
USUAL = [one for one in EVERYTHING if len(one) in (0, 3, 4)]


@pytest.fixture(scope="module")
def run_folder(softmax_run):
    settings = ["partition.clients=2", "train-client.local_epochs=null", "train-client.local_steps=1", "receipts=true"]
    return softmax_run("fedavg", 1, *settings, seed=5, label="conditions")


@pytest.fixture(scope="module")
def evidence(federated, run_folder, tmp_path_factory):
    """The four forms, and what an auditor is given along."""
    folder = tmp_path_factory.mktemp("evidence")
    shutil.copytree(run_folder, folder / "run folder")
    shutil.copytree(federated / "00", folder / "client's home")
    shutil.copytree(federated, folder / "homes")
    shutil.copytree(federated / "00/clients/00/outbox", folder / "outbox")
    return folder


FORMS = ("run folder", "client's home", "homes", "outbox")


def taken_away(root, given):
    for path in sorted(root.rglob("*")):
        if "key" not in given and path.name == "client.key":
            path.unlink()
        if "receipts" not in given and path.name.startswith("receipt") and path.name.endswith(".intoto.jsonl"):
            path.unlink()


def looked_at(evidence, form, given, tmp_path):
    root, home = tmp_path / "copy", evidence / "client's home"
    shutil.copytree(evidence / form, root)
    taken_away(root, given)
    roster = next((evidence / form).rglob("roster.json"), home / "public/roster.json")
    received = [home / "public", home / "server/outbox"] if form == "outbox" else []
    report = audit(
        root,
        received=received,
        trust=read_roster(roster).fingerprint if "trust" in given else None,
        replay=ReplayOptions(device="cpu") if "replay" in given else None,
    )
    shutil.rmtree(root)
    return report


@pytest.mark.parametrize("conditions", [USUAL, pytest.param(EVERYTHING, marks=pytest.mark.slow)], ids=["usual", "all"])
@pytest.mark.parametrize("form", FORMS)
def test_a_clean_federation_passes_or_says_what_it_was_not_given(evidence, form, conditions, tmp_path):
    for given in conditions:
        report = looked_at(evidence, form, given, tmp_path)
        said = report.verdict
        assert not report.count("failure"), (form, given, report.findings)
        if form == "outbox" or "key" not in given:
            assert said.startswith("INCOMPLETE: needs") and report.error.exit_code == 6, (form, given, said)
            continue
        assert report.passed and said.startswith("PASS"), (form, given, report.findings)
        missing = {what for what, words in SAYS.items() if words in said}
        assert missing == SAYS.keys() - given, (form, given, said)


@pytest.mark.slow
def test_with_everything_given_no_case_that_a_replay_covers_passes(every_kind, tmp_path, forge):
    """Those that the guide lists as free without a replay, and covered by one: a sample, since each computes it all."""
    covered = [c for c in generated(Run(every_kind, forge)) if c.free in ("values", "counts", "versions", "processor")]
    trust = read_roster(every_kind / "public/roster.json").fingerprint
    passed = []
    for number, case in enumerate(covered[3 :: len(covered) // 10]):
        root = fresh(every_kind, tmp_path / str(number))
        case.do(Run(root, forge))
        report = client(root, replay=ReplayOptions(device="cpu"), trust=trust)
        print(case, "→", report.verdict[:60])
        passed += [str(case)] if report.passed else []
        shutil.rmtree(root)
    assert passed == []
