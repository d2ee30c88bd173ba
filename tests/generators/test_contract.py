"""What every family of generators keeps to. A family that registers itself is tested here without another word."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from stages.methods.draws import drawn
from stages.methods.generator_training import MeanMatching, batch_gradients, first_state, train
from stages.methods.private_gradients import example_loss
from stages.nets.generator_params import ImageShape
from stages.registry import GENERATORS

SHAPE = ImageShape(channels=1, height=8, width=8, num_classes=10)
COUNT = 5


def silent(done, total):
    pass


@pytest.mark.parametrize("word", GENERATORS.words)
class TestGeneratorFamily:
    """Parameters, losses, training and sampling, as the stages and the private training rely on them."""

    @pytest.fixture
    def family(self, word, quick):
        return quick(word).build(SHAPE)

    @pytest.fixture
    def weights(self, family, data):
        found = family.initial(torch.Generator().manual_seed(0))
        if isinstance(family, MeanMatching):
            found |= family.targets(family.class_sums(found, *data, limit=1.0, people=None), limit=1.0, noise=0.0)
        return found

    @pytest.fixture
    def data(self, digits):
        some = digits.take(np.arange(COUNT))
        images = torch.from_numpy(some.images.astype(np.float32)) / 127.5 - 1
        return images, torch.from_numpy(some.labels)

    @pytest.fixture
    def sampling(self, word):
        samplers = GENERATORS.chosen({"family": word}).samplers
        return {"sampler": next(iter(samplers)), "steps": 3} if samplers else {}

    @pytest.mark.parametrize("scale", ["small", "paper"])
    def test_the_metadata_state_every_parameter_and_read_back(self, word, scale):
        params = GENERATORS.from_mapping({"family": word, "scale": scale})
        stated = params.to_json()
        assert GENERATORS.from_mapping(stated) == params
        assert ("steps" in stated) != ("epochs" in stated)
        private = {
            "unit",
            "precision",
            "micro_batch",
            "noise_multiplier",
            "target_epsilon",
            "delta",
            "clip_norm",
            "sampling_rate",
            "noise_multiplicity",
        }
        with_a_capacity = {"capacity", "capacity_steps", "gamma"}
        idle = private | with_a_capacity
        assert stated.keys() == params.names() - idle - {"steps" if "epochs" in stated else "epochs"}

    def test_every_default_of_the_small_scale_is_shown_by_help(self, word, fedsynth):
        code, out, _ = fedsynth("train-generator", "--help")
        assert code == 0
        assert word in out
        declared = GENERATORS.chosen({"family": word})
        assert all(f"--{name.replace('_', '-')}" in out for name in declared.names())

    def test_steps_replace_epochs_and_the_other_way_round(self, word):
        assert GENERATORS.from_mapping({"family": word, "scale": "paper", "steps": 7}).num_steps(10**6) == 7
        assert GENERATORS.from_mapping({"family": word, "epochs": 3, "batch_size": 10}).num_steps(25) == 9

    def test_under_privacy_the_number_of_steps_is_public(self, word):
        noise = {"family": word, "noise_multiplier": 1.0, "sampling_rate": 0.1}
        with pytest.raises(ValueError, match="--steps needs a value under differential privacy"):
            GENERATORS.from_mapping({**noise, "epochs": 3})

    def test_the_files_content_is_what_sampling_needs(self, family, weights, data):
        kept = family.finished(weights, *data)
        assert {name: tensor.shape for name, tensor in kept.items()} == {n: t.shape for n, t in family.kept.items()}
        not_trained = {"target"} if isinstance(family, MeanMatching) else set()
        assert {name.partition(".")[0] for name in weights} == {part.name for part in family.parts} | not_trained

    def test_an_examples_loss_depends_on_no_other(self, family, weights, data):
        draws = drawn(family.draws, COUNT, torch.Generator().manual_seed(1))
        for part in family.parts:
            together = part.losses(weights, *data, draws)
            assert together.shape == (COUNT,)
            for i in range(COUNT):
                mine = {name: tensor[[i]] for name, tensor in draws.items()}
                alone = example_loss(part.losses, weights, data[0][i], data[1][i], mine)
                assert float(alone) == pytest.approx(float(together[i]), rel=1e-4)

    def test_a_part_that_claims_to_see_no_images_sees_none(self, family, weights, data):
        """Its labels need not be private ones, and it costs nothing: a claim that privacy rests on."""
        draws = drawn(family.draws, COUNT, torch.Generator().manual_seed(1))
        seen = []
        for part in family.parts:
            losses = [part.losses(weights, images, data[1], draws) for images in (data[0], -data[0])]
            assert torch.equal(*losses) == (not part.sees_images)
            seen.append(part.sees_images)
        assert any(seen) or isinstance(family, MeanMatching)

    def test_every_draw_that_is_declared_counts(self, family, weights, data):
        """What is drawn twice, or not used, would be randomness that no one sees."""
        draws = drawn(family.draws, COUNT, torch.Generator().manual_seed(1))
        others = drawn(family.draws, COUNT, torch.Generator().manual_seed(2))
        before = [part.losses(weights, *data, draws) for part in family.parts]
        for name in family.draws:
            after = [part.losses(weights, *data, draws | {name: others[name]}) for part in family.parts]
            assert not all(torch.equal(*pair) for pair in zip(before, after, strict=True)), name

    def test_training_goes_on_from_any_state_to_the_same_end(self, family, weights, data, quick, word):
        params = dataclasses.replace(quick(word), ema_decay=0.5).optimisation()
        random_state = torch.get_rng_state()

        def trained(start, steps):
            states = []
            train(
                family, params=params, start=start, num_steps=steps,
                gradients=batch_gradients(family, *data, 4, lambda step: torch.Generator().manual_seed(1000 + step)),
                after_step=lambda state, losses: states.append(copy.deepcopy(state)),
            )  # fmt: skip
            return states

        through = trained(first_state(copy.deepcopy(weights), params), 4)
        for stop in (1, 3):
            going_on = trained(copy.deepcopy(through[stop - 1]), 4)
            assert [state.step for state in going_on] == list(range(stop + 1, 5))
            for group in ("weights", "means", "squares", "average"):
                ends = [getattr(states[-1], group) for states in (through, going_on)]
                assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])
        assert torch.equal(random_state, torch.get_rng_state())

    def test_images_follow_from_generator_and_labels(self, family, weights, data, sampling):
        kept = family.finished(weights, *data)
        random_state = torch.get_rng_state()

        def sample(seed, labels=(0, 1, 1)):
            generator = torch.Generator().manual_seed(seed)
            return family.sample(kept, torch.tensor(labels), generator, report=silent, **sampling)

        images = sample(0)
        assert images.shape == (3, 1, 8, 8)
        assert torch.isfinite(images).all()
        assert float(images.abs().max()) <= 1.0 + 1e-5
        assert torch.equal(images, sample(0))
        assert not torch.equal(images, sample(1))
        assert not torch.equal(images[1], images[2])
        assert not torch.equal(images[0], sample(0, (2, 1, 1))[0])
        assert torch.equal(random_state, torch.get_rng_state())

    def test_progress_ends_at_its_total(self, family, weights, data, sampling):
        calls = []
        kept, labels = family.finished(weights, *data), torch.tensor([0])
        options = {"report": lambda *call: calls.append(call), **sampling}
        family.sample(kept, labels, torch.Generator().manual_seed(0), **options)
        assert calls[-1][0] == calls[-1][1] > 0
