"""Differentially private `train-generator`: what the command line refuses, before anything is charged."""

import pytest

from artifacts.formats import tensors_file

SMALL = ["--family", "vae", "--filters", 4, "--hidden-size", 16, "--batch-size", 8]
STEPS = [*SMALL, "--steps", 3]
DP = ["--noise-multiplier", 1, "--sampling-rate", 0.2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([*STEPS, *DP, "--target-epsilon", 3, "--delta", 1e-5], "--noise-multiplier and --target-epsilon exclude"),
        ([*STEPS, "--target-epsilon", 3, "--sampling-rate", 0.2], "--delta needs a value with --target-epsilon"),
        ([*STEPS, "--noise-multiplier", 1], "--sampling-rate needs a value"),
        ([*STEPS, "--target-epsilon", 3, "--delta", 1e-5], "--sampling-rate needs a value"),
        ([*STEPS, "--noise-multiplier", 1, "--sampling-rate", 0], "--sampling-rate must be above 0"),
        ([*STEPS, "--noise-multiplier", 1, "--sampling-rate", 1.01], "--sampling-rate must be above 0 and at most 1"),
        ([*STEPS, "--noise-multiplier", 1, "--sampling-rate", "nan"], "--sampling-rate"),
        ([*STEPS, "--noise-multiplier", 1, "--sampling-rate", 1e-13], "sampling_rate of a privacy event"),
        ([*STEPS, "--noise-multiplier", 0, "--sampling-rate", 0.2], "--noise-multiplier must be above 0"),
        ([*STEPS, "--noise-multiplier", "inf", "--sampling-rate", 0.2], "--noise-multiplier must be of type float"),
        ([*STEPS, "--noise-multiplier", 1e-4, "--sampling-rate", 0.2], "noise_multiplier of a privacy event"),
        ([*STEPS, *DP, "--clip-norm", 0], "--clip-norm must be above 0"),
        ([*STEPS, *DP, "--clip-norm", "inf"], "--clip-norm"),
        ([*STEPS, *DP, "--delta", 1], "--delta must be between 0 and 1"),
        ([*STEPS, *DP, "--noise-multiplicity", 0], "--noise-multiplicity must be at least 1"),
        ([*STEPS, *DP, "--keep-at", "3"], "--keep-at 3"),
        ([*STEPS, *DP, "--conditioning", "class-mean"], "--conditioning class-mean is refused"),
        ([*STEPS, *DP, "--scale", "paper"], "--conditioning class-mean is refused"),
        ([*SMALL, *DP, "--epochs", 2], "from epochs one could tell how many images"),
        (["--scale", "paper", *DP], "from epochs one could tell how many images"),
        ([*STEPS, "--target-epsilon", 1e-9, "--delta", 1e-9, "--sampling-rate", 1], "--target-epsilon: no noise"),
        ([*STEPS, "--delta", 1e-5], "--delta goes with --noise-multiplier or --target-epsilon"),
        ([*STEPS, "--sampling-rate", 0.5], "--sampling-rate goes with"),
        ([*STEPS, "--clip-norm", 1], "--clip-norm goes with --noise-multiplier"),
        ([*STEPS, "--noise-multiplicity", 2], "--noise-multiplicity goes with --noise-multiplier or --target-epsilon"),
    ],
)
def test_wrong_wishes(client, fedsynth, options, said, kinds_of):
    out = client.with_name("generator.safetensors")
    code, _, err = fedsynth("train-generator", client, *options, "-o", out)
    assert code == 2, err
    assert said in err
    assert not out.exists()
    assert kinds_of(client) == ["opened"], "nothing was charged"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda key: key.unlink(), "no key at"),
        (lambda key: key.chmod(0o640), "can be read by others (mode 0640)"),
        (lambda key: key.write_bytes(bytes(31)), "exactly 32 bytes, found 31 bytes"),
        (lambda key: key.write_bytes(bytes(33)), "more than 32 bytes"),
        (lambda key: key.write_bytes(bytes(32)), "the spend ledger of another key"),
    ],
)
def test_a_key_that_will_not_do(client, fedsynth, damage, said, kinds_of):
    out = client.with_name("generator.safetensors")
    damage(client.with_name("client.key"))
    code, _, err = fedsynth("train-generator", client, *STEPS, *DP, "-o", out)
    assert code == 3, err
    assert said in err
    assert not out.exists()
    assert kinds_of(client) == ["opened"]
    if "another" not in said:  # without noise no key is needed
        assert fedsynth("train-generator", client, *STEPS, "-o", out)[0] == 0


def test_whose_key(client, fedsynth, tmp_path, kinds_of):
    out = tmp_path / "generator.safetensors"
    code, _, err = fedsynth("train-generator", client, *STEPS, *DP, "--client", "00", "-o", out)
    assert code == 2
    assert "Give --key" in err
    options = ["--client", "00", "--key", client.with_name("client.key"), "-o", out]
    assert fedsynth("train-generator", client, *STEPS, *DP, *options)[0] == 0
    assert kinds_of(client) == ["opened", "reserved", "released"]


def test_a_target_becomes_its_noise(client, fedsynth_json):
    """The file holds the noise, not the wish: it says what was done."""
    out = client.with_name("generator.safetensors")
    options = ["--target-epsilon", 4, "--delta", 1e-5, "--sampling-rate", 0.3]
    summary = fedsynth_json("train-generator", client, *STEPS, *options, "-o", out)
    about = tensors_file.read(out).metadata
    assert summary["epsilon"]["pld"] <= 4
    assert about.privacy[0]["noise_multiplier"] == about.params["noise_multiplier"] == summary["noise_multiplier"]
    assert "target_epsilon" not in about.params
