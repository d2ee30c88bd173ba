"""`evaluate --attack`: a softmax model gives its image away, a file that tells nothing does not; refusals."""

import json

import numpy as np
import pytest

from artifacts.formats import tensors_file
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from fedsynth_cli.app import run as run_command_line
from stages.registry import ENCODERS

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="session")
def attacked(tmp_path_factory):
    """A client with two digits, one step of a softmax model on them, and what it sends; a client without any step."""
    run = tmp_path_factory.mktemp("attack") / "run"
    mine = run / "clients/00"
    files = {
        "model": run / "public/model-0000.safetensors",
        "data": mine / "private/data.parquet",
        "test": run / "public/test.parquet",
        "update": mine / "private/update-0001.safetensors",
        "message": mine / "outbox/message-0001.safetensors",
        "proxy": mine / "outbox/proxy-0001.safetensors",
        "other_data": run / "clients/01/private/data.parquet",
    }
    model, data, test, update, message, proxy, _ = files.values()
    for words in (
        ["partition", "digits", "--clients", "2", "--test-fraction", "0.9978", "-o", run],
        ["init-model", "--arch", "softmax", "--like", test, "-o", model],
        ["train-client", model, data, "--algorithm", "fedsgd", "-o", update],
        ["encode", model, update, "-o", message],
        ["encode", model, update, "--method", "tofu", "--images", "4", "--iterations", "20", "-o", proxy],
    ):
        assert run_command_line([*map(str, words), "--quiet"]) == 0
    return files


def attack(fedsynth_json, files, out, *names, options=()):
    known = [files.get(name, name) for name in names]
    return fedsynth_json(
        "evaluate", files["model"], *known, "--attack", "inverting-gradients", "--against", files["data"], "-o", out,
        "--restarts", "1", *options,
    )  # fmt: skip


def test_the_update_tells_its_images_and_the_message_the_same(fedsynth_json, attacked, tmp_path):
    words = ["--attack-steps", "300", "--total-variation", "1e-5", "--held-out", attacked["test"], "--labels", "known"]
    found = attack(fedsynth_json, attacked, tmp_path / "a.json", "update", "message", options=words)
    written = json.loads((tmp_path / "a.json").read_text())
    assert written == {key: value for key, value in found.items() if key != "out"}
    assert (written["custody"], written["labels"], written["images"]) == ("private", "known", 2)
    raw, sent = written["files"]
    assert (raw["kind"], sent["kind"], sent["cosine_to_first"]) == ("update", "message", pytest.approx(1))
    assert {key: raw[key] for key in ("psnr", "mse", "ssim")} == {key: sent[key] for key in ("psnr", "mse", "ssim")}
    assert raw["attack_cosine"] > 0.99
    assert raw["identified"] == 2
    assert raw["psnr"] > written["yardsticks"]["class_means"]["psnr"] + 5
    assert raw["psnr"] == pytest.approx(np.mean([pair["psnr"] for pair in raw["pairs"]]), rel=1e-4)
    assert sorted(pair["private_row"] for pair in raw["pairs"]) == [0, 1]
    order = [written["yardsticks"][name]["psnr"] for name in ("noise", "other_images", "class_means")]
    assert order == sorted(order)


def test_a_proxy_of_nothing_is_no_better_than_the_yardstick(fedsynth_json, attacked, tmp_path):
    """Random images and residuals: its update has nothing to do with the client."""
    start = tensors_file.read(attacked["model"])
    about = Metadata(
        kind="proxy", stage="encode", method="tofu", custody="outbound", client="00", round=1, versions={},
        params=ENCODERS.from_mapping({"method": "tofu", "images": 8}).to_json(),
        inputs=(lineage.by_digest(start, "model"),),
    )  # fmt: skip
    path = tmp_path / "00/outbox/proxy.safetensors"
    path.parent.mkdir(parents=True)
    random = np.random.default_rng(0)
    tensors = {
        "images": random.normal(size=(8, 1, 8, 8)),
        "residuals": random.normal(size=(8, 10)),
        "scales": np.ones(2),
    }
    tensors_file.write(path, {name: tensor.astype(np.float32) for name, tensor in tensors.items()}, about)
    words = ["--attack-steps", "100", "--held-out", attacked["test"]]
    found = attack(fedsynth_json, attacked, tmp_path / "a.json", "update", path, options=words)
    stated = found["files"][1]
    assert abs(stated["cosine_to_first"]) < 0.3
    assert stated["psnr"] < found["yardsticks"]["other_images"]["psnr"]
    assert (stated["identified"], stated["own_images"]["identified"]) == (0, 0)
    assert stated["psnr"] < found["files"][0]["psnr"] - 3


