"""`evaluate --attack suite`: on a file that gives its images away, on another client's, on a synthetic set."""

import json
from hashlib import sha256

import numpy as np
import pytest
import yaml
from scipy.stats import binomtest

from fedsynth_cli.app import run as run_command_line


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Two clients with two digits each; one step of a small network on the first one's, and what both send."""
    run = tmp_path_factory.mktemp("suite") / "run"
    model, test = run / "public/model-0000.safetensors", run / "public/test.parquet"
    commands = [
        ["partition", "digits", "--clients", "2", "--test-fraction", "0.9978", "-o", run],
        ["init-model", "--arch", "mlp", "--width", "64", "--like", test, "-o", model],
    ]
    for client in ("00", "01"):
        mine = run / "clients" / client
        update, message = mine / "private/update-0001.safetensors", mine / "outbox/message-0001.safetensors"
        data = mine / "private/data.parquet"
        commands += [
            ["train-client", model, data, "--algorithm", "fedsgd", "-o", update],
            ["encode", model, update, "-o", message],
        ]
    for words in commands:
        assert run_command_line([*map(str, words), "--quiet"]) == 0
    return run


def suite(fedsynth_json, run, out, *files, options=()):
    known = ["--against", run / "clients/00/private/data.parquet", "--held-out", run / "public/test.parquet"]
    few = ["--restarts", "1", "--attack-steps", "200", "--total-variation", "1e-5", "--shadow-models", "0"]
    found = fedsynth_json(
        "evaluate",
        run / "public/model-0000.safetensors",
        *files,
        "--attack",
        "suite",
        *known,
        *few,
        *options,
        "-o",
        out,
    )
    assert json.loads(out.read_text()) == {key: value for key, value in found.items() if key != "out"}
    return {(row["file"].split("clients/")[-1], row["attack"]): row for row in found["rows"]}, found


def test_a_file_that_gives_its_images_away_and_another_clients(fedsynth_json, known, tmp_path):
    files = [known / f"clients/{client}/outbox/message-0001.safetensors" for client in ("00", "01")]
    rows, found = suite(fedsynth_json, known, tmp_path / "a.json", *files)
    mine, other = (f"{client}/outbox/message-0001.safetensors" for client in ("00", "01"))
    # Units that answer to one image alone have it exactly: 100 dB is a copy.
    assert rows[mine, "inputs of the first layer"]["identified"] == 2
    assert rows[mine, "inputs of the first layer"]["psnr_best"] > 50
    assert rows[mine, "inverting gradients"]["identified"] == 2
    assert rows[mine, "label counts"]["wrong"] < 0.1 < rows[mine, "label counts"]["wrong_by_guess"]
    linked = rows[mine, "linkability"]
    assert linked["auc"] > 0.99 and linked["identified"] >= 1 and linked["tpr"] == linked["identified"] / 2
    exact = binomtest(linked["identified"], 2).proportion_ci(0.95, "exact")
    assert linked["tpr_interval"] == pytest.approx([exact.low, exact.high], rel=1e-4)
    assert linked["fpr"] <= 0.001
    # Somebody else's update gives away somebody else's images.
    assert rows[other, "inputs of the first layer"]["identified"] == 0
    assert rows[other, "linkability"]["identified"] == 0
    best = {row["file"].split("clients/")[-1]: row for row in found["best"]}
    assert best[mine]["identified"] == 2 and best[other]["identified"] <= 1
    for path, name in zip(files, (mine, other), strict=True):
        assert rows[name, "linkability"]["sha256"] == sha256(path.read_bytes()).hexdigest()
    assert found["custody"] == "private"


def test_local_steps_are_unrolled_and_shadow_models_attack_the_model(fedsynth_json, known, tmp_path):
    rows, found = suite(
        fedsynth_json, known, tmp_path / "a.json", known / "clients/00/private/update-0001.safetensors",
        options=["--local-steps", "2", "--shadow-models", "2", "--shadow-steps", "3", "--attack-steps", "2"],
    )  # fmt: skip
    attacks = [name for _, name in rows]
    assert "inverting gradients, unrolled" in attacks and "LiRA, 2 shadow models" in attacks
    model = next(row for (_, name), row in rows.items() if name.startswith("LiRA"))
    assert model["file"].endswith("model-0000.safetensors") and 0 <= model["auc"] <= 1
    assert [row["file"] for row in found["best"]][-1] == model["file"]


def test_sacro_ml_gets_the_models_probabilities(fedsynth, fedsynth_json, known, tmp_path):
    message, folder = known / "clients/00/outbox/message-0001.safetensors", tmp_path / "sacro"
    options = ["--attack-steps", "1", "--sacro", folder]
    suite(fedsynth_json, known, tmp_path / "a.json", message, options=options)
    target = yaml.safe_load((folder / "target.yaml").read_text())
    sides = {"train": known / "clients/00/private/data.parquet", "test": known / "public/test.parquet"}
    right = {}
    for side, data in sides.items():
        found, labels = (np.loadtxt(folder / target[f"{name}_{side}_path"], delimiter=",") for name in ("proba", "y"))
        assert found.sum(1) == pytest.approx(np.ones(len(labels)))
        right[side] = (found.argmax(1) == labels).mean()
        model = known / "public/model-0000.safetensors"
        stated = fedsynth_json("evaluate", model, data, "-o", tmp_path / f"{side}.json")
        assert right[side] == pytest.approx(stated["accuracy"], abs=1e-6)
    assert target["generalisation_gap"] == pytest.approx(right["train"] - right["test"])
    assert (folder / "proba_train.csv").stat().st_mode & 0o077 == 0
    assert {path.suffix for path in folder.iterdir()} == {".csv", ".yaml"}, "no pickle"


def test_a_synthetic_set_that_is_a_copy_and_one_of_noise(fedsynth_json, known, dataset, tmp_path):
    from stages.data.dataset_images import load_dataset

    private = load_dataset(known / "clients/00/private/data.parquet").content
    names = [str(digit) for digit in range(10)]
    noise = np.random.default_rng(0).integers(0, 256, private.images.shape, np.uint8)
    copied = dataset("copied", private.images, labels=private.labels, classes=names)
    random = dataset("random", noise, labels=private.labels, classes=names)
    rows, _ = suite(fedsynth_json, known, tmp_path / "a.json", copied, random)
    by = {(file.rpartition("/")[2], attack): row for (file, attack), row in rows.items()}
    assert by[copied.name, "membership by distance"]["identified"] == 2
    assert by[copied.name, "its own images"]["psnr"] == 100
    assert by[random.name, "membership by distance"]["identified"] == 0


def test_it_needs_images_that_nobody_has_and_says_so(fedsynth, known, tmp_path):
    words = [known / "public/model-0000.safetensors", known / "clients/00/outbox/message-0001.safetensors"]
    words += ["--attack", "suite", "--against", known / "clients/00/private/data.parquet", "-o", tmp_path / "a.json"]
    code, _, err = fedsynth("evaluate", *words)
    assert (code, "--attack suite needs --held-out" in err) == (2, True)
    code, _, err = fedsynth(
        "evaluate", *words, "--held-out", known / "public/test.parquet", "--picture", tmp_path / "p.png"
    )
    assert (code, "--picture goes with --attack inverting-gradients" in err) == (2, True)
    code, _, err = fedsynth(
        "evaluate", *words[:-1], known / "public/a.json", "--held-out", known / "public/test.parquet"
    )
    assert code == 2 and "may not be in" in err
