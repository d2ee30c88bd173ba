"""How near a set's gradients are to the data's: by hand, against a softmax model worked in numpy, and refusals."""

import csv
import json

import numpy as np
import pytest
import torch
from torch import nn

from artifacts.formats import tensors_file
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from stages.data.dataset_images import load_dataset
from stages.data.images import to_pixels
from stages.evaluate.matching import evaluate_matching
from stages.methods.matching_quality import compared, matching_trajectory
from stages.methods.surrogate_nets import LabelledSet
from stages.registry import ENCODERS

PNG = b"\x89PNG\r\n\x1a\n"


def test_cosines_and_ratios_by_hand():
    """(3, 4) and (4, 3): 24/25, as long. (1) and (−2): −1, twice as long. Together: (24 − 2)/(√26·√29)."""
    real = {"a": torch.tensor([[3.0], [4.0]]), "b": torch.tensor([1.0])}
    synthetic = {"a": torch.tensor([[4.0], [3.0]]), "b": torch.tensor([-2.0])}
    whole, parts = compared(real, synthetic)
    assert (parts["a"].cosine, parts["a"].norm_ratio) == pytest.approx((0.96, 1.0))
    assert (parts["b"].cosine, parts["b"].norm_ratio) == (-1.0, 2.0)
    assert (whole.cosine, whole.norm_ratio) == pytest.approx((22 / np.sqrt(26 * 29), np.sqrt(29 / 26)))
    assert (whole.norm_real, whole.norm_synthetic) == pytest.approx((np.sqrt(26), np.sqrt(29)))


def test_what_has_no_gradient_has_no_cosine():
    """Zeros, and a bias before a norm, of whose gradient only rounding is left."""
    whole, parts = compared({"a": torch.zeros(2), "b": torch.ones(2)}, {"a": torch.ones(2), "b": torch.zeros(2)})
    assert (parts["a"].cosine, parts["b"].norm_ratio, whole.cosine) == (None, None, 0.0)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.InstanceNorm2d(3, affine=True), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 2)
    )
    data, other = (LabelledSet(torch.randn(n, 1, 8, 8), torch.randint(0, 2, (n,))) for n in (20, 4))
    (point,) = matching_trajectory(net, other, data, steps=0, rate=1.0, batch_size=7, report=lambda *_: None)
    assert [name for name, found in point.tensors.items() if found.cosine is None] == ["0.bias"]


def test_a_set_that_is_the_data_is_a_perfect_match():
    torch.manual_seed(1)
    net, data = (
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3)),
        LabelledSet(torch.randn(30, 1, 2, 2), torch.arange(30) % 3),
    )
    for batch_size in (30, 7):
        points = matching_trajectory(net, data, data, steps=2, rate=0.5, batch_size=batch_size, report=lambda *_: None)
        for point in points:
            assert (point.whole.cosine, point.whole.norm_ratio) == pytest.approx((1.0, 1.0), abs=1e-6)
            assert point.loss_real == pytest.approx(point.loss_synthetic, abs=1e-6)
    assert [point.steps for point in points] == [0, 1, 2]


class Softmax:
    """The model in numpy: loss and gradient of x·Wᵀ + b."""

    def __init__(self, tensors):
        self.w, self.b = (tensors[f"classifier.logits.{name}"].astype(float) for name in ("weight", "bias"))

    def gradient(self, x, y):
        z = x @ self.w.T + self.b
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        loss = -np.log(p[np.arange(len(y)), y]).mean()
        p[np.arange(len(y)), y] -= 1
        return loss, p.T @ x / len(y), p.mean(axis=0)


@pytest.fixture
def parts(fedlap_run):
    """Of client 00, round 2, whose step size is half that of the first."""
    mine = fedlap_run / "clients/00"
    return {
        "model": fedlap_run / "server/outbox/model-0001.safetensors",
        "data": mine / "private/data.parquet",
        "surrogate": mine / "outbox/surrogate-0002.safetensors",
    }


def test_a_softmax_model_against_numpy(parts, tmp_path):
    found = evaluate_matching(
        parts["model"],
        parts["data"],
        tmp_path / "m.json",
        surrogate=parts["surrogate"],
        matching_steps=3,
        batch_size=100,
    )
    assert (found["custody"], found["client"], found["round"], found["method"]) == ("private", "00", 2, "fedlap")
    assert found["learning_rate"] == pytest.approx(0.05)  # 0.1·0.5
    content = load_dataset(parts["data"]).content
    real = to_pixels(content.images).reshape(len(content), -1).astype(float), content.labels
    sent = tensors_file.read(parts["surrogate"]).tensors
    synthetic = sent["images"].reshape(len(sent["labels"]), -1).astype(float), sent["labels"]
    model = Softmax(tensors_file.read(parts["model"]).tensors)
    start = model.w.copy(), model.b.copy()
    assert (found["num_examples"], found["images"], len(found["trajectory"])) == (len(content), 15, 4)
    for point in found["trajectory"]:
        (loss, *mine), (other_loss, *other) = model.gradient(*real), model.gradient(*synthetic)
        away = np.sqrt(np.sum((model.w - start[0]) ** 2) + np.sum((model.b - start[1]) ** 2))
        assert point["distance"] == pytest.approx(away, rel=1e-4, abs=1e-9)
        assert (point["loss_real"], point["loss_synthetic"]) == pytest.approx((loss, other_loss), rel=1e-4)
        together = [np.concatenate([part.ravel() for part in side]) for side in (mine, other)]
        each = [(point, *together)]
        each += [(point["tensors"][f"classifier.logits.{n}"], mine[i].ravel(), other[i].ravel())
                 for i, n in enumerate(("weight", "bias"))]  # fmt: skip
        for stated, a, b in each:
            lengths = np.linalg.norm(a), np.linalg.norm(b)
            assert stated["cosine"] == pytest.approx(a @ b / (lengths[0] * lengths[1]), abs=1e-5)
            assert stated["norm_ratio"] == pytest.approx(lengths[1] / lengths[0], rel=1e-4)
        model.w, model.b = model.w - 0.05 * other[0], model.b - 0.05 * other[1]
    last = found["trajectory"][-1]
    assert (found["cosine_end"], found["distance"]) == (last["cosine"], last["distance"])


