"""The diffusion model against closed forms and against a network small enough to work out by hand."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from stages.methods.ddpm import Ddpm, noise_schedule, noised
from stages.methods.draws import drawn
from stages.methods.params.ddpm import DdpmTraining
from stages.methods.private_gradients import example_loss
from stages.nets.generator_params import ImageShape
from stages.nets.torchvision_door import diffusers
from stages.nets.unet import GivenDropout, unet

SHAPE = ImageShape(channels=1, height=8, width=8, num_classes=4)
SMALL = DdpmTraining(base_width=8, multipliers="1,2", dropout=0.3, attention_from=1)


@pytest.fixture(scope="module")
def family():
    return Ddpm(SMALL, SHAPE)


@pytest.fixture(scope="module")
def weights(family):
    return family.initial(torch.Generator().manual_seed(0))


def examples(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 1, 8, 8, generator=generator) * 2 - 1, torch.arange(count) % 4


@pytest.mark.parametrize("timesteps", [1000, 40])
def test_the_schedule_is_the_cosine(timesteps):
    found = noise_schedule(timesteps).double().numpy()

    def cosine(t):
        return math.cos((t / timesteps + 0.008) / 1.008 * math.pi / 2) ** 2

    # Nichol and Dhariwal 2021, Eq. 17: ᾱ(t)/ᾱ(0), save where β is capped at 0.999, at the very end.
    expected = np.array([cosine(t + 1) / cosine(0) for t in range(timesteps)])
    np.testing.assert_allclose(found[:-1], expected[:-1], rtol=2e-3)
    assert found[-1] == pytest.approx(expected[-2] * 0.001, rel=1e-2)
    assert (np.diff(found) < 0).all()


def test_the_forward_process_is_its_closed_form_and_diffusers_own():
    images, _ = examples(6)
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(1))
    times = torch.tensor([0, 1, 250, 500, 998, 999])
    alpha_bar = noise_schedule(1000)
    found = noised(images, noise, alpha_bar[times])
    kept = alpha_bar[times].double().numpy().reshape(-1, 1, 1, 1)
    by_hand = np.sqrt(kept) * images.double().numpy() + np.sqrt(1 - kept) * noise.double().numpy()
    np.testing.assert_allclose(found.numpy(), by_hand, atol=1e-6)
    scheduler = diffusers().DDPMScheduler(num_train_timesteps=1000, beta_schedule="squaredcos_cap_v2")
    torch.testing.assert_close(found, scheduler.add_noise(images, noise, times))


class Tiny(nn.Module):
    """ε̂ = a·x_t + b·t + c[y]: small enough for numpy."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(4))

    def forward(self, sample, timestep, class_labels, return_dict):
        assert not return_dict
        return (self.a * sample + (self.b * timestep + self.c[class_labels]).reshape(-1, 1, 1, 1),)


def test_the_loss_by_hand(monkeypatch):
    family = Ddpm(DdpmTraining(dropout=0.0), SHAPE)
    monkeypatch.setattr(family, "_net", Tiny())
    images, labels = examples(5)
    draws = drawn(family.draws, 5, torch.Generator().manual_seed(3))
    weights = {
        "unet.a": torch.tensor(0.7),
        "unet.b": torch.tensor(0.001),
        "unet.c": torch.tensor([0.1, -0.2, 0.3, 1.0]),
    }
    found = family.losses(weights, images, labels, draws)
    for i in range(5):
        kept = float(noise_schedule(1000)[draws["time"][i]])
        noise = draws["noise"][i].double().numpy()
        noisy = math.sqrt(kept) * images[i].double().numpy() + math.sqrt(1 - kept) * noise
        predicted = 0.7 * noisy + 0.001 * int(draws["time"][i]) + [0.1, -0.2, 0.3, 1.0][labels[i]]
        assert float(found[i]) == pytest.approx(float(((predicted - noise) ** 2).mean()), rel=1e-5)


def test_an_examples_loss_depends_on_no_other_and_has_its_own_gradient(family, weights):
    """What differential privacy will need: per-example gradients, whose mean is the batch's."""
    images, labels = examples(3)
    draws = drawn(family.draws, 3, torch.Generator().manual_seed(2))
    together = family.losses(weights, images, labels, draws)
    for i in range(3):
        alone = example_loss(family.losses, weights, images[i], labels[i], {k: v[[i]] for k, v in draws.items()})
        assert float(alone) == pytest.approx(float(together[i]), rel=1e-5)

    def loss(weights, image, label, draws):
        return example_loss(family.losses, weights, image, label, draws)

    once = {name: draw[:, None] for name, draw in draws.items()}
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0))(weights, images, labels, once)
    leaves = {name: tensor.clone().requires_grad_(True) for name, tensor in weights.items()}
    family.losses(leaves, images, labels, draws).mean().backward()
    for name, gradients in each.items():
        torch.testing.assert_close(gradients.mean(dim=0), leaves[name].grad, rtol=1e-3, atol=1e-6)


