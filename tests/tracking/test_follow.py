"""What a tracker is given, and what happens when it fails. The trackers themselves are in test_packages."""

import json
import logging

import pytest

from artifacts.places import RunFolder
from stages.tracking.follow import Followed, metrics_of, params_of


class Noted:
    """Keeps what it is given; forgets runs when told to, and fails in the rounds of `fails`."""

    def __init__(self):
        self.runs, self.given, self.fails, self.ended = {}, [], set(), 0

    def begin(self, name, params, known):
        run = known if known in self.runs else f"id-{len(self.runs)}"
        self.runs[run] = (name, params)
        return run

    def log(self, run, round, values):
        if round in self.fails:
            raise ConnectionError("no answer from tracker.example.org")
        self.given.append((run, round, values["accuracy"]))

    def end(self):
        self.ended += 1


def rounds(given):
    return [round for _, round, _ in given]


def test_each_round_is_given_once_and_later_rounds_follow(run_copy):
    noted = Noted()
    late = run_copy / "metrics/round-0001.json"
    text = late.read_text()
    late.unlink()
    Followed(run_copy, {"noted": noted}, private=False).look()
    assert rounds(noted.given) == [0]
    late.write_text(text)
    again = Followed(run_copy, {"noted": noted}, private=False)
    again.look()
    again.look()
    last = len(list((run_copy / "metrics").glob("round-*.json")))
    assert rounds(noted.given) == list(range(last))
    assert len(noted.runs) == 1
    assert noted.given[1][2] == json.loads(text)["accuracy"]


def test_a_tracker_that_lost_the_run_gets_all_of_it(run_copy):
    Followed(run_copy, {"noted": Noted()}, private=False).look()
    other = Noted()
    other.runs["id-7"] = ("somebody else's", {})
    Followed(run_copy, {"noted": other}, private=False).look()
    assert rounds(other.given)[0] == 0


def test_a_tracker_that_fails_warns_once_and_gets_the_rest_later(run_copy, caplog):
    noted = Noted()
    noted.fails = {1}
    following = Followed(run_copy, {"noted": noted}, private=False)
    with caplog.at_level(logging.WARNING, logger="fedsynth"):
        following.look()
        following.look()
    assert [record.getMessage() for record in caplog.records] == [
        "warning: --log noted: no answer from tracker.example.org. The run goes on; called again it gives the rest."
    ]
    assert rounds(noted.given) == [0]
    noted.fails = set()
    following.look()
    assert rounds(noted.given)[:2] == [0, 1]


def test_metrics_of_private_data_are_given_when_asked_for_only(run_copy):
    path = run_copy / "metrics/round-0001.json"
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "custody": "private"}))
    matching = {"custody": "private", "client": "00", "round": 1, "radius": 0.5, "matching_loss": [3.0, 2.0]}
    (run_copy / "clients/00/private/matching-0001.json").write_text(json.dumps(matching))
    folder = RunFolder(run_copy)
    assert metrics_of(folder, 1, private=False) == {}
    asked = metrics_of(folder, 1, private=True)
    assert asked["accuracy"] == found["accuracy"]
    assert (asked["client_00/radius"], asked["client_00/matching_loss"]) == (0.5, 2.0)
    public = metrics_of(folder, 0, private=False)
    assert {"accuracy", "loss"} <= public.keys()
    assert not {"round", "num_examples", "custody"} & public.keys()


def test_parameters_say_no_path_of_this_machine(run_copy):
    record = run_copy / "simulation/recipe.yaml"
    record.write_text(record.read_text().replace("source: digits", "source: /mnt/ward-7/scans"))
    params = params_of(RunFolder(run_copy))
    assert params["partition.source"] == "scans"
    assert "rounds" not in params
    assert not any("/" in value for value in params.values())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--log", "mlflo"], 2, "there is no tracker 'mlflo'. Known: mlflow[:tracking URI]"),
        (["--private"], 2, "--private goes with --log"),
    ],
)
def test_what_cannot_be_logged_is_refused_before_anything_is_done(fedsynth, tmp_path, words, code, said):
    found, _, err = fedsynth("run", "fedavg", "-o", tmp_path / "run", *words)
    assert found == code
    assert said in " ".join(err.split())
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_is_not_installed_says_how_to_install_it(fedsynth, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    code, _, err = fedsynth("run", "fedavg", "-o", tmp_path / "run", "--log", "mlflow")
    assert code == 3
    assert "pip install 'fedsynth[mlflow]'" in err
    assert not (tmp_path / "run").exists()