def test_the_files_and_the_table(fedsynth, parts, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out, table, picture = tmp_path / "m.json", tmp_path / "m.csv", tmp_path / "m.png"
    words = ["--matching", parts["surrogate"], "--matching-steps", "2", "--learning-rate", "0.5"]
    code, shown, err = fedsynth(
        "evaluate", parts["model"], parts["data"], *words, "-o", out, "--csv", table, "--picture", picture
    )
    assert code == 0, err
    assert max(map(len, shown.splitlines())) <= 80
    assert "2 steps of η = 0.5 on 15 synthetic images" in shown
    written = json.loads(out.read_text())
    assert (written["learning_rate"], written["steps"]) == (0.5, 2)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["step"], row["tensor"].split(".")[-1]) for row in rows] == [
        (step, name) for step in "012" for name in ("all", "weight", "bias")
    ]
    assert float(rows[3]["cosine"]) == written["trajectory"][1]["cosine"]
    assert float(rows[3]["loss_real"]) == written["trajectory"][1]["loss_real"]
    assert (rows[4]["loss_real"], float(rows[4]["distance"])) == ("", written["trajectory"][1]["distance"])
    assert picture.read_bytes().startswith(PNG)


def test_step_size_of_feddm_and_data_of_another(feddm_run, tmp_path):
    sent = feddm_run / "clients/00/outbox/surrogate-0001.safetensors"
    data = feddm_run / "clients/01/private/data.parquet"
    found = evaluate_matching(feddm_run / "public/model-0000.safetensors", data, tmp_path / "m.json", surrogate=sent)
    assert (found["learning_rate"], found["steps"]) == (0.01, 10)
    assert found["note"] == "The data is of client 01: the set was not made of it."


def test_refusals(fedsynth, parts, fedlap_run, finished_run, tmp_path):
    model, data, sent = parts.values()
    out = tmp_path / "c.json"
    first, last = fedlap_run / "public/model-0000.safetensors", fedlap_run / "server/outbox/model-0002.safetensors"
    message = finished_run / "clients/00/outbox/message-0001.safetensors"
    other = finished_run / "public/model-0000.safetensors"
    early = fedlap_run / "clients/00/outbox/surrogate-0001.safetensors"
    cases = [
        ([first, data, "--matching", sent], 3, "is of round 2, but"),
        ([last, data, "--matching", sent], 3, "is of round 2, but"),
        ([other, data, "--matching", early], 3, "is for another model than"),
        ([model, data, "--matching", model], 3, "a surrogate is needed"),
        ([first, data, "--matching", message], 3, "is a message; a surrogate is needed"),
        ([model, data, "--matching", tmp_path / "nowhere"], 3, "nowhere"),
        ([model, data, "--matching", sent, "--learning-rate", "0"], 2, "--learning-rate is a number above 0, found 0"),
        ([model, data, "--matching", sent, "--learning-rate", "nan"], 2, "found nan"),
        ([model, data, "--matching", sent, "--learning-rate", "1e38"], 3, "Lower --learning-rate"),
        ([model, data, "--matching", sent, "--matching-steps", "-1"], 2, "matching-steps"),
        ([model, "--matching", sent], 2, "takes one model and one dataset, found 1"),
        ([model, data, "--learning-rate", "1"], 2, "--learning-rate goes with `evaluate MODEL DATA --matching"),
    ]
    for arguments, wanted, said in cases:
        code, _, err = fedsynth("evaluate", *arguments, "-o", out)
        assert (code, said in err) == (wanted, True), err
        assert not out.exists()
    for folder in ("outbox", "public", "metrics"):
        place = tmp_path / folder / "x"
        for words in (["-o", place], ["-o", out, "--picture", place], ["-o", out, "--csv", place]):
            code, _, err = fedsynth("evaluate", model, data, "--matching", sent, *words)
            assert (code, "may not be in" in err) == (2, True), err


@pytest.mark.parametrize(
    ("shape", "label", "said"),
    [((1, 1, 8, 7), 0, "its images are [1, 8, 7]"), ((1, 1, 8, 8), 10, "has labels from 10 to 10 for 10 classes")],
)
def test_a_set_that_claims_the_model_but_does_not_fit_it(parts, tmp_path, fedsynth, shape, label, said):
    start = tensors_file.read(parts["model"])
    about = Metadata(
        kind="surrogate", stage="encode", method="feddm", custody="outbound", client="00", round=2, versions={},
        params=ENCODERS.from_mapping({"method": "feddm"}).to_json(), inputs=(lineage.by_digest(start, "model"),),
    )  # fmt: skip
    path = tmp_path / "00/outbox/s.safetensors"
    path.parent.mkdir(parents=True)
    tensors_file.write(path, {"images": np.zeros(shape, np.float32), "labels": np.array([label])}, about)
    code, _, err = fedsynth("evaluate", parts["model"], parts["data"], "--matching", path, "-o", tmp_path / "x")
    assert (code, said in err) == (3, True), err
