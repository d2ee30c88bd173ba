"""Accuracy against ε: what a run cost after each round, held against dp-accounting and `account`; who is trusted."""

import csv
import json
import math

import pytest

from stages.evaluate.runs import evaluate_runs
from stages.pictures.comparison import GroupCurve
from stages.privacy.events import PrivacyEvent
from stages.run_folder import epsilon as module
from stages.run_folder.charges import Charged, Charges
from stages.run_folder.epsilon import run_epsilon

DELTA = 1e-5


def of_dp_accounting(steps, *, sampling_rate=0.25, noise=2.0, delta=DELTA):
    """ε of so many sampled Gaussian steps, by the library alone: PLD and RDP."""
    import dp_accounting as dpa
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    event = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(sampling_rate, dpa.GaussianDpEvent(noise)), steps)
    return [made.compose(event).get_epsilon(delta) for made in (PLDAccountant(), RdpAccountant())]


def test_a_run_against_dp_accounting_and_account(fedsynth, fedlap_dp_run, tmp_path):
    """One trajectory of three points with two batches: six looks a round, at both clients alike."""
    out, table = tmp_path / "c.json", tmp_path / "c.csv"
    code, shown, err = fedsynth("evaluate", fedlap_dp_run, "--delta", DELTA, "-o", out, "--csv", table)
    assert code == 0, err
    written = json.loads(out.read_text())
    run = written["runs"]["fedlap-dp"]
    assert (written["delta"], run["epsilon_basis"]) == (DELTA, "one record")
    assert run["epsilon"][0] == [0, 0.0, 0.0]
    for number, pld, rdp in run["epsilon"][1:]:
        tight, renyi = of_dp_accounting(6 * number)
        assert pld == pytest.approx(tight, rel=2e-3)
        assert rdp == pytest.approx(renyi, rel=2e-2)  # our orders are finer
    assert [run["epsilon_at_end"], run["epsilon_at_end_rdp"]] == run["epsilon"][-1][1:]
    (row,) = csv.DictReader(table.read_text().splitlines())
    assert (float(row["epsilon_at_end"]), float(row["delta"])) == (run["epsilon_at_end"], DELTA)
    fedsynth("account", fedlap_dp_run, "--delta", DELTA, "--csv", tmp_path / "a.csv")
    charged = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    mine = [[int(r["round"]), float(r["epsilon_pld"]), float(r["epsilon_rdp"])] for r in charged if r["client"] == "00"]
    assert mine == run["epsilon"][1:]
    assert f"{math.ceil(1000 * run['epsilon_at_end']) / 1000:.3f}" in shown


