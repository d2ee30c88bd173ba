"""The β-VAE's loss against torch.distributions and closed forms, and where its codes come from."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Bernoulli, Normal, kl_divergence

from stages.methods.draws import drawn
from stages.methods.generator_training import Part, batch_gradients
from stages.methods.params.vae import VaeTraining
from stages.methods.private_gradients import example_loss
from stages.methods.vae import Vae, divergence
from stages.nets.generator_params import ImageShape
from stages.nets.vae_net import VaeDecoder, VaeEncoder, beside, halvings

SHAPE = ImageShape(channels=1, height=8, width=8, num_classes=3)


def family(**values):
    return Vae(VaeTraining(filters=4, hidden_size=16, latent_size=5, **values), SHAPE)


def examples(count):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, 1, 8, 8, generator=generator) * 2 - 1, torch.arange(count) % 3


def modules(weights, sees_class):
    """The two halves as ordinary modules that hold the weights."""
    size = {"filters": 4, "hidden": 16, "latent": 5, "sees_class": sees_class}
    encoder, decoder = VaeEncoder(SHAPE, **size), VaeDecoder(SHAPE, **size)
    for half, module in (("encoder", encoder), ("decoder", decoder)):
        prefix = f"vae.{half}."
        module.load_state_dict({k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)})
    return encoder, decoder


@pytest.mark.parametrize("conditioning", ["label", "class-mean"])
def test_the_loss_is_the_negative_elbo(conditioning):
    vae = family(beta=2.5, conditioning=conditioning)
    weights = vae.initial(torch.Generator().manual_seed(0))
    images, labels = examples(6)
    draws = drawn(vae.draws, 6, torch.Generator().manual_seed(2))
    found = vae.losses(weights, images, labels, draws)
    encoder, decoder = modules(weights, conditioning == "label")
    with torch.no_grad():
        mean, log_variance = encoder((images + 1) / 2, labels)
        posterior = Normal(mean, log_variance.exp().sqrt())
        codes = posterior.loc + posterior.scale * draws["code"]
        likelihood = Bernoulli(logits=decoder(codes, labels), validate_args=False).log_prob((images + 1) / 2)
        kl = kl_divergence(posterior, Normal(0.0, 1.0)).sum(dim=1)
    torch.testing.assert_close(found, -likelihood.sum(dim=(1, 2, 3)) + 2.5 * kl)
    assert float(kl.min()) > 1e-4  # else the term would not be tested


def test_a_capacity_holds_the_divergence_and_grows_with_the_steps():
    """−log p(x|z) + γ·|KL − C·min(1, t/T)|: Burgess et al., with the parts from torch.distributions."""
    vae = family(capacity=3.0, capacity_steps=10, gamma=7.0, conditioning="label")
    plain = family(beta=0.0, conditioning="label")
    weights = vae.initial(torch.Generator().manual_seed(0))
    images, labels = examples(6)
    encoder, _ = modules(weights, True)
    with torch.no_grad():
        mean, log_variance = encoder((images + 1) / 2, labels)
        kl = kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(0.0, 1.0)).sum(dim=1)
    for step, reached in ((1, 0.3), (5, 1.5), (10, 3.0), (1000, 3.0)):
        draws = drawn(vae.draws, 6, torch.Generator().manual_seed(2), step=step)
        surprise = plain.losses(weights, images, labels, {"code": draws["code"]})
        torch.testing.assert_close(vae.losses(weights, images, labels, draws), surprise + 7.0 * (kl - reached).abs())


def test_the_training_says_which_step_it_is():
    """Each step's loss is taken at that step's capacity: one far above the rest pulls KL up."""
    images, labels = examples(12)
    seen = []
    vae = family(capacity=3.0, capacity_steps=10, conditioning="label")
    gradients = batch_gradients(vae, images, labels, 4, lambda step: torch.Generator().manual_seed(step))
    weights = {name: tensor.requires_grad_(True) for name, tensor in vae.initial(torch.Generator()).items()}

    def losses(own, mine, classes, draws):
        seen.append(draws["step"].tolist())
        return vae.losses(own, mine, classes, draws)

    for step in (1, 7):
        gradients(step)(Part(name="vae", losses=losses), weights, list(weights))
    assert seen == [[1.0] * 4, [7.0] * 4]


def test_beta_and_capacity_exclude_each_other():
    with pytest.raises(ValueError, match="beta"):
        VaeTraining.from_mapping({"capacity": 3.0, "beta": 2.0})


def test_the_divergence_by_hand_and_by_integration():
    mean, log_variance = torch.tensor([[0.0, 0.0], [1.0, -2.0]]), torch.tensor([[0.0, 0.0], [math.log(4.0), 0.0]])
    # ½(1 + 4 − log 4 − 1) + ½(4 + 1 − 0 − 1)
    by_hand = [0.0, 0.5 * (4 - math.log(4.0)) + 2.0]
    np.testing.assert_allclose(divergence(mean, log_variance).numpy(), by_hand, rtol=1e-6)
    grid = np.linspace(-30, 30, 200_001)
    q = np.exp(-((grid - 1) ** 2) / 8) / math.sqrt(8 * math.pi)
    log_ratio = -((grid - 1) ** 2) / 8 - math.log(2) + grid**2 / 2
    numeric = float((q * log_ratio).sum() * (grid[1] - grid[0]))
    assert numeric == pytest.approx(0.5 * (4 - math.log(4.0)), rel=1e-6)


def test_per_example_gradients_exist_and_average_to_the_batchs():
    vae = family()
    weights = vae.initial(torch.Generator().manual_seed(0))
    images, labels = examples(4)
    draws = drawn(vae.draws, 4, torch.Generator().manual_seed(2))

    def loss(weights, image, label, draws):
        return example_loss(vae.losses, weights, image, label, draws)

    once = {name: draw[:, None] for name, draw in draws.items()}
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0))(weights, images, labels, once)
    leaves = {name: tensor.clone().requires_grad_(True) for name, tensor in weights.items()}
    vae.losses(leaves, images, labels, draws).mean().backward()
    for name, gradients in each.items():
        torch.testing.assert_close(gradients.mean(dim=0), leaves[name].grad, rtol=1e-4, atol=1e-5)


def test_class_means_are_means_of_posterior_means_and_zero_for_unseen_classes():
    vae = family(conditioning="class-mean")
    weights = vae.initial(torch.Generator().manual_seed(0))
    images, _ = examples(5)
    labels = torch.tensor([0, 0, 2, 2, 2])
    kept = vae.finished(weights, images, labels)
    with torch.no_grad():
        codes = modules(weights, False)[0]((images + 1) / 2, labels)[0]
    torch.testing.assert_close(kept["class_means"][0], (codes[0] + codes[1]) / 2)
    torch.testing.assert_close(kept["class_means"][2], codes[2:].mean(dim=0))
    assert (kept["class_means"][1] == 0).all()
    assert not any(name.startswith("vae.encoder") for name in kept)
    assert {name: tensor.shape for name, tensor in kept.items()} == {n: t.shape for n, t in vae.kept.items()}


def test_codes_are_drawn_around_the_class_mean_and_images_are_mean_brightness():
    vae = family(conditioning="class-mean")
    weights = vae.initial(torch.Generator().manual_seed(0))
    images, labels = examples(6)
    kept = vae.finished(weights, images, labels)
    kept["class_means"] = torch.arange(15.0).reshape(3, 5)
    found = vae.sample(kept, labels, torch.Generator().manual_seed(9), report=lambda done, total: None)
    codes = torch.randn((6, 5), generator=torch.Generator().manual_seed(9)) + kept["class_means"][labels]
    with torch.no_grad():
        expected = torch.sigmoid(modules(weights, False)[1](codes, labels)) * 2 - 1
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(64, 64, 4), (32, 32, 3), (28, 28, 2), (8, 8, 1), (12, 10, 1), (7, 9, 0), (1, 1, 0)],
)
def test_images_of_any_size(height, width, expected):
    shape = ImageShape(channels=3, height=height, width=width, num_classes=2)
    assert halvings(shape) == expected
    vae = Vae(VaeTraining(filters=2, hidden_size=4, latent_size=2), shape)
    weights = vae.initial(torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1])
    images = vae.sample(weights, labels, torch.Generator().manual_seed(0), report=lambda done, total: None)
    assert images.shape == (2, 3, height, width)
    assert vae.losses(weights, images, labels, drawn(vae.draws, 2, torch.Generator())).shape == (2,)


def test_the_papers_encoder_has_burgess_layers():
    shape = ImageShape(channels=1, height=64, width=64, num_classes=3)
    encoder = VaeEncoder(shape, filters=32, hidden=256, latent=10, sees_class=False)
    # 4×4 convolutions: 1→32 and three 32→32; 512→256, 256→256, 256→20.
    convolutions = (16 + 1) * 32 + 3 * (32 * 16 + 1) * 32
    expected = convolutions + (512 + 1) * 256 + (256 + 1) * 256 + (256 + 1) * 20
    assert sum(p.numel() for p in encoder.parameters()) == expected


def test_one_hot_labels():
    vectors = torch.zeros(2, 1)
    assert beside(vectors, torch.tensor([2, 0]), 3).tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]
    assert beside(vectors, torch.tensor([2, 0]), 0) is vectors
