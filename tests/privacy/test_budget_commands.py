"""Budgets on the command line: what they forbid is refused before an image is looked at."""

import json

import numpy as np
import pytest

from artifacts.formats import dataset_file
from artifacts.ledgers import spend
from artifacts.metadata import Metadata
from stages.data.dataset_images import dataset_params, save_dataset
from stages.data.images import LabelledImages
from stages.privacy.accountant import calibrated, epsilon, planned
from stages.words import epsilon_words

DELTA = 1e-5
RATE, SIGMA, STEPS = 0.2, 1.0, 3


def alone(steps=STEPS, sigma=SIGMA, rate=RATE):
    """Both figures of so many steps, from the accountant itself."""
    return epsilon([planned(sampling_rate=rate, noise_multiplier=sigma, steps=steps)], delta=DELTA)


TRAIN = ["--family", "vae", "--filters", 4, "--hidden-size", 16, "--batch-size", 8, "--steps", STEPS, "--seed", 5,
         "--noise-multiplier", SIGMA, "--sampling-rate", RATE]  # fmt: skip


@pytest.fixture
def data(key):
    """Twelve images, none of which is a PNG: whoever looks at them says so."""
    pixels = np.zeros((12, 1, 8, 8), np.uint8)
    content = LabelledImages(pixels, np.arange(12) % 3, ("a", "b", "c"))
    metadata = Metadata(
        kind="dataset", stage="partition", custody="private", client="00", params=dataset_params(content), versions={}
    )
    path = key.with_name("data.parquet")
    save_dataset(path, content, metadata)
    dataset_file.write(path.with_name("damaged.parquet"), [b"no image"] * 12, content.labels, metadata)
    return path


def files_of(key):
    return {path: path.read_bytes() for path in key.parents[1].rglob("*") if path.is_file()}


def write_budget(key, text):
    key.with_name("budget.yaml").write_text(text)


def budget_text(limit, unit="record"):
    return f"epsilon: {limit}\ndelta: 1e-5\nunit: {unit}\n"


def test_the_budget_refuses_before_the_data_is_read(fedsynth, key, data, charged):
    damaged, out = data.with_name("damaged.parquet"), data.with_name("generator.safetensors")
    write_budget(key, budget_text(alone().pld / 2))
    before = files_of(key)
    code, _, err = fedsynth("train-generator", damaged, *TRAIN, "-o", out)
    assert code == 4, err
    assert f"0.000 is spent, and it would become {alone().pld:.3f}" in err
    assert "Nothing was read" in err
    assert files_of(key) == before
    # With a budget that allows it, it trains: an image that cannot be decoded is black, without a word (rule 11).
    write_budget(key, budget_text(alone().pld + 1e-6))
    assert fedsynth("train-generator", damaged, *TRAIN, "-q", "-o", out) == (0, "", "")
    assert charged(key) == [[STEPS]]


def test_within_the_budget_it_trains_and_the_rest_is_refused(fedsynth, fedsynth_json, key, data, charged):
    write_budget(key, budget_text(alone().pld + 1e-6))
    first, second = data.with_name("first.safetensors"), data.with_name("second.safetensors")
    fedsynth_json("train-generator", data, *TRAIN, "-o", first)
    code, _, err = fedsynth("train-generator", data, *TRAIN, "--learning-rate", 0.01, "-o", second)
    assert code == 4
    assert f"{alone().pld:.3f} is spent" in err
    assert not second.exists()
    fedsynth_json("train-generator", data, *TRAIN, "-o", second)
    assert first.read_bytes() == second.read_bytes(), "the same again is free"
    assert charged(key) == [[STEPS]]


def test_a_target_that_is_the_budget_fits(fedsynth_json, key, data):
    write_budget(key, budget_text(3.0))
    options = [*TRAIN[:-4], "--target-epsilon", 3.0, "--delta", DELTA, "--sampling-rate", RATE]
    summary = fedsynth_json("train-generator", data, *options, "-o", data.with_name("generator.safetensors"))
    sigma = calibrated(3.0, delta=DELTA, sampling_rate=RATE, steps=STEPS)
    assert summary["noise_multiplier"] == sigma
    assert summary["epsilon"] == {"pld": alone(sigma=sigma).pld, "rdp": alone(sigma=sigma).rdp}


def test_a_budget_for_clients_refuses_protection_of_records(fedsynth, key, data, charged):
    write_budget(key, budget_text(1000, unit="client"))
    code, _, err = fedsynth("train-generator", data, *TRAIN, "-o", data.with_name("generator.safetensors"))
    assert code == 4
    assert "per client" in err
    assert "would become inf" in err
    assert charged(key) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epsilon: [1", "does not parse"),
        ("- epsilon", "mapping"),
        ("", "mapping"),
        ("epsilon: 1\ndelta: 1e-5\nunit: record\nnotes: x", "unknown key 'notes'"),
        ("epsilon: 1\ndelta: 1e-5", "no 'unit'"),
        ("epsilon: none\ndelta: 1e-5\nunit: record", "epsilon must be a number"),
        ("epsilon: .inf\ndelta: 1e-5\nunit: record", "epsilon"),
        ("epsilon: -1\ndelta: 1e-5\nunit: record", "epsilon"),
        ("epsilon: 1\ndelta: 2\nunit: record", "delta"),
        ("epsilon: 1\ndelta: 1e-5\nunit: household", "unit"),
    ],
)
def test_a_budget_that_cannot_be_read_stops_everything(fedsynth, key, data, text, said):
    write_budget(key, text)
    before = files_of(key)
    code, _, err = fedsynth("train-generator", data, *TRAIN, "-o", data.with_name("generator.safetensors"))
    assert code == 3, err
    assert "budget" in err
    assert said in err
    assert files_of(key) == before


