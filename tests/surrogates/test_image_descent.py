"""The images' own descent, against torch's optimisers."""

import pytest
import torch

from stages.methods.surrogate_nets import ImageDescent


def _slope(images):
    """Of a loss that is steep in some pixels and all but flat in others."""
    scales = torch.logspace(-6, 2, images.numel()).reshape(images.shape)
    loss = (scales * (images - 0.3).square()).sum()
    return loss.detach(), torch.autograd.grad(loss, images)[0]


@pytest.mark.parametrize(
    ("descent", "optimiser"),
    [
        ("sgd", lambda images: torch.optim.SGD([images], lr=1e-3, momentum=0.5)),
        ("adam", lambda images: torch.optim.Adam([images], lr=1e-3, betas=(0.9, 0.99), eps=1e-12)),
    ],
)
def test_the_steps_are_those_of_torch(descent, optimiser):
    start = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    mine = ImageDescent(start, rate=1e-3, momentum=0.5, descent=descent)
    theirs = start.clone().requires_grad_()
    other = optimiser(theirs)
    for _ in range(20):
        mine.step(*_slope(mine.images))
        theirs.grad = _slope(theirs)[1]
        other.step()
    assert torch.allclose(mine.images, theirs, rtol=1e-5, atol=1e-7)
    assert not torch.allclose(mine.images, start, atol=1e-3)


def test_adam_moves_every_pixel_alike_whatever_the_scale_of_the_slopes():
    start = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    moved = []
    for scale in (1.0, 1e-4):
        descent = ImageDescent(start, rate=0.1, descent="adam")
        for _ in range(5):
            loss, slope = _slope(descent.images)
            descent.step(loss, scale * slope)
        moved.append(descent.images.detach() - start)
    assert torch.allclose(*moved, rtol=0.05)
    assert (moved[0].abs().mean() - 0.5).abs() < 0.1, "five steps of 0.1"