def test_dropout_is_part_of_the_draws(family, weights):
    images, labels = examples(4)
    draws = drawn(family.draws, 4, torch.Generator().manual_seed(2))
    masks = [name for name in draws if name.startswith("dropout ")]
    kept = torch.cat([draws[name].flatten() for name in masks]).double().mean()
    # Ten thousand units kept with probability 0.7: a mean off by 0.02 would be four standard deviations.
    assert float(kept) == pytest.approx(0.7, abs=0.02)
    assert sum(isinstance(layer, GivenDropout) for layer in family._net.modules()) == len(masks) == 8
    assert not any(isinstance(layer, nn.Dropout) for layer in family._net.modules())
    first = family.losses(weights, images, labels, draws)
    assert torch.equal(first, family.losses(weights, images, labels, draws))
    other = draws | {masks[0]: ~draws[masks[0]]}
    assert not torch.equal(first, family.losses(weights, images, labels, other))


def test_what_dropout_keeps_is_scaled_up(family, weights):
    """Kept units are divided by the probability of being kept, 0.7, so that their mean is what sampling will see."""
    images, labels = examples(4)
    draws = drawn(family.draws, 4, torch.Generator().manual_seed(2))
    kept = noise_schedule(1000)[draws["time"]].reshape(-1, 1, 1, 1)
    noisy = kept.sqrt() * images + (1 - kept).sqrt() * draws["noise"]

    def by_hand(scale):
        values = {name.removeprefix("unet."): tensor for name, tensor in weights.items()}
        for name in (name for name in draws if name.startswith("dropout ")):
            values[name.removeprefix("dropout ")] = torch.where(draws[name], scale, 0.0)
        inputs = (noisy, draws["time"])
        predicted = functional_call(family._net, values, inputs, {"class_labels": labels, "return_dict": False})[0]
        return (predicted - draws["noise"]).square().mean(dim=(1, 2, 3))

    found = family.losses(weights, images, labels, draws)
    torch.testing.assert_close(found, by_hand(1 / 0.7))
    assert not torch.allclose(found, by_hand(1.0), rtol=1e-3)  # else the factor would not be tested


def test_dropped_units_are_made_up_for():
    layer = GivenDropout()
    x = torch.ones(2, 3)
    assert torch.equal(layer(x), x)
    layer.factor = torch.tensor([0.0, 2.0, 2.0])
    assert torch.equal(layer(x)[0], torch.tensor([0.0, 2.0, 2.0]))


@pytest.mark.parametrize("sampler", ["ddpm", "ddim", "dpm-solver"])
def test_a_perfect_network_leads_back_to_its_one_image(sampler, monkeypatch):
    """If the data is a single image x₀, the best ε̂ is (x_t − √ᾱ·x₀)/√(1−ᾱ), and every sampler must return x₀."""
    family = Ddpm(DdpmTraining(dropout=0.0), SHAPE)
    target = torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8)

    def perfect(weights, factors, noisy, times, labels):
        kept = noise_schedule(1000)[times].reshape(-1, 1, 1, 1)
        return (noisy - kept.sqrt() * target) / (1 - kept).sqrt()

    monkeypatch.setattr(family, "_predict", perfect)
    images = family.sample(
        {}, torch.zeros(3, dtype=torch.long), torch.Generator().manual_seed(0),
        sampler=sampler, steps=20, report=lambda done, total: None,
    )  # fmt: skip
    torch.testing.assert_close(images, target.expand(3, -1, -1, -1), atol=0.03, rtol=0)


def test_samples_follow_the_generator_and_leave_global_random_state_alone(family, weights):
    def sample(seed):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.tensor([0, 1, 1])
        return family.sample(weights, labels, generator, sampler="dpm-solver", steps=3, report=lambda done, total: None)

    before = torch.get_rng_state()
    first = sample(0)
    assert torch.equal(first, sample(0))
    assert not torch.equal(first, sample(1))
    assert not torch.equal(first[1], first[2])  # fresh noise for every image
    Ddpm(SMALL, SHAPE).initial(torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("values", "shape", "expected"),
    [
        ({"attention_from": 1}, (1, 8, 8, 10), 177_489),
        ({"scale": "paper"}, (3, 32, 32, 10), 12_755_139),
    ],
)
def test_number_of_parameters(values, shape, expected):
    shape = ImageShape(**dict(zip(("channels", "height", "width", "num_classes"), shape, strict=True)))
    net = unet(DdpmTraining(**values).unet(), shape)
    assert all(p.device.type == "meta" for p in net.parameters())
    reference = sum(p.numel() for p in net.parameters())
    assert reference == expected


def test_initial_weights_are_torchs_own_scheme(weights):
    bound = 1 / math.sqrt(9)  # conv_in: one channel, 3×3
    first = weights["unet.conv_in.weight"]
    assert float(first.abs().max()) <= bound < float(first.abs().max()) * 1.2
    assert float(weights["unet.class_embedding.weight"].std()) == pytest.approx(1.0, abs=0.2)
    assert (weights["unet.conv_norm_out.weight"] == 1).all()
    assert (weights["unet.conv_norm_out.bias"] == 0).all()


def test_sizes_that_do_not_fit_are_told():
    with pytest.raises(ValueError, match=r"multiples of 8, found 28×28: give --multipliers 1,2,2,"):
        Ddpm(DdpmTraining(scale="paper"), ImageShape(channels=1, height=28, width=28, num_classes=10))
    with pytest.raises(ValueError, match=r"multiples of 2, found 8×7: give --multipliers 1,"):
        Ddpm(DdpmTraining(), ImageShape(channels=1, height=8, width=7, num_classes=10))
