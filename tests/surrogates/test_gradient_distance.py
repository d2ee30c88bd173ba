"""FedLAP's distance between gradients, Eq. 16 to 19, and the step of the images that comes from it."""

import pytest
import torch

from stages.methods.fedlap import GradientTarget, approximate
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.surrogate_nets import LabelledSet, start_weights

KINDS = ["cosine", "cosine+mse", "mse"]


def make(kind, rows="mean", **more):
    by_rows = {} if kind == "mse" else {"rows": rows}
    return FedLapEncoding(distance=kind, **by_rows, **more)


@pytest.mark.parametrize(
    ("kind", "rows", "expected"),
    [
        # Rows (3,4)·(4,3)/25 = 0.96 and (0,2)·(1,0) = 0, a bias at right angles; squared differences 2, 5 and 2.
        ("cosine", "sum", 0.04 + 1 + 1),
        ("cosine", "mean", 0.52 + 1),
        ("mse", "mean", 9.0),
        ("cosine+mse", "sum", 2.04 + 0.9),
        ("cosine+mse", "mean", 1.52 + 0.9),
    ],
)
def test_by_hand(kind, rows, expected):
    real = {"w": torch.tensor([[3.0, 4.0], [0.0, 2.0]]), "b": torch.tensor([1.0, 0.0])}
    synthetic = {"w": torch.tensor([[4.0, 3.0], [1.0, 0.0]]), "b": torch.tensor([0.0, 1.0])}
    away, _ = GradientTarget(real, make(kind, rows)).distance(synthetic)
    assert float(away) == pytest.approx(expected, abs=1e-5)
    if kind == "cosine+mse":
        more, _ = GradientTarget(real, make(kind, rows, mse_weight=2.0)).distance(synthetic)
        assert float(more - away) == pytest.approx(1.9 * 9, abs=1e-5)


def gradients(seed, dtype=torch.float64):
    """Like those of a convolution, a linear layer and a bias; with rows of zero in one, the other and both."""
    generator = torch.Generator().manual_seed(seed)
    made = {n: torch.randn(*s, generator=generator) for n, s in {"c": (4, 2, 3, 3), "l": (3, 5), "b": (3,)}.items()}
    made["c"][0 if seed == 1 else 1] = 0
    made["l"][2] = 0
    return {name: part.to(dtype) for name, part in made.items()}


@pytest.mark.parametrize(("kind", "rows"), [("cosine", "mean"), ("cosine", "sum"), ("cosine+mse", "sum"), ("mse", "-")])
def test_the_slope_is_autograds(kind, rows, slow_distance):
    real, synthetic = gradients(1), {name: part.requires_grad_() for name, part in gradients(2).items()}
    away, slopes = GradientTarget(real, make(kind, rows)).distance(synthetic)
    expected = slow_distance(real, synthetic, kind=kind, rows=rows)
    torch.testing.assert_close(away, expected.detach(), rtol=1e-12, atol=0)
    expected.backward()
    for slope, part in zip(slopes, synthetic.values(), strict=True):
        torch.testing.assert_close(slope, part.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_zero_have_finite_slopes_in_float32(kind):
    real, synthetic = gradients(1, torch.float32), gradients(2, torch.float32)
    nothing = {name: torch.zeros_like(part) for name, part in real.items()}
    for a, b in ((real, synthetic), (real, nothing), (nothing, synthetic), (nothing, nothing)):
        away, slopes = GradientTarget(a, make(kind)).distance(b)
        assert torch.isfinite(away) and all(torch.isfinite(part).all() for part in slopes)


@pytest.mark.parametrize("arch", ["softmax", "mlp", "convnet"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_the_images_goes_down_the_slope_of_the_whole(
    arch, kind, net, some, slow_gradient, slow_distance, slope_of
):
    """(before − after) / τ against finite differences of the distance as a function of the pixels."""
    module, data, start = net(arch), some(9), some(6, seed=5)
    weights = start_weights(module)
    real = slow_gradient(module, weights, data.images, data.labels)
    params = make(kind, points=1, batches=1, image_steps=1, image_rate=1.0, image_momentum=0.0)
    after = approximate(
        module, start, lambda point, group: real, params=params, rate=0.1,
        generator=torch.Generator(), report=lambda *_: None,
    )  # fmt: skip

    def whole(images):
        return slow_distance(real, slow_gradient(module, weights, images, start.labels), kind=kind)

    moved = (start.images - after.surrogate.images).view(-1)
    for pixel, slope in slope_of(whole, start.images):
        assert float(moved[pixel]) == pytest.approx(slope, rel=1e-4, abs=1e-7)
    assert after.losses == pytest.approx([float(whole(start.images))], rel=1e-9)


def test_matching_brings_the_gradients_together(net, some, slow_gradient, slow_distance):
    module, data, start = net("convnet"), some(12), some(6, seed=5)
    weights = start_weights(module)
    real = slow_gradient(module, weights, data.images, data.labels)
    params = make("cosine+mse", points=1, batches=1, image_steps=60, image_rate=0.5)
    after = approximate(
        module, start, lambda point, group: real, params=params, rate=0.1,
        generator=torch.Generator(), report=lambda *_: None,
    ).surrogate  # fmt: skip
    sets = (start, LabelledSet(after.images, after.labels))
    before, then = (slow_distance(real, slow_gradient(module, weights, s.images, s.labels)) for s in sets)
    assert float(then) < 0.5 * float(before)