@pytest.mark.parametrize("kind", ["folder", "link to nowhere", "bytes"])
def test_something_else_in_the_budgets_place_is_not_taken_for_none(fedsynth, key, data, kind, charged):
    path = key.with_name("budget.yaml")
    if kind == "folder":
        path.mkdir()
    elif kind == "bytes":
        path.write_bytes(b"\xff\xfe\x00")
    else:
        path.symlink_to(key.with_name("gone.yaml"))
    code, _, err = fedsynth("train-generator", data, *TRAIN, "-o", data.with_name("generator.safetensors"))
    assert code == 3, err
    assert "budget.yaml" in err
    assert charged(key) == []


def test_a_damaged_ledger_is_exit_code_five(fedsynth, key, data):
    book = spend.beside(key)
    line = json.loads(book.read_text())
    book.write_text(json.dumps(line | {"key": "cd" * 32}) + "\n")
    code, _, err = fedsynth("train-generator", data, *TRAIN, "-o", data.with_name("generator.safetensors"))
    assert code == 5
    assert "spend.jsonl, line 1" in err
    assert not data.with_name("generator.safetensors").exists()


def test_a_deleted_ledger_is_refused(fedsynth, key, data):
    spend.beside(key).unlink()
    code, _, err = fedsynth("train-generator", data, *TRAIN, "-o", data.with_name("generator.safetensors"))
    assert code == 3
    assert "what was spent before cannot be known" in err
    assert not spend.beside(key).exists()


def test_a_published_plan(fedsynth_json):
    """Twenty thousand steps at a fortieth: ε = 10 at δ = 1e-5 takes σ = 1.906."""
    found = fedsynth_json(
        "account", "plan", "--sampling-rate", 1 / 40, "--steps", 20_000, "--delta", 1e-5, "--noise-multiplier", 1.906
    )
    assert found["epsilon"]["pld"] == pytest.approx(10, abs=0.02)


def test_with_a_budget_nothing_leaves_without_noise(tmp_path, fedsynth, fedsynth_json):
    """An update as it is costs ∞, whatever is left; the same commands go through once the budget is gone."""
    run = tmp_path / "run"
    fedsynth_json("partition", "digits", "--clients", 2, "-o", run)
    model, mine = run / "public" / "model-0000.safetensors", run / "clients" / "00"
    fedsynth_json("init-model", "--arch", "softmax", "--like", run / "public" / "test.parquet", "-o", model)
    update, message = mine / "private" / "update-0001.safetensors", mine / "outbox" / "message-0001.safetensors"
    fedsynth_json("train-client", model, mine / "private" / "data.parquet", "-o", update)
    budget = mine / "private" / "budget.yaml"
    budget.write_text("epsilon: 1000\ndelta: 1e-5\nunit: record\n")
    code, _, err = fedsynth("encode", model, update, "-o", message)
    assert code == 4 and "tell update without noise" in err and "No file was written." in err
    assert not message.exists() and not (mine / "egress.jsonl").exists()
    budget.unlink()
    fedsynth_json("encode", model, update, "-o", message)


def test_after_a_training_it_says_what_is_spent_and_left(fedsynth, fedsynth_json, key, data):
    limit = 3 * alone().pld
    write_budget(key, budget_text(limit))
    code, out, _ = fedsynth("train-generator", data, *TRAIN, "-o", data.with_name("generator.safetensors"))
    assert code == 0
    said = dict(line.split("  ", 1) for line in out.splitlines())
    said = {name: value.strip() for name, value in said.items()}
    spent = epsilon_words(alone().pld)
    assert (said["epsilon"], said["epsilon in all"]) == (spent, f"{spent} per record")
    assert said["budget left"] == f"{int(1000 * (limit - alone().pld)) / 1000:.3f}"
    shown = fedsynth_json("budget", "show", data)
    assert [(one["stage"], one["epsilon"]) for one in shown["charges"]] == [("train-generator", spent)]
    assert shown["budget_left"] == said["budget left"] and "q 0.2" in shown["charges"][0]["mechanism"]


def test_without_a_budget_a_delta_is_needed(fedsynth, fedsynth_json, key, data):
    code, _, err = fedsynth("budget", "show", key.parent)
    assert code == 2 and "--delta" in err
    assert fedsynth_json("budget", "show", key.parent.parent, "--delta", "1e-5")["epsilon_in_all"] == "0"
    out = data.with_name("generator.safetensors")
    stated = fedsynth_json("train-generator", data, *TRAIN, "-o", out)
    assert "no δ was given" in stated["epsilon"]
    shown = fedsynth_json("budget", "show", key.parent, "--delta", "1e-5")
    assert shown["epsilon_in_all"] == f"{epsilon_words(alone().pld)} per record"
    write_budget(key, budget_text(1.0))
    assert fedsynth("budget", "show", key.parent, "--delta", "1e-6")[0] == 2
    assert fedsynth("budget", "show", key.parents[2], "--delta", "1e-6")[0] == 3


def test_a_refusal_explains_its_numbers(fedsynth, key, data):
    write_budget(key, budget_text(1.5 * alone().pld))
    assert fedsynth("train-generator", data, *TRAIN, "-q", "-o", data.with_name("a.safetensors"))[0] == 0
    again = [*TRAIN, "--delta", "1e-3", "--batch-size", "9"]
    code, _, err = fedsynth("train-generator", data, *again, "-o", data.with_name("b.safetensors"))
    assert code == 4
    assert f"Alone it costs {alone().pld:.3f} (σ 1, q 0.2, 3 steps), at the budget's δ, whatever --delta says" in err
    assert "added up at one Rényi order" in err and "fedsynth budget show" in err
