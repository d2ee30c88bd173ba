"""Precision, recall and KID against plain loops; collapsed, noisy and good images are told apart; refusals."""

import itertools
import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from stages.methods.quality import kid, learnt_accuracy, precision_and_recall

DIGITS = load_digits()
IMAGES = np.rint(DIGITS.images * 255 / 16).astype(np.uint8)[:, None]
LABELS = DIGITS.target.astype(np.int64)
CLASSES = tuple("0123456789")


def points(seed, count, shift=0.0):
    return np.random.default_rng(seed).normal(size=(count, 4)) + shift


def test_kid_is_the_double_loop():
    ours, theirs = points(0, 7, 0.5), points(1, 9)

    def kernel(x, y):
        return (x @ y / 4 + 1) ** 3

    within = [np.mean([kernel(a, b) for a, b in itertools.permutations(rows, 2)]) for rows in (ours, theirs)]
    across = np.mean([kernel(a, b) for a in ours for b in theirs])
    assert kid(ours, theirs) == pytest.approx(sum(within) - 2 * across, rel=1e-12)
    assert kid(ours[:1], theirs) is None


def test_kid_of_one_distribution_is_0_on_average():
    """Unbiased: over 400 pairs of sets the mean is 0 within five standard errors (a fixed stream)."""
    found = [kid(points(2 * seed, 10), points(2 * seed + 1, 10)) for seed in range(400)]
    assert abs(np.mean(found)) < 5 * np.std(found) / 20
    assert kid(points(0, 50), points(1, 50, shift=1.0)) > 5 * np.std(found)


@pytest.mark.parametrize("k", [1, 3])
def test_precision_and_recall_are_the_loops(monkeypatch, k):
    monkeypatch.setattr("stages.methods.quality._AT_ONCE", 5)
    ours, theirs = points(3, 12, 0.7), points(4, 17)

    def reach(rows):
        return [sorted(np.linalg.norm(a - b) for j, b in enumerate(rows) if j != i)[k - 1] for i, a in enumerate(rows)]

    def share(rows, centres):
        radii = reach(centres)
        return np.mean([any(np.linalg.norm(a - c) <= r for c, r in zip(centres, radii, strict=True)) for a in rows])

    assert precision_and_recall(ours, theirs, k) == pytest.approx((share(ours, theirs), share(theirs, ours)))
    assert precision_and_recall(ours[:k], theirs, k) is None


def test_a_classifier_is_trained_on_the_one_and_tested_on_the_other():
    ours = np.concatenate([points(5, 40, -3.0), points(6, 40, 3.0)])
    labels = np.repeat([0, 1], 40)
    theirs = np.concatenate([points(7, 30, -3.0), points(8, 30, 3.0)])
    right = learnt_accuracy(ours, labels, theirs, np.repeat([0, 1], 30))
    assert right.mean() > 0.98
    assert learnt_accuracy(ours, 1 - labels, theirs, np.repeat([0, 1], 30)).mean() < 0.02
    assert learnt_accuracy(ours, np.zeros(80, np.int64), theirs, np.repeat([0, 1], 30)) is None


@pytest.fixture
def digits(dataset):
    def make(name, rows, change=lambda images: images):
        return dataset(name, change(IMAGES[rows]), LABELS[rows], CLASSES)

    return make


def test_good_collapsed_and_noisy_images_are_told_apart(fedsynth_json, digits, finished_run, tmp_path):
    """Features of a model of a run on digits. What collapsed has little recall; noise has little precision."""
    model = sorted((finished_run / "server/outbox").glob("model-*.safetensors"))[-1]
    real, held_out = digits("real", range(600)), digits("held", range(1200, 1797))
    rng = np.random.default_rng(0)
    few = np.array([np.flatnonzero(LABELS[600:1200] == label)[0] + 600 for label in range(10)])
    collapsed = np.repeat(few, 30)

    def jitter(images):
        return np.clip(images.astype(int) + rng.integers(-3, 4, images.shape), 0, 255).astype(np.uint8)

    sets = {
        "good": digits("good", range(600, 1200)),
        "collapsed": digits("collapsed", collapsed, jitter),
        "noise": digits("noise", range(600, 1200), lambda images: rng.integers(0, 256, images.shape, np.uint8)),
    }
    found = {
        name: fedsynth_json(
            "evaluate", path, real, "--quality", "--features", model, "--held-out", held_out,
            "-o", tmp_path / f"{name}.json",
        )
        for name, path in sets.items()
    }  # fmt: skip
    good, poor, noise = found["good"], found["collapsed"], found["noise"]
    assert good["precision"] > 0.7 and good["recall"] > 0.7
    assert poor["recall"] < 0.5 * good["recall"]
    assert noise["accuracy"] < 0.5 < good["accuracy"]
    assert good["kid"] < poor["kid"] and good["kid"] < noise["kid"]
    assert good["accuracy_of_real"] == pytest.approx(good["accuracy"], abs=0.1)
    assert list(good["classes"]) == list(CLASSES)
    assert good["classes"]["3"]["num_synthetic"] == int((LABELS[600:1200] == 3).sum())
    assert json.loads((tmp_path / "good.json").read_text())["custody"] == "private"


def test_what_does_not_fit_is_refused(fedsynth, digits, dataset, finished_run, tmp_path):
    model = sorted((finished_run / "server/outbox").glob("model-*.safetensors"))[-1]
    real, blank = digits("real", range(20)), np.zeros((3, 1, 4, 4), np.uint8)
    for arguments, code, said in (
        ([real, real, "--quality"], 2, "needs --features"),
        ([dataset("a", blank), real, "--quality", "--features", model], 3, "classes differ"),
        ([dataset("b", blank, classes=CLASSES), real, "--quality", "--features", model], 3, "b.parquet"),
        ([digits("none", range(0)), real, "--quality", "--features", model], 3, "holds no images"),
        ([real, real, "--features", model], 2, "--features goes with"),
    ):
        found, _, err = fedsynth("evaluate", *arguments, "-o", tmp_path / "q.json")
        assert (found, said in err) == (code, True), err
    code, _, err = fedsynth("evaluate", real, real, "--quality", "--features", model, "-o", tmp_path / "outbox/q.json")
    assert (code, "may not be in" in err) == (2, True), err
