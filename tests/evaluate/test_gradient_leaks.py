"""What an update gives away without a search, each against a case that is known by hand or by training itself."""

import numpy as np
import pytest
import torch
from torch import nn

from stages.methods import gradient_leaks as leaks
from stages.methods.inverting_gradients import Attack, gradient, inverted, likeness, one_hot
from stages.nets.build import new_network
from stages.nets.params import InputShape
from stages.registry import NETWORKS

SHAPE = InputShape(channels=1, height=8, width=8, num_classes=10)


def network(**params):
    return new_network(NETWORKS.from_mapping(params), SHAPE, 1)


def drawn(count, seed=0):
    random = torch.Generator().manual_seed(seed)
    return torch.rand((count, 1, 8, 8), generator=random) * 2 - 1, torch.randint(10, (count,), generator=random)


def trained(module, images, labels, *, steps, rate, batch_size):
    """start − end of torch's own optimiser, over batches in order."""
    import copy

    after = copy.deepcopy(module).train()
    optimiser = torch.optim.SGD(after.parameters(), lr=rate)
    parts = list(zip(images.split(batch_size), labels.split(batch_size), strict=True))
    for step in range(steps):
        x, y = parts[step % len(parts)]
        optimiser.zero_grad()
        nn.functional.cross_entropy(after(x), y).backward()
        optimiser.step()
    ends = after.state_dict()
    return {name: value - ends[name] for name, value in module.state_dict().items() if value.is_floating_point()}


def test_the_input_of_a_linear_layer_comes_out_exactly_for_one_image():
    module, (images, labels) = network(arch="mlp", width=16), drawn(1)
    update = trained(module, images, labels, steps=1, rate=0.1, batch_size=1)
    found = leaks.linear_inputs(module, update, 64)
    assert torch.allclose(found[0].float(), images.flatten(), atol=1e-4)


def test_of_two_images_units_that_answer_to_one_give_it_and_the_others_a_mixture():
    module, (images, labels) = network(arch="mlp", width=32), drawn(2)
    update = trained(module, images, labels, steps=1, rate=0.1, batch_size=2)
    found = leaks.linear_inputs(module, update, 64)
    first = next(layer for layer in module.modules() if isinstance(layer, nn.Linear))
    answers = (first(images.flatten(1)) > 0).sum(0)
    a, b = images.flatten(1).double()
    assert len(found) == int((answers > 0).sum()), "a silent unit has no quotient"
    copies = sum(bool(min((row - a).norm(), (row - b).norm()) < 1e-3) for row in found)
    assert copies == int((answers == 1).sum()) > 0
    for row in found:  # on the line through both
        along = (row - a) @ (b - a) / (b - a).square().sum()
        assert (row - a - along * (b - a)).norm() < 1e-3 * max(1, abs(along))


def test_a_convolution_has_no_such_layer():
    module, (images, labels) = network(arch="convnet", width=4, depth=2), drawn(1)
    update = trained(module, images, labels, steps=1, rate=0.1, batch_size=1)
    assert leaks.linear_inputs(module, update, 64) is None


def test_label_shares_are_exact_where_a_class_is_absent():
    module, (images, _) = network(arch="mlp", width=16), drawn(20)
    labels = torch.tensor([0] * 10 + [3] * 6 + [7] * 4)
    update = trained(module, images, labels, steps=1, rate=0.1, batch_size=20)
    expected = torch.softmax(module(images), 1).mean(0).detach()
    shares = leaks.label_shares(list(update.values())[-1], expected)
    assert shares.tolist() == pytest.approx([0.5, 0, 0, 0.3, 0, 0, 0, 0.2, 0, 0], abs=1e-3)
    assert leaks.total_variation_distance(shares.numpy(), leaks.true_shares(labels.numpy(), 10)) < 1e-3
    assert leaks.total_variation_distance([1, 0], [0, 1]) == 1


@pytest.mark.parametrize(("steps", "batch_size"), [(1, 6), (3, 6), (4, 2)])
@pytest.mark.parametrize("graph", [True, False])
def test_unrolled_is_what_training_does(steps, batch_size, graph):
    module, (images, labels) = network(arch="mlp", width=16), drawn(6)
    found = leaks.unrolled(
        module, images, one_hot(labels, 10), steps=steps, rate=0.5, batch_size=batch_size, graph=graph
    )
    expected = trained(module, images, labels, steps=steps, rate=0.5, batch_size=batch_size)
    for part, (name, _) in zip(found, module.named_parameters(), strict=True):
        assert torch.allclose(part, expected[name], atol=1e-6)


def test_its_slope_is_that_of_finite_differences():
    module, (images, labels) = network(arch="mlp", width=8).double(), drawn(2)
    images, hot = images.double().requires_grad_(), one_hot(labels, 10).double()

    def length(x):
        parts = leaks.unrolled(module, x, hot, steps=3, rate=0.5, batch_size=1, graph=True)
        return sum(part.square().sum() for part in parts)

    assert torch.autograd.gradcheck(length, (images,), fast_mode=True)


def test_several_local_steps_are_undone_by_unrolling_and_not_by_one_gradient():
    """The step is so large that the second batch is seen by another model."""
    module, (images, labels) = network(arch="mlp", width=32), drawn(2, seed=3)
    update = trained(module, images, labels, steps=4, rate=2.0, batch_size=1)

    def psnr(change):
        found = inverted(
            module, update, labels, (2, 1, 8, 8), attack=Attack(300, 0.0, 1), change=change,
            generator=torch.Generator().manual_seed(0), report=lambda *_: None,
        )  # fmt: skip
        return likeness(found.images.numpy(), images.numpy()).psnr.mean(), found.cosine

    def unrolled(module, images, labels, *, graph):
        return leaks.unrolled(module, images, labels, steps=4, rate=2.0, batch_size=1, graph=graph)

    assert psnr(unrolled)[0] > psnr(gradient)[0] + 3


def test_linked_scores_are_cosines_of_single_gradients():
    module, (images, labels) = network(arch="mlp", width=16), drawn(12)
    update = trained(module, images[:4], labels[:4], steps=1, rate=0.1, batch_size=4)
    scores = leaks.linked(module, update, images, labels)
    alone = gradient(module, images[5:6], one_hot(labels[5:6], 10), graph=False)
    a, b = torch.cat([p.flatten() for p in alone]), torch.cat([p.flatten() for p in update.values()])
    assert scores[5] == pytest.approx(float(nn.functional.cosine_similarity(a, b, 0)), abs=1e-5)
    assert scores[:4].min() > np.median(scores[4:])


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.last = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Linear(3 * 36, 10)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.layer(x))).flatten(1))


def test_batch_norms_averages_give_the_statistics_of_the_batch_away():
    torch.manual_seed(0)
    module, (images, labels) = Normed(), drawn(5)
    update = trained(module, images, labels, steps=1, rate=0.1, batch_size=5)
    prior = leaks.BatchNormPrior(module, update, steps=1)
    assert prior and prior(images).item() < 1e-6
    assert prior(drawn(5, seed=9)[0]).item() > 1e-3
    assert not leaks.BatchNormPrior(network(arch="mlp", width=4), update, steps=1)
