"""Which of the ten measurements is meant, and options that belong to another one."""

import pytest


@pytest.mark.parametrize(
    ("form", "options", "said"),
    [
        ("model", ["--held-out", "x"], "--held-out goes with `evaluate SYNTHETIC REAL…`"),
        ("model", ["--target", "0.5"], "--target goes with `evaluate RUN…`"),
        ("model", ["--share", "0.5"], "--share goes with `evaluate RUN --heterogeneity`"),
        ("data", ["--curve", "x"], "--curve goes with `evaluate MODEL DATA`"),
        ("data", ["--batch-size", "5"], "--batch-size goes with `evaluate MODEL DATA`"),
        ("data", ["--picture", "x"], "--picture goes with `evaluate MODEL DATA` or `evaluate RUN…`"),
        ("run", ["--pairs", "x"], "--pairs goes with `evaluate SYNTHETIC REAL…`"),
        ("run", ["--round", "1"], "--round goes with `evaluate RUN --heterogeneity`"),
        ("run", ["--device", "cpu"], "--device goes with `evaluate MODEL DATA` or `evaluate RUN --heterogeneity`"),
        ("run", ["--heterogeneity", "--csv", "x"], "--csv goes with `evaluate RUN…`"),
        ("run", ["--surrogates", "--delta", "1e-5"], "--delta goes with `evaluate RUN…`"),
        ("run", ["--matching-steps", "3"], "--matching-steps goes with `evaluate MODEL DATA --matching SURROGATE`"),
        ("model", ["--sheet", "x"], "--sheet goes with `evaluate RUN --surrogates`"),
    ],
)
def test_an_option_of_another_form_is_refused(fedsynth, finished_run, tmp_path, form, options, said):
    first = {
        "model": finished_run / "public/model-0000.safetensors",
        "data": finished_run / "public/test.parquet",
        "run": finished_run,
    }[form]
    code, _, err = fedsynth("evaluate", first, finished_run / "public/test.parquet", *options, "-o", tmp_path / "x")
    assert code == 2
    assert said in err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["public/model-0000.safetensors"], "takes one model and one dataset, found 1 argument"),
        (["public/test.parquet"], "also takes the real images"),
        ([".", ".", "--heterogeneity"], "takes one run folder, found 2"),
        (["."] * 0, "Missing argument"),
    ],
)
def test_too_few_or_too_many_arguments(fedsynth, finished_run, tmp_path, arguments, said):
    words = [word if word.startswith("--") else finished_run / word for word in arguments]
    code, _, err = fedsynth("evaluate", *words, "-o", tmp_path / "x")
    assert (code, said in err) == (2, True), err


def test_a_model_is_evaluated_as_ever(fedsynth_json, finished_run, tmp_path):
    model, data = finished_run / "server/outbox/model-0002.safetensors", finished_run / "public/test.parquet"
    found = fedsynth_json("evaluate", model, data, "-o", tmp_path / "a.json", "--batch-size", "7", "--device", "cpu")
    assert found["accuracy"] > 0.5
    assert found["round"] == 2


def test_a_dataset_where_a_model_belongs(fedsynth, finished_run, tmp_path):
    """A message is no model, and a model is no dataset: the file at fault is named."""
    message, data = finished_run / "clients/00/outbox/message-0001.safetensors", finished_run / "public/test.parquet"
    model = finished_run / "public/model-0000.safetensors"
    for first, second, said in (
        (message, data, "it is a message, but a model is needed"),
        (data, model, "model-0000.safetensors is not a whole fedsynth artifact"),
        (model, model, "model-0000.safetensors is not a whole fedsynth artifact"),
    ):
        code, _, err = fedsynth("evaluate", first, second, "-o", tmp_path / "x")
        assert (code, said in err) == (3, True), err


def test_help_has_an_example_of_each_form(fedsynth):
    _, out, _ = fedsynth("evaluate", "--help")
    text = " ".join(out.split())
    assert text.count("Example: fedsynth evaluate") == 13
