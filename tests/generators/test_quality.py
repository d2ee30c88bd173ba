"""Whether the images are any good: a classifier that knows real digits recognises what was asked for."""

import numpy as np
import pytest
from sklearn.svm import SVC

from stages.data.dataset_images import load_dataset
from stages.methods.params.synthesis import Synthesis
from stages.registry import GENERATORS
from stages.synthesize import synthesize
from stages.train_generator import train_generator

TRAINED_ON = 300


@pytest.fixture(scope="module")
def recognised(tmp_path_factory, digits, make_client):
    """The share of synthetic digits that a classifier of real ones, which the generator never saw, takes for theirs."""
    order = np.random.default_rng(0).permutation(len(digits))
    data = make_client(tmp_path_factory.mktemp("quality"), digits.take(order[:TRAINED_ON]))
    judge = SVC().fit(digits.images[order[TRAINED_ON:]].reshape(-1, 64) / 255, digits.labels[order[TRAINED_ON:]])

    def share(count=100, **values):
        generator, out = data.with_name("generator.safetensors"), data.with_name("synthetic.parquet")
        params = GENERATORS.from_mapping({"data_fraction": 1.0, **values})
        train_generator([data], generator, params=params, seed=0, force=True)
        synthesize(
            generator, out, params=Synthesis(family=params.family, count=count, labels="uniform"), seed=0, force=True
        )
        made = load_dataset(out).content
        return float((judge.predict(made.images.reshape(-1, 64) / 255) == made.labels).mean())

    return share


@pytest.mark.slow
def test_a_short_diffusion_training_makes_recognisable_digits(recognised):
    assert recognised(steps=150) >= 0.6


def test_an_untrained_generator_does_not(recognised):
    """The test above can fail: chance is one in ten."""
    assert recognised(family="vae", steps=1) <= 0.35


@pytest.mark.slow
@pytest.mark.parametrize(("family", "least"), [("ddpm", 0.8), ("vae", 0.9), ("gan", 0.85), ("merf", 0.75)])
def test_the_small_scale_of_each_family(recognised, family, least):
    assert recognised(count=300, family=family) >= least
