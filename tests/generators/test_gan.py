"""The GAN's two losses by hand, and the penalty against finite differences."""

import numpy as np
import pytest
import torch

from stages.methods.draws import drawn
from stages.methods.gan import Gan
from stages.methods.params.gan import GanTraining
from stages.methods.private_gradients import example_loss
from stages.nets.gan_net import Discriminator, GanGenerator
from stages.nets.generator_params import ImageShape

SHAPE = ImageShape(channels=1, height=8, width=8, num_classes=3)


@pytest.fixture
def setting():
    """A GAN in float64, its two networks as ordinary modules, four examples and their draws."""
    gan = Gan(GanTraining(filters=2, latent_size=3, r1=0.6), SHAPE)
    weights = {name: tensor.double() for name, tensor in gan.initial(torch.Generator().manual_seed(0)).items()}
    generator, discriminator = (
        GanGenerator(SHAPE, filters=2, latent=3).double(),
        Discriminator(SHAPE, filters=2).double(),
    )
    for prefix, module in (("generator.", generator), ("discriminator.", discriminator)):
        module.load_state_dict({k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)})
    images = torch.rand((4, 1, 8, 8), generator=torch.Generator().manual_seed(1)).double() * 2 - 1
    labels = torch.tensor([0, 1, 2, 2])
    draws = {k: v.double() for k, v in drawn(gan.draws, 4, torch.Generator().manual_seed(2)).items()}
    return gan, weights, generator, discriminator, images, labels, draws


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits.detach().numpy()))


def test_the_discriminators_loss(setting):
    gan, weights, generator, discriminator, images, labels, draws = setting
    found = gan.discriminator_losses(weights, images, labels, draws)
    fakes = generator(draws["code of the fake"], labels)
    real, fake = sigmoid(discriminator(images, labels)), sigmoid(discriminator(fakes, labels))
    step, slopes = 1e-6, np.zeros((4, 64))
    for pixel in range(64):
        moved = images.clone().reshape(4, 64)
        moved[:, pixel] += step
        higher = discriminator(moved.reshape(images.shape), labels)
        slopes[:, pixel] = ((higher - discriminator(images, labels)) / step).detach().numpy()
    penalty = 0.6 / 2 * (slopes**2).sum(axis=1)
    np.testing.assert_allclose(found.detach().numpy(), -np.log(real) - np.log(1 - fake) + penalty, rtol=1e-5)
    assert penalty.min() > 1e-6


def test_the_generators_loss(setting):
    gan, weights, generator, discriminator, images, labels, draws = setting
    found = gan.generator_losses(weights, images, labels, draws)
    fake = sigmoid(discriminator(generator(draws["code"], labels), labels))
    np.testing.assert_allclose(found.detach().numpy(), -np.log(fake), rtol=1e-7)
    assert torch.equal(found, gan.generator_losses(weights, torch.zeros_like(images), labels, draws))


def test_each_part_learns_from_its_own_loss_alone(setting):
    gan, weights, _, _, images, labels, draws = setting
    leaves = {name: tensor.clone().requires_grad_(True) for name, tensor in weights.items()}
    discriminator, generator = gan.parts
    assert (discriminator.name, generator.name) == ("discriminator", "generator")
    discriminator.losses(leaves, images, labels, draws).mean().backward()
    assert all(leaf.grad is None for name, leaf in leaves.items() if name.startswith("generator."))
    assert all(leaf.grad is not None for name, leaf in leaves.items() if name.startswith("discriminator."))


def test_per_example_gradients_of_the_part_that_sees_data(setting):
    gan, weights, _, _, images, labels, draws = setting

    def loss(weights, image, label, draws):
        return example_loss(gan.discriminator_losses, weights, image, label, draws)

    once = {name: draw[:, None] for name, draw in draws.items()}
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0))(weights, images, labels, once)
    leaves = {name: tensor.clone().requires_grad_(True) for name, tensor in weights.items()}
    gan.discriminator_losses(leaves, images, labels, draws).mean().backward()
    for name, gradients in each.items():
        if name.startswith("discriminator."):
            torch.testing.assert_close(gradients.mean(dim=0), leaves[name].grad)


def test_the_class_changes_logit_and_image(setting):
    _, _, generator, discriminator, images, _, draws = setting
    zeros, ones = torch.zeros(4, dtype=torch.long), torch.ones(4, dtype=torch.long)
    assert not torch.allclose(discriminator(images, zeros), discriminator(images, ones))
    assert not torch.allclose(generator(draws["code"], zeros), generator(draws["code"], ones))
    assert float(generator(draws["code"], zeros).abs().max().detach()) <= 1


def test_only_the_generator_is_kept(setting):
    gan, weights, _, _, images, labels, _ = setting
    kept = gan.finished(weights, images, labels)
    assert kept.keys() == {name for name in weights if name.startswith("generator.")} == gan.kept.keys()


@pytest.mark.parametrize(("height", "width"), [(32, 32), (28, 28), (12, 10), (7, 9), (1, 1)])
def test_images_of_any_size(height, width):
    shape = ImageShape(channels=3, height=height, width=width, num_classes=2)
    gan = Gan(GanTraining(filters=2, latent_size=2), shape)
    weights = gan.initial(torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1])
    images = gan.sample(weights, labels, torch.Generator().manual_seed(0), report=lambda done, total: None)
    assert images.shape == (2, 3, height, width)
    assert gan.discriminator_losses(weights, images, labels, drawn(gan.draws, 2, torch.Generator())).shape == (2,)
