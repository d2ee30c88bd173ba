"""The train-test gap of a run against one that is counted image by image; refusals."""

import json
import shutil

import numpy as np
import pytest
import torch

from stages.data.dataset_images import load_dataset
from stages.data.images import to_pixels
from stages.models.file import read_model, to_module


def counted(model, paths):
    """(right, loss, images), one image at a time."""
    module = to_module(read_model(model), torch.device("cpu")).eval()
    right, loss, total = 0, 0.0, 0
    for path in paths:
        content = load_dataset(path).content
        for image, label in zip(torch.from_numpy(to_pixels(content.images)), content.labels, strict=True):
            with torch.no_grad():
                logits = module(image[None])[0].double()
            right += int(logits.argmax()) == label
            loss += float(torch.logsumexp(logits, 0) - logits[int(label)])
            total += 1
    return right, loss, total


def test_it_is_what_one_counts(fedsynth_json, finished_run):
    """All training images together, not the mean of the clients' accuracies; of each round asked for."""
    out = finished_run.parent / "gap.json"
    found = fedsynth_json("evaluate", finished_run, "--gap", "--round", 0, "--round", 2, "-o", out, "--force")
    train = sorted(finished_run.glob("clients/*/private/data.parquet"))
    assert (found["custody"], found["clients"], list(found["rounds"])) == ("private", 3, ["0", "2"])
    for round, model in (("0", "public/model-0000"), ("2", "server/outbox/model-0002")):
        path = finished_run / f"{model}.safetensors"
        right, loss, total = counted(path, train)
        good, less, tested = counted(path, [finished_run / "public/test.parquet"])
        values = found["rounds"][round]
        assert (found["num_train"], found["num_test"]) == (total, tested)
        assert values["train_accuracy"] == pytest.approx(right / total, abs=1e-6)
        assert values["test_accuracy"] == pytest.approx(good / tested, abs=1e-6)
        assert values["gap"] == pytest.approx(right / total - good / tested, abs=1e-6)
        assert values["train_loss"] == pytest.approx(loss / total, abs=2e-6)
        assert values["loss_gap"] == pytest.approx(less / tested - loss / total, abs=2e-6)
    metrics = json.loads((finished_run / "metrics/round-0002.json").read_text())
    assert found["rounds"]["2"]["test_accuracy"] == metrics["accuracy"]
    assert json.loads(out.read_text())["rounds"] == found["rounds"]


def test_the_last_round_if_none_is_named(fedsynth, finished_run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "gap.json"
    code, shown, err = fedsynth("evaluate", finished_run, "--gap", "-o", out, "--batch-size", "7", "--device", "cpu")
    assert code == 0, err
    assert list(json.loads(out.read_text())["rounds"]) == ["2"]
    assert "gap (points)" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_refusals(fedsynth, run_copy, dataset, tmp_path):
    out = tmp_path / "gap.json"
    bare, untested = tmp_path / "bare", tmp_path / "untested"
    shutil.copytree(run_copy / "public", bare / "public")
    (bare / "clients/00/private").mkdir(parents=True)
    shutil.copytree(run_copy, untested)
    (untested / "public/test.parquet").unlink()
    (run_copy / "clients/01/private/data.parquet").unlink()
    shutil.copy(dataset("other", np.zeros((3, 1, 4, 4), np.uint8)), run_copy / "clients/01/private/data.parquet")
    cases = [
        ([untested, "--round", "9"], 3, "has the models of rounds 0 to 2"),
        ([untested], 3, "test.parquet: no such file"),
        ([tmp_path / "nowhere"], 3, "is no run folder"),
        ([bare], 3, "there is nothing to measure"),
        ([run_copy], 3, "does not fit the model: its images are 1×4×4 in 2 classes"),
        ([run_copy, run_copy], 2, "takes one run folder, found 2"),
        ([run_copy, "--picture", "x.png"], 2, "--picture goes with"),
        ([run_copy, "--heterogeneity"], 2, "are two measurements: ask for one"),
    ]
    for arguments, wanted, said in cases:
        code, _, err = fedsynth("evaluate", *arguments, "--gap", "-o", out)
        assert (code, said in err) == (wanted, True), err
        assert not out.exists()
    for folder in ("outbox", "public", "metrics"):
        code, _, err = fedsynth("evaluate", untested, "--gap", "-o", tmp_path / folder / "gap.json")
        assert (code, "may not be in" in err) == (2, True), err
