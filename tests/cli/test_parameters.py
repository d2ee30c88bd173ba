"""Where parameters come from: flag, params file, preset, default; and how a wrong one is told."""

import pytest

from artifacts.formats import tensors_file


@pytest.fixture
def train(fedsynth, finished_run, tmp_path):
    """Train client 00 with the given options; returns the update's recorded params."""
    out = tmp_path / "client" / "private" / "update.safetensors"

    def call(*options):
        code, _, err = fedsynth(
            "train-client",
            finished_run / "public/model-0000.safetensors",
            finished_run / "clients/00/private/data.parquet",
            *options,
            "--force",
            "-o",
            out,
        )
        return tensors_file.read(out).metadata.params if code == 0 else (code, err)

    return call


def test_precedence_is_flag_then_file_then_preset_then_default(train, tmp_path):
    params = tmp_path / "params.yaml"
    params.write_text("train-client:\n  learning-rate: 0.5\n  batch_size: 8\n")
    assert train()["batch_size"] == 32
    by_preset = train("--preset", "fedavg")
    assert (by_preset["batch_size"], by_preset["learning_rate"], by_preset["local_epochs"]) == (16, 0.1, 5)
    by_file = train("--preset", "fedavg", "--params", params)
    assert (by_file["batch_size"], by_file["learning_rate"], by_file["local_epochs"]) == (8, 0.5, 5)
    by_flag = train("--preset", "fedavg", "--params", params, "--batch-size", "4")
    assert (by_flag["batch_size"], by_flag["learning_rate"], by_flag["local_epochs"]) == (4, 0.5, 5)
    assert train("--preset", "fedavg/paper")["batch_size"] == 10


def test_toml_is_read_as_yaml_is(train, tmp_path):
    params = tmp_path / "params.toml"
    params.write_text('[train-client]\nalgorithm = "fedprox"\nmu = 0.5\n')
    assert train("--params", params)["mu"] == 0.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train-client: {learning_rat: 1}", "unknown parameter 'learning_rat'"),
        ("train-client: {learning_rate: -1}", "--learning-rate must be above 0, found -1"),
        ("train-client: 3", "must be a mapping"),
    ],
)
def test_a_wrong_params_file_is_a_usage_error(train, tmp_path, text, said):
    params = tmp_path / "params.yaml"
    params.write_text(text)
    code, err = train("--params", params)
    assert code == 2
    assert said in err


@pytest.mark.parametrize("text", ["[1, 2", "!!python/object/apply:os.system ['touch pwned']", "- 1"])
def test_a_params_file_that_does_not_parse_is_an_input_error_and_runs_nothing(train, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    params = tmp_path / "params.yaml"
    params.write_text(text)
    code, err = train("--params", params)
    assert code == 3
    assert str(params) in err
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--mu", "0.1"], "goes with --algorithm fedprox"),
        (["--batch-size", "0"], "--batch-size must be at least 1, found 0"),
        (["--batch-size", "many"], "'many' is not a valid int"),
        (["--algorithm", "fedfoo"], "fedfoo"),
        (["--preset", "nonesuch"], "no recipe 'nonesuch'. Give the name of one"),
        (["--preset", "fedavg/nonesuch"], "no preset 'nonesuch'"),
        (["--nonsense"], "No such option"),
        (["--client", "a/b"], "client name 'a/b' is not allowed"),
        (["--device", "cuda"], "no such device here"),
    ],
)
def test_a_wrong_option_exits_2_and_says_why(train, options, said):
    code, err = train(*options)
    assert code == 2
    assert said.lower() in err.lower()
    assert "Traceback" not in err