def test_the_table_the_picture_and_soft_labels(fedsynth, attacked, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out, picture = tmp_path / "a.json", tmp_path / "a.png"
    code, shown, err = fedsynth(
        "evaluate", attacked["model"], attacked["message"], attacked["proxy"], "--attack", "inverting-gradients",
        "--against", attacked["data"], "--held-out", attacked["test"], "--images", "10", "--attack-steps", "3",
        "--restarts", "2", "--seed", "5", "-o", out, "--picture", picture,
    )  # fmt: skip
    assert code == 0, err
    assert max(map(len, shown.splitlines())) <= 80
    for said in ("10 images looked for, labels optimised with the images", "its own images", "of 1,793 others"):
        assert said in " ".join(shown.split())
    assert picture.read_bytes().startswith(PNG)
    written = json.loads(out.read_text())
    assert (written["seed"], written["restarts"], written["labels"]) == (5, 2, "optimised with the images")
    assert [len(stated["pairs"]) for stated in written["files"]] == [2, 2]  # of ten images, those beside a private one
    assert written["files"][1]["own_images"]["images"] == 4


def test_the_same_seed_gives_the_same_and_without_held_out_noise_is_the_yardstick(fedsynth_json, attacked, tmp_path):
    found = [
        attack(fedsynth_json, attacked, tmp_path / f"{number}", "update",
               options=["--attack-steps", "5", "--seed", seed])["files"][0]
        for number, seed in enumerate("001")
    ]  # fmt: skip
    assert found[0] == found[1] != found[2]
    assert "identified" not in found[0]
    assert list(json.loads((tmp_path / "0").read_text())["yardsticks"]) == ["noise"]


def test_images_of_another_client_are_said(fedsynth_json, attacked, tmp_path):
    files = {**attacked, "data": attacked["other_data"]}
    found = attack(fedsynth_json, files, tmp_path / "a.json", "update", options=["--attack-steps", "1"])
    assert "The images are of client 01, some of the files are not." in found["note"]


def test_refusals(fedsynth, attacked, finished_run, tmp_path):
    model, data, test, update, message, *_ = attacked.values()
    out = tmp_path / "a.json"
    how, against = ["--attack", "inverting-gradients"], ["--against", data]
    other, foreign = finished_run / "public/model-0000.safetensors", finished_run / "clients/00"
    small = finished_run / "clients/00/private/data.parquet"
    cases = [
        ([other, update, *how, *against], 3, "is for another model than"),
        ([model, foreign / "outbox/message-0001.safetensors", *how, *against], 3, "is for another model than"),
        ([model, foreign / "private/update-0001.safetensors", *how, *against], 3, "is for another model than"),
        ([model, model, *how, *against], 3, "is a model; a message, update, proxy, residuals or compressed is needed"),
        ([model, tmp_path / "nowhere", *how, *against], 3, "nowhere"),
        ([model, update, *how], 2, "needs --against"),
        ([model, *how, *against], 2, "takes a model and updates, messages or proxies, found 1 argument"),
        ([model, update, *how, "--against", model], 3, "is not a whole fedsynth artifact"),
        ([model, update, *how, *against, "--labels", "known", "--images", "3"], 2, "3 images are looked for, but"),
        ([model, update, *how, *against, "--total-variation", "nan"], 2, "--total-variation is a number from 0"),
        ([model, update, *how, *against, "--held-out", data, "--images", "3"], 3, "to compare with, 3 are needed"),
        ([model, update, *how, *against, "--span", "2"], 2, "--span goes with"),
        ([model, test, *against], 2, "--against goes with `evaluate MODEL FILE… --attack inverting-gradients|suite`"),
        ([model, update, "--attack", "guessing", *against], 2, "inverting-gradients"),
        ([model, update, *how, *against, "--matching", small], 2, "are two measurements"),
    ]
    for arguments, wanted, said in cases:
        code, _, err = fedsynth("evaluate", *arguments, "-o", out)
        assert (code, said in " ".join(err.split())) == (wanted, True), err
        assert not out.exists()
    for folder in ("outbox", "public", "metrics"):
        place = tmp_path / folder / "x"
        for words in (["-o", place], ["-o", out, "--picture", place]):
            code, _, err = fedsynth("evaluate", model, message, *how, *against, *words)
            assert (code, "may not be in" in err) == (2, True), err


def test_private_images_must_be_there(fedsynth, attacked, dataset, tmp_path):
    empty = dataset("empty", np.zeros((0, 1, 8, 8)), classes=[str(digit) for digit in range(10)])
    wrong = dataset("wrong", np.zeros((2, 1, 9, 8)), classes=[str(digit) for digit in range(10)])
    for path, said in ((empty, "holds no images"), (wrong, "does not fit the model")):
        code, _, err = fedsynth(
            "evaluate", attacked["model"], attacked["update"], "--attack", "inverting-gradients", "--against", path,
            "-o", tmp_path / "x",
        )  # fmt: skip
        assert (code, said in err) == (3, True), err


def test_an_update_that_points_nowhere(fedsynth, attacked, tmp_path):
    start = tensors_file.read(attacked["model"])
    about = Metadata(
        kind="update", stage="train-client", method="fedavg", custody="private", client="00", round=1, versions={},
        inputs=(lineage.by_digest(start, "model"),),
    )  # fmt: skip
    path = tmp_path / "zero.safetensors"
    tensors_file.write(path, {name: np.zeros_like(tensor) for name, tensor in start.tensors.items()}, about)
    code, _, err = fedsynth(
        "evaluate", attacked["model"], path, "--attack", "inverting-gradients", "--against", attacked["data"],
        "-o", tmp_path / "x",
    )  # fmt: skip
    assert (code, "points nowhere" in err) == (3, True), err