def test_without_noise_it_is_infinite(fedsynth, finished_run, fedlap_dp_run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out, picture = tmp_path / "c.json", tmp_path / "c.png"
    words = ["--target", "0.5", "--name", "synthetic=none,algorithm=fedavg,alpha=0.05", "--name", "FedLAP-DP"]
    code, shown, err = fedsynth(
        "evaluate", finished_run, fedlap_dp_run, *words, "--delta", DELTA, "-o", out, "--picture", picture
    )
    assert code == 0, err
    assert max(map(len, shown.splitlines())) <= 80
    assert "∞" in shown
    plain, private = json.loads(out.read_text())["runs"].values()
    assert (plain["epsilon_at_end"], plain["epsilon_at_end_rdp"], plain["epsilon_basis"]) == ("inf", "inf", None)
    assert plain["epsilon"] == [[0, 0.0, 0.0], [1, "inf", "inf"], [2, "inf", "inf"]]
    assert private["epsilon_at_end"] < 10
    before = picture.read_bytes()
    fedsynth("evaluate", finished_run, fedlap_dp_run, *words, "-o", out, "--picture", picture, "--force")
    assert len(picture.read_bytes()) < len(before)  # without δ there is one panel less
    assert json.loads(out.read_text())["runs"]["FedLAP-DP"]["epsilon_at_end"] is None


def event(number, **changes):
    fields = {"unit": "record", "sampling_rate": 0.25, "noise_multiplier": 2.0, "clip_norm": 1.0, "steps": 6,
              "trust": "nobody"} | changes  # fmt: skip
    return PrivacyEvent.from_json(PrivacyEvent.planned(**fields).to_json() | {"id": f"{number:064x}"})


@pytest.fixture
def charged(monkeypatch, tmp_path):
    """ε of a run whose ledgers hold these files."""

    def cost(*files, rounds=(0, 1, 2)):
        monkeypatch.setattr(module, "read_charges", lambda targets: Charges(charged=list(files)))
        return run_epsilon(tmp_path, rounds, delta=DELTA)

    return cost


def test_the_client_that_spent_most_counts(charged):
    """Round 1: six steps for 00. Round 2: 01 comes in with less noise, and is the dearer one."""
    found = charged(
        Charged("00", "a", 1, (event(1),), ""),
        Charged("00", "b", 2, (event(1), event(2)), ""),
        Charged("01", "c", 2, (event(3, noise_multiplier=0.7),), ""),
    )
    assert found.after[0].pld == 0
    assert found.after[1].pld == pytest.approx(of_dp_accounting(6)[0], rel=2e-3)
    assert found.after[2].pld == pytest.approx(of_dp_accounting(6, noise=0.7)[0], rel=2e-3)
    assert found.at_end.pld > of_dp_accounting(12)[0]


def test_one_uncovered_file_of_one_client_is_enough(charged):
    found = charged(Charged("00", "a", 1, (event(1),), ""), Charged("01", "b", 2, (), "it discloses an update"))
    assert math.isfinite(found.after[1].pld) and math.isinf(found.at_end.pld)
    assert found.basis == "one record"


def test_a_trusted_server(charged):
    """Clients send what is not covered; the server adds noise: its ε holds for whole clients, if it is trusted."""
    central = {"unit": "client", "trust": "server", "steps": 1}
    files = [Charged("00", "a", 1, (), "it discloses update"), Charged("server", "m", 1, (event(1, **central),), "")]
    found = charged(*files, rounds=(0, 1))
    assert found.at_end.pld == pytest.approx(of_dp_accounting(1)[0], rel=5e-3)
    assert found.basis == "one client, trusting the server"
    passed_on = charged(*files, Charged("server", "n", 1, (), "it discloses derived_images"), rounds=(0, 1))
    assert math.isinf(passed_on.at_end.pld)


def test_seeds_share_the_largest(runs, tmp_path):
    """Of infinite ones ∞; the curve is drawn at the largest ε of the seeds, and their mean accuracy."""
    paths = [runs("plain-seed-0", seed=0), runs("plain-seed-1", seed=1)]
    (group,) = evaluate_runs(paths, tmp_path / "c.json", delta=DELTA)["groups"]
    assert (group["epsilon_at_end"], group["epsilon_basis"]) == ("inf", None)
    curve = GroupCurve(
        "x", [{0: 0.1, 1: 0.5, 2: 0.7}, {0: 0.1, 1: 0.3}], (), [{0: 0.0, 1: 2.0, 2: 3.0}, {0: 0.0, 1: 1.0}]
    )
    assert curve.against_epsilon() == ([0.0, 2.0], [0.1, 0.4])
    assert GroupCurve("x", [{0: 0.1}], (), [{}]).against_epsilon() == ([], [])


def test_refusals(fedsynth, finished_run, tmp_path):
    for words, said in (
        (["--delta", "0"], "--delta must lie between 0 and 1"),
        (["--delta", "1"], "--delta must lie between 0 and 1"),
        (["--gap", "--delta", "1e-5"], "--delta goes with `evaluate RUN…`"),
    ):
        code, _, err = fedsynth("evaluate", finished_run, *words, "-o", tmp_path / "x")
        assert (code, said in err) == (2, True), err
        assert not (tmp_path / "x").exists()
