"""Sharpness and surface of a model on the command line: numbers against autograd's own, custody, refusals."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from artifacts.formats import tensors_file
from stages.data.dataset_images import load_dataset
from stages.data.images import to_pixels
from stages.models.file import read_model, to_module
from stages.pictures.surface import surface_picture

PNG = b"\x89PNG\r\n\x1a\n"
SMALL = ["--points", "3", "--device", "cpu"]


@pytest.fixture
def files(finished_run):
    return finished_run / "server/outbox/model-0002.safetensors", finished_run / "public/test.parquet"


def full_loss(model, data):
    """(loss as a function of one flat vector, that vector), in float64."""
    module = to_module(read_model(model), torch.device("cpu")).double().eval()
    content = load_dataset(data).content
    images, labels = torch.from_numpy(to_pixels(content.images)).double(), torch.from_numpy(content.labels)
    shapes = {name: w.shape for name, w in module.named_parameters()}

    def loss(vector):
        parts = torch.split(vector, [shape.numel() for shape in shapes.values()])
        weights = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        return nn.functional.cross_entropy(torch.func.functional_call(module, weights, (images,)), labels)

    return loss, nn.utils.parameters_to_vector(module.parameters()).detach()


def test_numbers_equal_those_of_the_full_hessian(fedsynth_json, files, tmp_path):
    """650 weights: the whole Hessian, its eigenvalues by LAPACK."""
    loss, w = full_loss(*files)
    gradient = torch.func.grad(loss)(w)
    rise = loss(w + 0.1 * gradient / gradient.norm()) - loss(w)
    top = np.linalg.eigvalsh(torch.func.hessian(loss)(w).numpy())[-1]
    out, picture = tmp_path / "s.json", tmp_path / "s.png"
    found = fedsynth_json("evaluate", *files, "--surface", picture, "-o", out, "--sharpness-rho", "0.1", *SMALL)
    assert found["loss"] == pytest.approx(loss(w).item(), rel=1e-5)
    assert found["sharpness"] == pytest.approx(rise.item(), rel=1e-3)
    assert found["hessian_eigenvalue"] == pytest.approx(top, rel=1e-2)
    assert 0 <= found["hessian_residual"] < 0.2
    assert (found["custody"], found["round"], found["num_examples"]) == (
        "public",
        2,
        len(load_dataset(files[1]).content),
    )
    assert json.loads(out.read_text()) == {key: value for key, value in found.items() if key != "out"}
    assert picture.read_bytes().startswith(PNG)


def test_the_surface_and_its_seed(fedsynth_json, files, tmp_path):
    """The model's own loss in the middle; higher around it; a seed repeats it, bytes and all, another does not."""
    made = {}
    for name, options in {
        "first": ["--points", "5", "--span", "0.5"],
        "again": ["--points", "5", "--span", "0.5", "--seed", "0", "--batch-size", "100"],
        "other": ["--points", "5", "--span", "0.5", "--seed", "1"],
    }.items():
        picture = tmp_path / f"{name}.png"
        found = fedsynth_json("evaluate", *files, "--surface", picture, "-o", tmp_path / f"{name}.json", *options)
        made[name] = found, picture.read_bytes()
    surface = made["first"][0]["surface"]
    assert surface["steps"] == [-0.5, -0.25, 0.0, 0.25, 0.5]
    losses = np.array(surface["losses"])
    assert losses.shape == (5, 5)
    assert losses[2, 2] == made["first"][0]["loss"]
    assert losses[0, 0] > losses[2, 2] < losses[4, 4]
    np.testing.assert_allclose(made["again"][0]["surface"]["losses"], losses, rtol=1e-4)  # batches change no result
    assert not np.allclose(made["other"][0]["surface"]["losses"], losses, rtol=1e-3)
    assert made["first"][1] != made["other"][1]


