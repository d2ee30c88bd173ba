"""Hyper-parameters of generators: every family's own, the two scales, and what is in the metadata."""

import pytest

from stages.methods.params.ddpm import DdpmTraining
from stages.methods.params.synthesis import Synthesis
from stages.methods.params.vae import VaeTraining
from stages.registry import GENERATORS


def test_the_papers_numbers():
    paper = DdpmTraining(scale="paper")
    size, optimisation = paper.unet(), paper.optimisation()
    assert (size.base_width, size.multipliers, size.residual_blocks, size.dropout) == (64, (1, 2, 2, 2), 3, 0.1)
    assert (optimisation.learning_rate, optimisation.batch_size, optimisation.ema_decay) == (1e-4, 256, 0.9995)
    assert (paper.data_fraction, paper.timesteps) == (0.75, 1000)
    assert paper.num_steps(1000) == 500 * 4  # 500 epochs of ⌈1000/256⌉ steps
    assert VaeTraining(scale="paper").latent_size == 10


def test_steps_and_epochs_replace_each_other():
    assert DdpmTraining(scale="paper", steps=7).num_steps(10**6) == 7
    assert DdpmTraining(epochs=3, batch_size=10).num_steps(25) == 9
    assert DdpmTraining(steps=7).to_json().keys() & {"steps", "epochs"} == {"steps"}


@pytest.mark.parametrize(("fraction", "n", "expected"), [(0.75, 100, 75), (0.75, 1, 1), (0.01, 20, 1), (1.0, 9, 9)])
def test_the_share_of_the_data_is_rounded_and_never_nothing(fraction, n, expected):
    assert DdpmTraining(data_fraction=fraction).num_examples(n) == expected


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"family": "vae", "base_width": 16}, "--base-width goes with --family ddpm; found --family vae"),
        ({"family": "gan", "timesteps": 10}, "--timesteps goes with --family ddpm; found --family gan"),
        ({"beta": 1.0}, "--beta goes with --family vae; found --family ddpm"),
        (
            {"family": "ddpm", "latent_size": 3},
            "--latent-size goes with --family gan or merf or vae; found --family ddpm",
        ),
        ({"family": "vae", "r1": 0.1}, "--r1 goes with --family gan"),
        ({"noise_multiplicity": 4}, "--noise-multiplicity goes with --noise-multiplier or --target-epsilon"),
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
        ({"family": "flow"}, "--family must be one of ddpm, gan, merf, vae; found 'flow'"),
    ],
)
def test_a_wrong_parameter_is_named(values, said):
    with pytest.raises(ValueError, match=said):
        GENERATORS.from_mapping(values)


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
    def sampling(**values):
        made = Synthesis(count=1, **values)
        return made.sampler, made.sampling_steps

    assert sampling() == ("dpm-solver", 25)
    assert sampling(sampler="ddpm") == ("ddpm", 250)
    assert sampling(sampler="ddim", sampling_steps=7) == ("ddim", 7)
    assert sampling(family="gan") == (None, None)


def test_a_sampler_has_an_effect_with_families_that_have_one_only():
    with pytest.raises(ValueError, match="--sampler goes with a generator that draws in several steps"):
        Synthesis(family="gan", count=1, sampler="ddpm")
    assert Synthesis(family="gan", count=3).to_json() == {"count": 3, "labels": "frequency"}


def test_labels_follow_from_the_generators_privacy():
    assert Synthesis(count=1).labels == "frequency"
    assert Synthesis(count=1, private=True).labels == "uniform"
    with pytest.raises(ValueError, match="--labels frequency is refused"):
        Synthesis(count=1, private=True, labels="frequency")


def test_what_the_file_says_cannot_be_given():
    with pytest.raises(ValueError, match="unknown parameter 'family'"):
        Synthesis.from_mapping({"count": 1, "family": "gan"})
