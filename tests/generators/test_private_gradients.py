"""A step of a differentially private generator by hand, and the laws of its secret draws."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from stages.methods.draws import Draw, drawn, secretly_drawn
from stages.methods.private_gradients import SecretStreams, private_gradients
from stages.privacy.mechanism import CLIP_MARGIN, GaussianMechanism
from stages.privacy.streams import CONTEXT, SecretStream

CLIP, EXPECTED = 0.05, 8.0
CHANCE = 1e-6  # the draws are fixed: a test that passes passes always


def stream(label, seed=0):
    return SecretStream(bytes(range(32)), dict.fromkeys(CONTEXT, seed), label)


def private_part(family, weights):
    (part,) = [part for part in family.parts if part.sees_images]
    return part, [name for name in weights if name.startswith(f"{part.name}.")]


# One step, by hand.


def by_hand(family, weights, images, labels, rows, draws, clip, *, clip_each_draw=False):
    """Σ over the rows of the clipped gradient of the mean loss over the draws: a plain loop with autograd."""
    part, names = private_part(family, weights)
    limit = clip * (1 - CLIP_MARGIN)
    live = {name: tensor.clone().requires_grad_(name in names) for name, tensor in weights.items()}

    def clipped(gradient):
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradient))
        return [g.double() * min(1.0, limit / norm) for g in gradient]

    total = [torch.zeros_like(weights[name], dtype=torch.float64) for name in names]
    for position, row in enumerate(rows):
        times = next(iter(draws.values())).shape[1]
        found = []
        for k in range(times):
            mine = {name: tensor[position, k][None] for name, tensor in draws.items()}
            loss = part.losses(live, images[row][None], labels[row][None], mine).sum()
            found.append(torch.autograd.grad(loss, [live[name] for name in names]))
        if clip_each_draw:
            found = [clipped(gradient) for gradient in found]
        mean = [sum(parts) / times for parts in zip(*found, strict=True)]
        total = [t + g for t, g in zip(total, mean if clip_each_draw else clipped(mean), strict=True)]
    return dict(zip(names, total, strict=True))


@pytest.mark.parametrize(("name", "clip"), [("ddpm", CLIP), ("vae", CLIP), ("gan", CLIP), ("vae", 300.0)])
def test_a_step_is_the_noised_sum_of_clipped_means(setting, name, clip):
    family, weights, images, labels = setting(name)
    times, step = 3, 7
    mechanism = GaussianMechanism(clip_norm=clip, noise_multiplier=1e-3, expected_size=EXPECTED)
    gradients = private_gradients(
        family, images, labels, num_classes=10, sampling_rate=0.25, mechanism=mechanism, multiplicity=times,
        streams=SecretStreams(sampling=stream("sampling"), examples=stream("examples"), noise=stream("noise")),
        public_of=lambda step: torch.Generator().manual_seed(step),
    )  # fmt: skip
    part, names = private_part(family, weights)
    found, loss = gradients(step)(part, weights, names)
    assert loss is None, "the loss of a private batch is never computed"

    rows = np.flatnonzero(stream("sampling").at(step).bernoulli(0.25, len(labels)))
    assert 3 <= len(rows) < len(labels)
    draws = secretly_drawn(family.draws, len(rows), times, stream("examples").at(step))
    total = by_hand(family, weights, images, labels, rows, draws, clip)
    source = stream("noise").at(step)
    noise = {n: torch.from_numpy(source.gaussian(tuple(total[n].shape), mechanism.scale)) for n in sorted(total)}
    wanted = {n: (total[n] + noise[n]) / EXPECTED for n in names}
    spacing = mechanism.grid / EXPECTED
    for n, gradient in zip(names, found, strict=True):
        assert gradient.dtype == torch.float32
        assert torch.allclose(gradient.double(), wanted[n], rtol=0, atol=spacing), n

    # The comparison is fine enough to tell the draws clipped one by one from their clipped mean, and a missing record.
    apart = by_hand(family, weights, images, labels, rows, draws, clip, clip_each_draw=True)
    fewer = by_hand(family, weights, images, labels, rows[:-1], {n: t[:-1] for n, t in draws.items()}, clip)
    for wrong in (apart, fewer) if clip == CLIP else (fewer,):  # a clip that nobody reaches leaves all as it is
        gaps = [float(((wrong[n] - total[n]) / EXPECTED).abs().max()) for n in names]
        assert max(gaps) > 5 * spacing


def test_a_gans_generator_learns_from_public_labels_and_codes(setting):
    """Its gradient by hand, from a generator that everyone may know; records and streams are not even there."""
    family, weights, _, _ = setting("gan")
    nothing = {"images": torch.empty(0, 1, 8, 8), "labels": torch.empty(0, dtype=torch.int64)}
    gradients = private_gradients(
        family, **nothing, num_classes=10, sampling_rate=0.25, multiplicity=2,
        mechanism=GaussianMechanism(clip_norm=CLIP, noise_multiplier=1.0, expected_size=300.0),
        streams=SecretStreams(sampling=stream("sampling"), examples=stream("examples"), noise=stream("noise")),
        public_of=lambda step: torch.Generator().manual_seed(step),
    )  # fmt: skip
    (part,) = [part for part in family.parts if not part.sees_images]
    live = {name: tensor.clone().requires_grad_(True) for name, tensor in weights.items()}
    names = [name for name in weights if name.startswith("generator.")]
    found, loss = gradients(5)(part, live, names)
    assert loss is None
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(10, (300,), generator=generator)
    assert stats.chisquare(torch.bincount(labels, minlength=10)).pvalue > CHANCE
    draws = drawn(family.draws, 300, generator)
    mean = part.losses(live, torch.empty(300, 0), labels, draws).mean()
    wanted = torch.autograd.grad(mean, [live[name] for name in names])
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


# The laws of the draws.


def has_scale(draws, scale):
    square = float(np.square(draws / scale).sum())
    return min(stats.chi2.cdf(square, draws.size), stats.chi2.sf(square, draws.size)) > CHANCE


def test_secret_draws_have_their_laws_and_no_others():
    declared = {
        "noise": Draw(law="normal", shape=(5, 4)),
        "time": Draw(law="integer", below=7),
        "mask": Draw(law="keep", shape=(11,), probability=0.8),
    }
    found = secretly_drawn(declared, 2000, 3, stream("examples"))
    assert {name: tuple(t.shape) for name, t in found.items()} == {
        "noise": (2000, 3, 5, 4), "time": (2000, 3), "mask": (2000, 3, 11),
    }  # fmt: skip
    assert [found[n].dtype for n in ("noise", "time", "mask")] == [torch.float32, torch.int64, torch.bool]
    noise = found["noise"].double().numpy().ravel()
    assert has_scale(noise, 1.0)
    assert not has_scale(noise, 1.02)
    assert not has_scale(noise, 0.98)
    assert stats.kstest(noise, stats.norm.cdf).pvalue > CHANCE
    times = np.bincount(found["time"].numpy().ravel(), minlength=7)
    assert len(times) == 7
    assert stats.chisquare(times).pvalue > CHANCE
    assert stats.chisquare([*times[:-1].tolist(), times[-1] + 400, 0]).pvalue < CHANCE
    kept = int(found["mask"].sum())
    assert stats.binomtest(kept, found["mask"].numel(), 0.8).pvalue > CHANCE
    assert stats.binomtest(kept, found["mask"].numel(), 0.79).pvalue < CHANCE
    # No two examples, and no two draws of one, share a number.
    assert len(np.unique(noise)) > 0.999 * noise.size
    again = secretly_drawn(declared, 2000, 3, stream("examples"))
    assert all(torch.equal(found[name], again[name]) for name in found)
    other = secretly_drawn(declared, 2000, 3, stream("examples", seed=1))
    assert abs(float(np.corrcoef(noise, other["noise"].double().numpy().ravel())[0, 1])) < 0.02
    assert all(len(tensor) == 0 for tensor in secretly_drawn(declared, 0, 3, stream("examples")).values())
