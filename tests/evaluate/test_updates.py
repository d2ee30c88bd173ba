"""Norms of updates and Eq. 15's α̅ and α̃ against numbers worked by hand; whole runs; refusals."""

import json
import shutil

import numpy as np
import pytest

from artifacts.formats import tensors_file
from artifacts.metadata import Metadata
from stages.evaluate.clipping import clipping, factors, update_norm

PNG = b"\x89PNG\r\n\x1a\n"


def test_alpha_by_hand():
    """‖Δ‖ = 0.1, 0.4, 0.8, 0 with C = 0.2: α = 1, ½, ¼, 1; α̅ = 2.75/4, α̃ = (0.3125 + 0.1875 + 0.4375 + 0.3125)/4."""
    norms = np.array([0.1, 0.4, 0.8, 0.0])
    np.testing.assert_allclose(factors(norms, 0.2), [1.0, 0.5, 0.25, 1.0])
    found = clipping(norms, 0.2)
    assert found.alpha_mean == pytest.approx(0.6875)
    assert found.alpha_deviation == pytest.approx(0.3125)
    assert found.clipped == 0.5


def test_the_deviation_is_absolute_and_not_squared():
    found = clipping(np.array([1.0, 2.0, 4.0]), 1.0)  # α = 1, ½, ¼
    mean = 1.75 / 3
    assert found.alpha_deviation == pytest.approx((abs(1 - mean) + abs(0.5 - mean) + abs(0.25 - mean)) / 3)
    assert clipping(np.array([1.0]), 1.0).clipped == 0.0  # at C nothing is taken away


def test_the_norm_is_over_all_tensors():
    """In float64: the squares of these float32 numbers overflow."""
    big = {"a": np.full((2, 2), 3e30, np.float32), "b": np.full(4, 4e30, np.float32)}
    assert update_norm(big) == pytest.approx(1e31, rel=1e-6)
    assert update_norm({"a": np.zeros(3, np.float32)}) == 0.0


@pytest.fixture
def written_run(tmp_path):
    """Updates of chosen lengths: round 1 of three clients, round 2 of one."""
    root = tmp_path / "run"

    def write(client, round, values, kind="update", said=None):
        about = Metadata(
            kind=kind, stage="train-client", method="fedavg", custody="private", client=client, round=said or round,
            params={}, versions={"fedsynth": "0"},
        )  # fmt: skip
        arrays = {f"t{number}": np.array([value], np.float32) for number, value in enumerate(values)}
        tensors_file.write(root / f"clients/{client}/private/update-{round:04}.safetensors", arrays, about)

    write("00", 1, (0.3, 0.4))  # 0.5
    write("01", 1, (0.0, 0.1))
    write("02", 1, (-0.6, 0.8))  # 1
    write("01", 2, (3.0, 4.0))
    return root, write


def test_a_run_by_hand(fedsynth_json, written_run, tmp_path):
    root, _ = written_run
    out = root / "simulation/clipping.json"
    found = fedsynth_json("evaluate", root, "--clipping", "0.25", "-o", out)
    assert (found["custody"], found["clip_norm"], list(found["rounds"])) == ("private", 0.25, ["1", "2"])
    first, second = found["rounds"].values()
    expected = {
        "clients": 3, "norm_min": 0.1, "norm_p25": 0.3, "norm_median": 0.5, "norm_p75": 0.75, "norm_max": 1.0,
        "norm_mean": 1.6 / 3, "clipped": 2 / 3,
        "alpha_mean": 1.75 / 3, "alpha_deviation": (1.25 / 3 + 0.25 / 3 + 1 / 3) / 3,
    }  # fmt: skip
    assert first == pytest.approx(expected, abs=1e-6)
    assert (second["clients"], second["norm_mean"], second["alpha_mean"], second["alpha_deviation"]) == (1, 5, 0.05, 0)
    assert "no ε covers that" in found["note"]
    assert json.loads(out.read_text()) == {key: value for key, value in found.items() if key != "out"}
    chosen = fedsynth_json("evaluate", root, "--clipping", "0.25", "--round", "2", "-o", tmp_path / "b.json")
    assert list(chosen["rounds"]) == ["2"]


