"""Copies that were planted are found, far images are not; what is private stays private."""

import json

import numpy as np
import pytest
from scipy.stats import mannwhitneyu
from sklearn.datasets import load_digits

PNG = b"\x89PNG\r\n\x1a\n"
DIGITS = load_digits()
IMAGES = np.rint(DIGITS.images * 255 / 16).astype(np.uint8)[:, None]
LABELS = DIGITS.target.astype(np.int64)
CLASSES = tuple("0123456789")


@pytest.fixture
def digits(dataset):
    def make(name, rows):
        return dataset(name, IMAGES[rows], LABELS[rows], CLASSES)

    return make


def test_planted_copies_are_found(fedsynth_json, digits, dataset, tmp_path):
    """Three copies among twenty fresh images: in the smallest distances, in the list of pairs, by file and row."""
    first, second = digits("first", range(400)), digits("second", range(400, 900))
    rows = [*range(1000, 1020), 5, 410, 899]
    synthetic, held_out = digits("synthetic", rows), digits("held-out", range(1300, 1797))
    out, picture = tmp_path / "private/m.json", tmp_path / "private/pairs.png"
    found = fedsynth_json("evaluate", synthetic, first, second, "--held-out", held_out, "-o", out, "--pairs", picture)
    assert (found["copies"], found["reference_copies"], found["reference"]) == (3, 0, "held-out")
    assert (found["num_synthetic"], found["num_real"]) == (23, 900)
    assert (found["synthetic_min"], found["synthetic_p01"]) == (0.0, 0.0)
    planted = [(pair["row"], pair["real_file"], pair["real_row"], pair["distance"]) for pair in found["closest"][:3]]
    assert planted == [(20, 1, 5, 0.0), (21, 2, 10, 0.0), (22, 2, 499, 0.0)]
    assert len(found["closest"]) == 12
    assert picture.read_bytes().startswith(PNG)
    written = json.loads(out.read_text())
    assert written["custody"] == "private"
    assert "Under differential privacy it decides nothing" in written["note"]
    assert written == {key: value for key, value in found.items() if key != "out"}


def test_memorised_images_are_told_from_fresh_ones(fedsynth_json, digits, dataset, tmp_path):
    real, held_out = digits("real", range(800)), digits("held-out", range(1300, 1797))
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 800, 200)
    noisy = (IMAGES[rows].astype(int) + rng.integers(-8, 9, (200, 1, 8, 8))).clip(0, 255)
    copied = dataset("copied", noisy, LABELS[rows], CLASSES)
    memorised = fedsynth_json("evaluate", copied, real, "--held-out", held_out, "-o", tmp_path / "a.json")
    assert memorised["share_nearer"] > 0.95
    assert memorised["copies"] == 0
    fresh = fedsynth_json("evaluate", digits("fresh", range(800, 1300)), real, "--held-out", held_out,
                          "-o", tmp_path / "b.json")  # fmt: skip
    assert 0.4 < fresh["share_nearer"] < 0.6


def test_by_hand(fedsynth_json, dataset, tmp_path):
    """One pixel: distances are differences of grey, divided by 255."""
    grey = lambda *values: np.array(values, np.uint8).reshape(-1, 1, 1, 1)  # noqa: E731
    real, synthetic = dataset("real", grey(0, 100)), dataset("synthetic", grey(10, 100, 151))
    held_out = dataset("held", grey(51, 110))
    found = fedsynth_json("evaluate", synthetic, real, "--held-out", held_out, "-o", tmp_path / "a.json")
    assert (found["synthetic_min"], found["synthetic_median"]) == (0.0, pytest.approx(10 / 255, abs=1e-6))
    assert (found["reference_min"], found["reference_median"]) == (
        pytest.approx(10 / 255, abs=1e-6),
        pytest.approx((10 + 49) / 2 / 255, abs=1e-6),
    )
    # pairs (10, 0, 51) against (49, 10): nearer 1 + ½, 2, 0
    assert found["share_nearer"] == pytest.approx(3.5 / 6, abs=1e-6)
    alone = fedsynth_json("evaluate", synthetic, real, "-o", tmp_path / "b.json")
    assert (alone["reference"], alone["num_reference"]) == ("leave-one-out", 2)
    assert alone["reference_min"] == alone["reference_median"] == pytest.approx(100 / 255, abs=1e-6)


