"""Noise in shares: each client adds a part of it, and nobody sees one message alone."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from artifacts.formats import tensors_file
from stages.aggregate import aggregate
from stages.methods.params.aggregation import MeanRule

CLIP, SIGMA = 1.0, 0.5  # as the fixture `federation` has them
SHARED = {"clip_norm": 1.0, "noise_multiplier": 0.5, "least_clients": 3}


def test_a_share_has_its_variance_and_no_other(wide, has_scale):
    """σ²C²/(t − colluders): six may come, two of them tell their noise."""
    shared = {"clip_norm": 2.0, "noise_multiplier": 1.5, "least_clients": 6, "colluders": 2}
    noise = wide.sent(wide.message("00", np.zeros(20_000), **shared))
    variance = (1.5 * 2.0) ** 2 / 4
    assert has_scale(noise, math.sqrt(variance))
    for wrong in (2 / 3, 3 / 2):
        assert not has_scale(noise, math.sqrt(variance * wrong))
    other = wide.sent(wide.message("01", np.zeros(20_000), **shared))
    assert abs(np.corrcoef(noise, other)[0, 1]) < 0.05, "seven standard deviations: 2e-12 by chance"
    # Four honest shares together are the whole noise, and their mean is what `aggregate` gives.
    messages = [wide.message(f"{n:02}", np.zeros(20_000), **shared) for n in range(6)]
    assert has_scale(sum(wide.sent(message) for message in messages[:4]), 1.5 * 2.0)
    out = wide.server / "outbox/model-0001.safetensors"
    aggregate(wide.start, messages, out, params=MeanRule())
    assert np.allclose(wide.moved(out), np.mean([wide.sent(m) for m in messages], axis=0), atol=1e-6)


def test_the_event_of_a_share_and_what_is_charged(federation):
    path = federation.message("00", federation.values(0, 50.0), **SHARED, colluders=1)
    (event,) = federation.events(path)
    assert event.to_json() | {"id": ""} == {
        "id": "", "unit": "client", "adjacency": "add-or-remove", "mechanism": "gaussian", "sampling": "none",
        "sampling_rate": 1.0, "noise_multiplier": SIGMA, "clip_norm": CLIP, "steps": 1, "trust": "aggregate",
        "shares": 2,
    }  # fmt: skip
    about = tensors_file.read(path).metadata
    assert (about.disclosures, about.counts) == ((), {})
    before = path.read_bytes()
    federation.message("00", federation.values(0, 50.0), **SHARED, colluders=1)
    assert (path.read_bytes() == before, len(federation.charged("00"))) == (True, 1)
    federation.message("00", federation.values(1, 50.0), **SHARED, colluders=1)
    federation.message("00", federation.values(1, 50.0), **SHARED)
    assert len(federation.charged("00")) == 3
    assert (
        federation.events(federation.message("00", federation.values(0, 1), **{**SHARED, "least_clients": 1}))[0].trust
        == "nobody"
    )


def test_a_share_holds_the_update_clipped(federation):
    """With hardly any noise: the length of the whole update is the clip."""
    path = federation.message("00", federation.values(0, 50.0), clip_norm=2.0, noise_multiplier=2e-3, least_clients=2)
    assert np.abs(federation.sent(path) - federation.values(0, 2.0)).max() < 0.01


def gaussian_epsilon(sigma, delta):
    """Balle and Wang 2018, Theorem 8: the exact ε of one Gaussian release of sensitivity 1."""

    def gap(e):
        norm = stats.norm
        return norm.cdf(0.5 / sigma - e * sigma) - math.exp(e) * norm.cdf(-0.5 / sigma - e * sigma) - delta

    return optimize.brentq(gap, 0, 200)


def test_what_a_file_is_worth_together_and_alone(federation, fedsynth, fedsynth_json):
    shared = {"clip_norm": 1.0, "noise_multiplier": 2.0, "least_clients": 5, "colluders": 1}
    path = federation.message("00", np.ones(10), **shared)
    (row,) = fedsynth_json("account", path, "--delta", "1e-5")["clients"]
    assert row["trusted"] == ["aggregate"]
    for found, sigma in ((row["epsilon"], 2.0), (row["alone"], 1.0)):
        exact = gaussian_epsilon(sigma, 1e-5)
        assert exact <= found["pld"] < exact * 1.002
    assert "to anyone who sees its files alone" in fedsynth("account", path, "--delta", "1e-5")[1]
    # A file that carries all of its noise is worth the same, alone or not.
    whole = federation.message("01", np.ones(10), **shared | {"least_clients": 2, "noise_multiplier": 1.0})
    (other,) = fedsynth_json("account", whole, "--delta", "1e-5")["clients"]
    assert (other["alone"], other["trusted"]) == (None, ["nobody"])
    assert other["epsilon"]["pld"] == pytest.approx(row["alone"]["pld"], rel=1e-9)


def test_shares_count_on_each_other(federation, fedsynth):
    """Fewer than t, one without noise, one with another clip or mask: nothing is released."""
    ones = np.ones(10)
    mine = [federation.message(f"{n:02}", ones, **SHARED) for n in range(3)]
    out = federation.server / "outbox/model-0001.safetensors"
    command = ["aggregate", federation.start, "-o", out]
    code, _, err = fedsynth(*command, *mine[:2])
    assert (code, "complete with 3 messages; 2 are here" in err) == (3, True)
    for odd in ({}, {**SHARED, "noise_multiplier": 0.1}, {**SHARED, "clip_norm": 9.0}, {**SHARED, "colluders": 1},
                {**SHARED, "sparsify": "rand-k"}):  # fmt: skip
        other = federation.message("09", ones, **odd)
        for given in ([*mine[:2], other], [other, *mine[:2]]):
            code, _, err = fedsynth(*command, *given)
            assert (code, "none like it" in err) == (3, True), err
    assert not out.exists()
    assert fedsynth(*command, *mine)[0] == 0
    assert tensors_file.read(out).metadata.disclosures == ()


def test_a_clients_budget(federation, fedsynth):
    place = federation.client("00")
    (place / "private/budget.yaml").write_text('{"epsilon": 3.0, "delta": 0.01, "unit": "client"}')
    update = federation.update("00", np.ones(10))
    command = ["encode", federation.start, update, "--clip-norm", 1, "-o", place / "outbox/m.safetensors"]
    shares = ["--least-clients", 2, "--noise-multiplier"]
    assert fedsynth(*command)[0] == 4, "the server would see it without noise"
    assert fedsynth(*command, *shares, 0.5)[0] == 4
    assert not list((place / "outbox").iterdir())
    assert fedsynth(*command, *shares, 2)[0] == 0