def test_what_is_shown(fedsynth, files, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, shown, err = fedsynth("evaluate", *files, "--surface", tmp_path / "s.png", "-o", tmp_path / "s.json", *SMALL)
    assert code == 0, err
    assert "sharpness, ρ = 0.05" in shown
    assert "largest eigenvalue" in shown
    assert max(map(len, shown.splitlines())) <= 80
    (tmp_path / "s.png").write_bytes(b"another picture")
    code, _, err = fedsynth("evaluate", *files, "--surface", tmp_path / "s.png", "-o", tmp_path / "t.json", *SMALL)
    assert (code, "already exists" in err) == (3, True)


def test_custody_follows_the_data(fedsynth_json, fedsynth, finished_run, files, tmp_path):
    private = finished_run / "clients/00/private/data.parquet"
    picture, out = tmp_path / "s.png", tmp_path / "s.json"
    assert fedsynth_json("evaluate", files[0], private, "--surface", picture, "-o", out, *SMALL)["custody"] == "private"
    for folder in ("outbox", "public", "metrics"):
        place = tmp_path / folder / "x"
        for words in (["--surface", tmp_path / "y.png", "-o", place], ["--surface", place, "-o", tmp_path / "y.json"]):
            code, _, err = fedsynth("evaluate", files[0], private, *words, *SMALL)
            assert (code, "may not be in" in err) == (2, True), err
    metrics = tmp_path / "metrics"  # of public data they may be there
    fedsynth_json("evaluate", *files, "--surface", metrics / "s.png", "-o", metrics / "s.json", *SMALL)


def test_refusals(fedsynth, finished_run, files, dataset, tmp_path):
    model, data = files
    other, none = dataset("other", np.zeros((3, 1, 4, 4), np.uint8)), dataset("none", np.zeros((0, 1, 8, 8), np.uint8))
    message = finished_run / "clients/00/outbox/message-0001.safetensors"
    cases = [
        ([model, data, "--points", "4"], 2, "--points is an odd number from 3 on"),
        ([model, data, "--points", "1"], 2, "--points is an odd number from 3 on"),
        ([model, data, "--span", "0"], 2, "--span is a length above 0, found 0"),
        ([model, data, "--span", "nan"], 2, "--span is a length above 0, found nan"),
        ([model, data, "--sharpness-rho", "-1"], 2, "--sharpness-rho is a length above 0, found -1"),
        ([model], 2, "takes one model and one dataset, found 1 argument"),
        ([model, data, "--curve", "x"], 2, "--curve goes with `evaluate MODEL DATA`"),
        ([model, data, "--gap"], 2, "are two measurements: ask for one"),
        ([model, tmp_path / "nowhere.parquet"], 3, "no such file"),
        ([message, data], 3, "it is a message, but a model is needed"),
        ([model, other], 3, "does not fit the model"),
        ([model, none], 3, "does not fit the model"),
    ]
    for arguments, wanted, said in cases:
        code, _, err = fedsynth("evaluate", *arguments, "--surface", tmp_path / "s.png", "-o", tmp_path / "s.json")
        assert (code, said in err) == (wanted, True), err
        assert not (tmp_path / "s.json").exists() and not (tmp_path / "s.png").exists()
    code, _, err = fedsynth("evaluate", model, data, "--span", "2", "-o", tmp_path / "s.json")
    assert (code, "--span goes with `evaluate MODEL DATA --surface PNG`" in err) == (2, True), err


def test_a_model_that_diverged(fedsynth, fedsynth_json, files, tmp_path):
    """Weights that are finite and logits that are not: told. Beyond the model's own point they are left out."""
    model, data = files
    artifact = tensors_file.read(model)
    for scale, fine in ((1e38, False), (1e30, True)):
        path = tmp_path / f"{scale:g}.safetensors"
        weights = {name: np.sign(array) * np.float32(scale) for name, array in artifact.tensors.items()}
        about = artifact.metadata.__class__(
            kind="model", stage="init-model", custody="public", params=dict(artifact.metadata.params),
            versions={"fedsynth": "0"},
        )  # fmt: skip
        tensors_file.write(path, weights, about)
        words = ["evaluate", path, data, "--surface", tmp_path / f"{scale:g}.png", "-o", tmp_path / f"{scale:g}.json"]
        code, _, err = fedsynth(*words, *SMALL)
        if fine:
            assert code == 0, err
        else:
            assert (code, "has no finite loss on" in err) == (3, True), err


@pytest.mark.parametrize("losses", [[[1.0] * 3] * 3, [[float("nan"), 1, 2], [3, 0.5, 1e40], [float("inf"), 1, 1]],
                                    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])  # fmt: skip
def test_pictures_of_flat_and_broken_surfaces(losses):
    assert surface_picture([-1, 0, 1], losses, "title").startswith(PNG)