def test_classes_that_a_client_does_not_have_do_not_count(fedsynth_json, digits, tmp_path):
    """Held-out images of other classes are far from the client's data; that is no sign of memorisation."""
    mine = [np.flatnonzero(LABELS == 3)[part] for part in (slice(0, 80), slice(80, 120), slice(120, 183))]
    everything = np.union1d(mine[2], np.flatnonzero(LABELS != 3)[:500])
    real, synthetic = digits("real", mine[0]), digits("synthetic", mine[1])
    found = fedsynth_json("evaluate", synthetic, real, "--held-out", digits("held", everything), "-o", tmp_path / "a")
    only = fedsynth_json("evaluate", synthetic, real, "--held-out", digits("only", mine[2]), "-o", tmp_path / "b")
    assert found["num_reference"] == 63
    assert {k: v for k, v in found.items() if k != "out"} == {k: v for k, v in only.items() if k != "out"}
    flat = [IMAGES[rows].reshape(len(rows), -1).astype(float) for rows in mine]
    nearest = [((part[:, None] - flat[0]) ** 2).sum(axis=2).min(axis=1) for part in flat[1:]]
    oracle = mannwhitneyu(nearest[1], nearest[0]).statistic / (40 * 63)
    assert found["share_nearer"] == pytest.approx(oracle, abs=1e-6)


def test_what_does_not_fit_is_refused(fedsynth, dataset, tmp_path):
    blank = np.zeros((3, 1, 4, 4), np.uint8)
    real = dataset("real", blank)
    cases = [
        ([dataset("small", blank[:, :, :2]), real], "its images are 1×4×4, the synthetic ones 1×2×4"),
        ([dataset("named", blank, classes=("a", "c")), real], "its classes are a, b; the synthetic ones a, c"),
        ([dataset("none", blank[:0]), real], "none.parquet holds no images"),
        ([real, dataset("empty", blank[:0])], "empty.parquet holds no images"),
        ([real, dataset("one", blank[:1])], "Give --held-out, or more real images"),
        ([real, real, "--held-out", dataset("ones", blank, [1, 1, 1])], "no image of the classes"),
        ([real, real, "--held-out", tmp_path / "nowhere.parquet"], "no such file"),
        ([tmp_path / "nowhere.parquet", real], "no such file"),
    ]
    for arguments, said in cases:
        code, _, err = fedsynth("evaluate", *arguments, "-o", tmp_path / "m.json")
        assert (code, said in err) == (3, True), err
        assert not (tmp_path / "m.json").exists()


@pytest.mark.parametrize("folder", ["outbox", "public", "metrics"])
def test_it_stays_private(fedsynth, dataset, tmp_path, folder):
    real, out = dataset("real", np.zeros((3, 1, 4, 4), np.uint8)), tmp_path / folder / "m.json"
    for arguments in (["-o", out], ["-o", tmp_path / "m.json", "--pairs", out.with_suffix(".png")]):
        code, _, err = fedsynth("evaluate", real, real, *arguments)
        assert (code, "may not be in" in err) == (2, True), err
    assert not (tmp_path / "m.json").exists()
    assert not out.parent.exists()


def test_pictures_are_the_same_each_time_and_take_colour_and_few_pairs(fedsynth, dataset, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 6, 5), np.uint8)
    made, real = dataset("made", images), dataset("real", images[::-1])
    drawn = []
    for name in ("a", "b"):
        picture = tmp_path / f"{name}.png"
        assert fedsynth("evaluate", made, real, "-o", tmp_path / f"{name}.json", "--pairs", picture)[0] == 0
        drawn.append(picture.read_bytes())
    assert drawn[0] == drawn[1]
    assert drawn[0].startswith(PNG)
