"""Hyper-parameters of generators: every family's own, the two scales, and what stands in the metadata."""

import pytest

from stages.methods.params.generator import GeneratorTraining
from stages.methods.params.synthesis import Synthesis


def test_the_papers_numbers():
    paper = GeneratorTraining(scale="paper")
    size, optimisation = paper.unet(), paper.optimisation()
    assert (size.base_width, size.multipliers, size.residual_blocks, size.dropout) == (64, (1, 2, 2, 2), 3, 0.1)
    assert (optimisation.learning_rate, optimisation.batch_size, optimisation.ema_decay) == (1e-4, 256, 0.9995)
    assert (paper.data_fraction, paper.value("timesteps")) == (0.75, 1000)
    assert paper.num_steps(1000) == 500 * 4  # 500 epochs of ⌈1000/256⌉ steps
    assert GeneratorTraining(family="vae", scale="paper").value("latent_size") == 10


@pytest.mark.parametrize("family", ["ddpm", "vae", "gan"])
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_metadata_spell_out_every_default_and_read_back(family, scale):
    params = GeneratorTraining(family=family, scale=scale)
    told = params.to_json()
    again = GeneratorTraining.from_mapping(told)
    assert again.to_json() == told
    assert (again.num_steps(700), again.optimisation()) == (params.num_steps(700), params.optimisation())
    assert ("steps" in told) != ("epochs" in told)
    assert told.keys() >= {"batch_size", "learning_rate", "ema_decay", "data_fraction"}


def test_steps_and_epochs_replace_each_other():
    assert GeneratorTraining(scale="paper", steps=7).num_steps(10**6) == 7
    assert GeneratorTraining(epochs=3, batch_size=10).num_steps(25) == 9
    assert GeneratorTraining(steps=7).to_json().keys() & {"steps", "epochs"} == {"steps"}


@pytest.mark.parametrize(("fraction", "n", "expected"), [(0.75, 100, 75), (0.75, 1, 1), (0.01, 20, 1), (1.0, 9, 9)])
def test_the_share_of_the_data_is_rounded_and_never_nothing(fraction, n, expected):
    assert GeneratorTraining(data_fraction=fraction).num_examples(n) == expected


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"family": "vae", "base_width": 16}, r"--base-width must be absent with --family vae \(it belongs to ddpm\)"),
        ({"family": "gan", "timesteps": 10}, "--timesteps must be absent"),
        ({"beta": 1.0}, r"--beta must be absent with --family ddpm \(it belongs to vae\)"),
        ({"family": "ddpm", "latent_size": 3}, "belongs to vae and gan"),
        ({"family": "vae", "r1": 0.1}, r"it belongs to gan"),
        ({"epochs": 1, "steps": 1}, "--epochs and --steps exclude each other"),
        ({"steps": 0}, "--steps must be at least 1"),
        ({"data_fraction": 0}, "--data-fraction must be above 0"),
        ({"data_fraction": 1.5}, "--data-fraction"),
        ({"base_width": 12}, "--base-width must be a multiple of 8"),
        ({"multipliers": "1,x"}, "--multipliers must be 1 to 6 whole numbers"),
        ({"multipliers": "1,0"}, "--multipliers"),
        ({"multipliers": "1,1,1,1,1,1,1"}, "--multipliers"),
        ({"dropout": 1.0}, "--dropout"),
        ({"ema_decay": 1.0}, "--ema-decay"),
        ({"learning_rate": 0}, "--learning-rate"),
        ({"timesteps": 1}, "--timesteps"),
        ({"family": "vae", "beta": -1}, "--beta"),
        ({"family": "flow"}, "--family must be one of ddpm, vae, gan"),
    ],
)
def test_a_wrong_parameter_is_named(values, said):
    with pytest.raises(ValueError, match=said):
        GeneratorTraining(**values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"count": 0}, "--count must be from 1"),
        ({}, "--count must be given"),
        ({"count": 3, "labels": "given"}, "--label-list must be given with --labels given"),
        ({"count": 3, "label_list": "1"}, "--label-list must be given with --labels given, and only then"),
        ({"count": 3, "sampling_steps": 0}, "--sampling-steps"),
        ({"count": 3, "sampler": "euler"}, "--sampler must be one of"),
    ],
)
def test_a_wrong_wish_for_images_is_named(values, said):
    with pytest.raises(ValueError, match=said):
        Synthesis(**values)


def test_samplers_have_their_own_number_of_steps():
    assert Synthesis(count=1).sampling() == ("dpm-solver", 25)
    assert Synthesis(count=1, sampler="ddpm").sampling() == ("ddpm", 250)
    assert Synthesis(count=1, sampler="ddim", sampling_steps=7).sampling() == ("ddim", 7)
