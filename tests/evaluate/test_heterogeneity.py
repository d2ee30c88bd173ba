"""ζ², σ², δ² of a run against a slow loop over single examples; Lemma 1 beside them; refusals."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch import nn

from stages.data.dataset_images import load_dataset
from stages.data.images import to_pixels
from stages.models.file import read_model, to_module

PNG = b"\x89PNG\r\n\x1a\n"


def gradients(model, path):
    """Every example's gradient by an ordinary backward pass, in float64."""
    module = to_module(read_model(model), torch.device("cpu")).double().eval()
    content = load_dataset(path).content
    rows = []
    for image, label in zip(torch.from_numpy(to_pixels(content.images)).double(), content.labels, strict=True):
        loss = nn.functional.cross_entropy(module(image[None]), torch.tensor([int(label)]))
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]))
    return torch.stack(rows).numpy()


def spread(rows):
    """E‖g − Eg‖²."""
    return ((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean()


@pytest.fixture(scope="module")
def looped(shuffled_run):
    model = shuffled_run / "server/outbox/model-0003.safetensors"
    real = [gradients(model, p) for p in sorted(shuffled_run.glob("clients/*/private/data.parquet"))]
    parts = [gradients(model, p) for p in sorted(shuffled_run.glob("server/outbox/synthetic-*.parquet"))]
    return real, parts


@pytest.fixture
def measure(fedsynth_json, tmp_path):
    def call(run, *options):
        return fedsynth_json("evaluate", run, "--heterogeneity", "-o", tmp_path / "h.json", "--force", *options)

    return call


def test_values_equal_a_slow_loop(measure, shuffled_run, looped, tmp_path):
    real, parts = looped
    found = measure(shuffled_run)
    assert (found["custody"], found["clients"], found["shuffled"], found["num_shuffled"]) == (
        "private", 4, "synthetic", 40,
    )  # fmt: skip
    assert found["num_examples"] == sum(len(rows) for rows in real)
    (values,) = found["rounds"].values()
    assert list(found["rounds"]) == ["3"]
    means = np.stack([rows.mean(axis=0) for rows in real])
    shared = np.concatenate(parts)
    centre = means.mean(axis=0)
    assert values["dissimilarity"] == pytest.approx(((means - centre) ** 2).sum(axis=1).mean(), rel=1e-4)
    assert values["noise"] == pytest.approx(np.mean([spread(rows) for rows in real]), rel=1e-4)
    assert values["noise_largest"] == pytest.approx(max(spread(rows) for rows in real), rel=1e-4)
    assert values["shift"] == pytest.approx(((centre - shared.mean(axis=0)) ** 2).sum(), rel=1e-4)
    assert values["shuffled_noise"] == pytest.approx(spread(shared), rel=1e-4)
    assert json.loads((tmp_path / "h.json").read_text())["rounds"] == found["rounds"]


def test_a_mixture_that_was_really_made_has_these_values(measure, shuffled_run, looped):
    """Half and half: the mean over both halves, and the distances of all rows from it."""
    real, parts = looped
    shared = np.concatenate(parts)
    (values,) = measure(shuffled_run, "--share", "0.5")["rounds"].values()
    noises, means = [], []
    for rows in real:
        mean = (rows.mean(axis=0) + shared.mean(axis=0)) / 2
        own, other = (((part - mean) ** 2).sum(axis=1).mean() for part in (rows, shared))
        noises.append((own + other) / 2)
        means.append(mean)
    means = np.stack(means)
    assert list(values["shares"]) == ["0.5"]
    row = values["shares"]["0.5"]
    assert row["noise"] == pytest.approx(np.mean(noises), rel=1e-4)
    assert row["dissimilarity"] == pytest.approx(((means - means.mean(axis=0)) ** 2).sum(axis=1).mean(), rel=1e-4)


def test_what_the_run_dealt(measure, shuffled_run, looped):
    """Each client with its own part, joined as it was trained on."""
    real, parts = looped
    (values,) = measure(shuffled_run)["rounds"].values()
    joined = [np.concatenate(pair) for pair in zip(real, parts, strict=True)]
    means = np.stack([rows.mean(axis=0) for rows in joined])
    dealt = values["dealt"]
    assert dealt["noise"] == pytest.approx(np.mean([spread(rows) for rows in joined]), rel=1e-4)
    assert dealt["dissimilarity"] == pytest.approx(((means - means.mean(axis=0)) ** 2).sum(axis=1).mean(), rel=1e-4)
    assert dealt["share"] == pytest.approx(np.mean([len(p) / len(j) for p, j in zip(parts, joined, strict=True)]))


@pytest.mark.parametrize("fixture", ["shuffled_run", "finished_run"])
def test_lemma_one(measure, request, fixture):
    """Equal where all clients get the same D̃ and σ² is the clients' mean; below where σ² is the largest."""
    (values,) = measure(request.getfixturevalue(fixture))["rounds"].values()
    assert list(values["shares"]) == ["0", "0.25", "0.5", "0.75", "1"]
    for row in values["shares"].values():
        p = row["share"]
        assert row["dissimilarity_bound"] == pytest.approx((1 - p) ** 2 * values["dissimilarity"], abs=1e-11)
        assert row["dissimilarity"] == pytest.approx(row["dissimilarity_bound"], rel=1e-9, abs=1e-11)
        bound = (1 - p) * values["noise"] + p * values["shuffled_noise"]
        bound += p * (1 - p) * (values["dissimilarity"] + values["shift"])
        assert row["noise_bound"] == pytest.approx(bound)
        assert row["noise"] == pytest.approx(row["noise_bound"], rel=1e-9)
        assert row["noise_bound_largest"] >= row["noise"] * (1 - 1e-12)
    assert values["shares"]["0"]["noise"] == pytest.approx(values["noise"])
    assert values["shares"]["1"]["noise"] == pytest.approx(values["shuffled_noise"])


def test_without_synthetic_data_the_real_is_shuffled(measure, finished_run):
    """D̃ is then D, in which every client weighs as much, however many rows it has: δ² is 0 (Assumption 4)."""
    found = measure(finished_run, "--round", "1")
    (values,) = found["rounds"].values()
    assert (found["shuffled"], found["num_shuffled"]) == ("real", found["num_examples"])
    assert "dealt" not in values
    model = finished_run / "server/outbox/model-0001.safetensors"
    rows = [gradients(model, p) for p in sorted(finished_run.glob("clients/*/private/data.parquet"))]
    assert len({len(part) for part in rows}) > 1, "clients of one size would not show whose weight counts"
    centre = np.mean([part.mean(axis=0) for part in rows], axis=0)
    expected = np.mean([((part - centre) ** 2).sum(axis=1).mean() for part in rows])
    assert values["shuffled_noise"] == pytest.approx(expected, rel=1e-4)
    assert values["shift"] == pytest.approx(0.0, abs=1e-9)


def test_rounds_pictures_and_what_is_shown(fedsynth, shuffled_run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    drawn = {}
    for name, options in (("one", []), ("again", []), ("three", ["--round", 0, "--round", 2, "--round", 3])):
        picture = tmp_path / f"{name}.png"
        code, out, err = fedsynth("evaluate", shuffled_run, "--heterogeneity", "-o", tmp_path / f"{name}.json",
                                  "--picture", picture, *options)  # fmt: skip
        assert code == 0, err
        assert max(map(len, out.splitlines())) <= 80
        drawn[name] = picture.read_bytes()
        assert drawn[name].startswith(PNG)
    assert drawn["one"] == drawn["again"]
    assert list(json.loads((tmp_path / "three.json").read_text())["rounds"]) == ["0", "2", "3"]
    assert "Round 2: ζ² =" in out


def test_refusals(fedsynth, finished_run, tmp_path):
    out = tmp_path / "h.json"
    empty = tmp_path / "empty"
    (empty / "clients").mkdir(parents=True)
    bare = tmp_path / "bare"
    shutil.copytree(finished_run / "public", bare / "public")
    (bare / "clients/00/private").mkdir(parents=True)
    cases = [
        ([finished_run, "--round", "3"], 3, "has the models of rounds 0 to 2"),
        ([finished_run, "--share", "1.5"], 2, "--share is between 0 and 1, found 1.5"),
        ([tmp_path / "nowhere"], 3, "is no run folder"),
        ([finished_run / "public/test.parquet"], 3, "is no run folder"),
        ([empty], 3, "there is no model to measure at"),
        ([bare], 3, "there is nothing to measure"),
    ]
    for arguments, wanted, said in cases:
        code, _, err = fedsynth("evaluate", *arguments, "--heterogeneity", "-o", out)
        assert (code, said in err) == (wanted, True), err
        assert not out.exists()
    for folder in ("outbox", "public", "metrics"):
        code, _, err = fedsynth("evaluate", finished_run, "--heterogeneity", "-o", tmp_path / folder / "h.json")
        assert (code, "may not be in" in err) == (2, True), err
