"""The loop: against a plain torch training, the running average by hand, and going on from any state."""

import copy
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.data.images import to_pixels
from stages.methods.draws import Draw, drawn
from stages.methods.generator_training import (
    average_weights,
    batch,
    batch_gradients,
    ema_keep,
    first_state,
    train,
)
from stages.methods.params.generator import Optimisation
from stages.nets.generator_params import ImageShape

SHAPE = ImageShape(channels=1, height=8, width=8, num_classes=10)
PARAMS = Optimisation(batch_size=6, learning_rate=0.01, weight_decay=0.1, ema_decay=0.5)


def generator_of(step):
    return torch.Generator().manual_seed(1000 + step)


def trained(family, digits, start, num_steps, params=PARAMS):
    images = torch.from_numpy(digits.images[:20].astype(np.float32)) / 127.5 - 1
    labels = torch.from_numpy(digits.labels[:20])
    states = []
    train(
        family, params=params, start=start, num_steps=num_steps,
        gradients=batch_gradients(family, images, labels, params.batch_size, generator_of),
        after_step=lambda state, losses: states.append((copy.deepcopy(state), dict(losses))),
    )  # fmt: skip
    return states


def fresh(family, params=PARAMS):
    return first_state(family.initial(torch.Generator().manual_seed(0)), params)


def test_against_a_plain_training_with_torchs_adamw(digits, quick):
    family = quick("vae").build(SHAPE)
    states = trained(family, digits, fresh(family), 4)
    weights = {k: v.clone().requires_grad_(True) for k, v in family.initial(torch.Generator().manual_seed(0)).items()}
    average = {name: tensor.detach().double().numpy() for name, tensor in weights.items()}
    optimiser = torch.optim.AdamW(weights.values(), lr=0.01, weight_decay=0.1, foreach=False)
    images = torch.from_numpy(digits.images[:20].astype(np.float32)) / 127.5 - 1
    for step in range(1, 5):
        generator = generator_of(step)
        rows = torch.randperm(20, generator=generator)[:6]
        draws = {"code": torch.randn((6, 10), generator=generator)}
        optimiser.zero_grad()
        loss = family.losses(weights, images[rows], torch.from_numpy(digits.labels[:20])[rows], draws).mean()
        loss.backward()
        optimiser.step()
        state, losses = states[step - 1]
        assert float(losses["vae"]) == pytest.approx(float(loss.detach()), rel=1e-5)
        keep = min(0.5, (1 + step) / (10 + step))
        for name, tensor in weights.items():
            torch.testing.assert_close(state.weights[name], tensor, rtol=1e-4, atol=1e-6)
            average[name] = keep * average[name] + (1 - keep) * tensor.detach().double().numpy()
            np.testing.assert_allclose(state.average[name].numpy(), average[name], rtol=1e-4, atol=1e-6)


def test_the_running_average_by_hand():
    # Steps 1, 2, 3 keep 2/11, 3/12, 4/13; from step 17,990 on it would be 0.9995.
    assert [ema_keep(t, 0.9995) for t in (1, 2, 3)] == pytest.approx([2 / 11, 3 / 12, 4 / 13])
    assert ema_keep(17_989, 0.9995) < 0.9995 == ema_keep(17_990, 0.9995) == ema_keep(10**9, 0.9995)
    average = {"w": torch.tensor([8.0, -4.0])}
    average_weights(average, {"w": torch.tensor([0.0, 4.0])}, 0.75)
    assert average["w"].tolist() == [6.0, -2.0]


def test_without_an_average_the_weights_are_the_result(digits, quick):
    family = quick("vae").build(SHAPE)
    params = Optimisation(batch_size=6, learning_rate=0.01, weight_decay=0.0, ema_decay=0.0)
    state, _ = trained(family, digits, fresh(family, params), 1, params)[-1]
    assert not state.average
    assert state.result is state.weights


def test_a_shorter_training_is_the_beginning_of_a_longer_one(digits, quick):
    family = quick("gan").build(SHAPE)
    short, long = (trained(family, digits, fresh(family), steps) for steps in (2, 4))
    assert all(torch.equal(long[1][0].weights[name], tensor) for name, tensor in short[-1][0].weights.items())


@given(n=st.integers(1, 40), size=st.integers(1, 100), seed=st.integers(0, 99))
@settings(max_examples=80)
def test_a_batch_is_full_and_repeats_no_image_more_than_needed(n, size, seed):
    rows = batch(n, size, torch.Generator().manual_seed(seed)).tolist()
    assert len(rows) == size
    times = Counter(rows)
    assert set(rows) <= set(range(n))
    assert max(times.values()) == -(-size // n)
    assert size < n or min(times[row] for row in range(n)) >= size // n


def test_draws_have_their_laws():
    declared = {
        "a": Draw(law="normal", shape=(3,)),
        "b": Draw(law="integer", below=7),
        "c": Draw(law="keep", shape=(2, 2), probability=0.25),
    }
    found = drawn(declared, 20_000, torch.Generator().manual_seed(0))
    assert found["a"].shape == (20_000, 3)
    assert float(found["a"].mean()) == pytest.approx(0, abs=0.02)
    assert float(found["a"].std()) == pytest.approx(1, abs=0.02)
    assert Counter(found["b"].tolist()).keys() == set(range(7))
    assert found["c"].dtype == torch.bool
    assert float(found["c"].double().mean()) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("kind", ["ddpm", "vae", "gan"])
def test_pieces_of_a_batch_sum_to_the_whole(digits, quick, kind):
    """With dropout too: what an example draws is drawn for the whole batch."""
    family = quick(kind).build(SHAPE)
    images, labels = torch.from_numpy(to_pixels(digits.images[:20])), torch.from_numpy(digits.labels[:20])
    weights = {k: v.requires_grad_(True) for k, v in family.initial(torch.Generator().manual_seed(0)).items()}
    found = {}
    for size in (None, 4, 1):
        gradient = batch_gradients(family, images, labels, 6, generator_of, micro_batch=size)(1)
        names = {part.name: [name for name in weights if name.startswith(f"{part.name}.")] for part in family.parts}
        found[size] = [gradient(part, weights, names[part.name]) for part in family.parts]
    for size in (4, 1):
        torch.testing.assert_close(found[size], found[None], rtol=1e-4, atol=1e-6)


def test_a_generator_in_bf16_is_near_the_one_in_float32(digits, quick):
    family = quick("ddpm").build(SHAPE)
    images, labels = torch.from_numpy(to_pixels(digits.images[:20])), torch.from_numpy(digits.labels[:20])
    weights = {k: v.requires_grad_(True) for k, v in family.initial(torch.Generator().manual_seed(0)).items()}
    (part,) = family.parts
    losses = [
        float(
            batch_gradients(family, images, labels, 6, generator_of, precision=precision)(1)(part, weights, [*weights])[
                1
            ]
        )
        for precision in (None, "bf16")
    ]
    assert 0 < abs(losses[1] / losses[0] - 1) < 0.05