def test_a_real_run_and_its_pictures(fedsynth, finished_run, tmp_path, monkeypatch):
    """Every client's norm as numpy has it; the picture of one round, of several, the same each time."""
    monkeypatch.setenv("COLUMNS", "80")
    norms = [
        np.sqrt(sum(float((t.astype(float) ** 2).sum()) for t in tensors_file.read(path).tensors.values()))
        for path in sorted(finished_run.glob("clients/*/private/update-0002.safetensors"))
    ]
    drawn = {}
    for name, options in (("all", []), ("again", []), ("one", ["--round", "2"])):
        out, picture = tmp_path / f"{name}.json", tmp_path / f"{name}.png"
        code, shown, err = fedsynth(
            "evaluate", finished_run, "--clipping", "0.5", "-o", out, "--picture", picture, *options
        )
        assert code == 0, err
        assert max(map(len, shown.splitlines())) <= 80
        values = json.loads(out.read_text())["rounds"]["2"]
        assert values["clients"] == 3
        assert values["norm_mean"] == pytest.approx(np.mean(norms), abs=1e-8)
        assert values["alpha_mean"] == pytest.approx(np.mean(np.minimum(1, 0.5 / np.array(norms))), abs=1e-8)
        drawn[name] = picture.read_bytes()
        assert drawn[name].startswith(PNG)
    assert drawn["all"] == drawn["again"] != drawn["one"]


def test_some_of_the_clients_a_round(fedsynth_json, shuffled_run, tmp_path):
    """Two of four take part: the mean is over those two."""
    found = fedsynth_json("evaluate", shuffled_run, "--clipping", "1", "-o", tmp_path / "c.json")
    assert [values["clients"] for values in found["rounds"].values()] == [2, 2, 2]


def test_refusals(fedsynth, finished_run, written_run, tmp_path):
    root, write = written_run
    out = tmp_path / "c.json"
    empty = tmp_path / "empty"
    (empty / "clients/00/private").mkdir(parents=True)
    (empty / "clients/00/private/update-1.safetensors").write_bytes(b"")  # no name that a run gives
    cases = [
        ([root, "--clipping", "0"], 2, "--clipping is a length above 0, found 0"),
        ([root, "--clipping", "-1"], 2, "--clipping is a length above 0, found -1"),
        ([root, "--clipping", "nan"], 2, "--clipping is a length above 0, found nan"),
        ([root, "--clipping", "inf"], 2, "--clipping is a length above 0, found inf"),
        ([root, "--clipping", "much"], 2, "much"),
        ([root, "--clipping", "1", "--round", "3"], 3, "has the updates of rounds 1 to 2"),
        ([root, "--clipping", "1", "--round", "0"], 3, "has the updates of rounds 1 to 2"),
        ([tmp_path / "nowhere", "--clipping", "1"], 3, "is no run folder"),
        ([empty, "--clipping", "1"], 3, "no round was trained here"),
        ([root, "--clipping", "1", "--share", "0.5"], 2, "--share goes with `evaluate RUN --heterogeneity`"),
        ([root, root, "--clipping", "1"], 2, "takes one run folder, found 2"),
        ([root, "--clipping", "1", "--gap"], 2, "are two measurements: ask for one"),
    ]
    for arguments, wanted, said in cases:
        code, _, err = fedsynth("evaluate", *arguments, "-o", out)
        assert (code, said in err) == (wanted, True), err
        assert not out.exists()
    for folder in ("outbox", "public", "metrics"):
        place = tmp_path / folder / "x"
        for words in (["-o", place], ["-o", out, "--picture", place]):
            code, _, err = fedsynth("evaluate", root, "--clipping", "1", *words)
            assert (code, "may not be in" in err) == (2, True), err
    message = next(finished_run.glob("clients/*/outbox/message-0001.safetensors"))
    shutil.copy(message, root / "clients/02/private/update-0003.safetensors")
    code, _, err = fedsynth("evaluate", root, "--clipping", "1", "-o", out)
    assert (code, "it is a message, but a update is needed" in err) == (3, True), err
    (root / "clients/02/private/update-0003.safetensors").unlink()
    write("02", 4, (1.0,), said=2)
    code, _, err = fedsynth("evaluate", root, "--clipping", "1", "-o", out)
    assert (code, "is an update of round 2, not of 4" in err) == (3, True), err
    assert not out.exists()


def test_it_does_not_import_torch(without_torch, written_run, tmp_path):
    root, _ = written_run
    without_torch(root, "--clipping", "1", "-q", "-o", tmp_path / "c.json")
