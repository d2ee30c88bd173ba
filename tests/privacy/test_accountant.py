"""ε against published figures, closed forms, dp-accounting, Opacus and high-precision integrals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stages.privacy import renyi
from stages.privacy.accountant import Epsilon, across, adjacency_of, calibrated, epsilon, planned
from stages.privacy.events import PrivacyEvent


def one(q, sigma, steps, **changes):
    return planned(sampling_rate=q, noise_multiplier=sigma, steps=steps, **changes)


def event(number, **changes):
    fields = one(0.01, 1.0, 100).to_json() | {"id": f"{number:064x}"}
    return PrivacyEvent(**fields | changes)


@pytest.mark.parametrize(
    ("q", "sigma", "steps", "delta", "pld", "rdp"),
    [
        pytest.param(0.01, 1.0, 10_000, 1e-5, 6.188, 6.713, id="σ=1, q=1%"),
        pytest.param(256 / 10_000, 1.0, 200, 1e-5, 2.384, 2.787, id="FedLAP-DP, round 1"),
        pytest.param(256 / 10_000, 1.0, 3000, 1e-5, 9.375, 10.183, id="FedLAP-DP, round 15"),
        pytest.param(0.1, 0.95, 200, 1 / 500, 7.301, 8.514, id="DP-FedSAM"),
        pytest.param(1.0, 0.95, 200, 1 / 500, 152.7, 160.8, id="DP-FedSAM without amplification"),
        pytest.param(1 / 40, 1.906, 20_000, 1e-5, 9.988, 10.732, id="Fedssyn"),
    ],
)
def test_published_figures(q, sigma, steps, delta, pld, rdp):
    found = epsilon([one(q, sigma, steps)], delta=delta)
    assert found.pld == pytest.approx(pld, rel=3e-4)
    # Their grids of orders are coarser than ours: ours may be a little lower, never higher.
    assert rdp * (1 - 5e-4) <= found.rdp <= rdp + 5e-4


def test_less_noise_than_planned_costs_more():
    """Two thirds of the planned variance, as when a third of the noise shares is missing: 8.5 becomes 13."""
    found = epsilon([one(0.1, 0.95 * math.sqrt(2 / 3), 200)], delta=1 / 500)
    assert 13.0 < found.rdp < 13.2


@pytest.mark.parametrize(("sigma", "steps"), [(0.5, 1), (1.0, 1), (4.0, 1), (4.0, 100), (30.0, 7), (200.0, 1)])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-8])
def test_the_plain_gaussian_mechanism_in_closed_form(sigma, steps, delta):
    """Balle and Wang 2018: δ = Φ(1/2s − εs) − e^ε·Φ(−1/2s − εs), s = σ/√T."""
    from scipy.stats import norm

    found = epsilon([one(1.0, sigma, steps)], delta=delta)
    s = sigma / math.sqrt(steps)

    def exact(e):
        return norm.cdf(0.5 / s - e * s) - math.exp(e) * norm.cdf(-0.5 / s - e * s)

    if found.pld == 0:
        assert exact(0.0) <= delta
    else:
        assert exact(found.pld) <= delta * (1 + 1e-9), "an upper bound"
        assert exact(found.pld * (1 - 1e-3) - 1e-4) > delta, "a tight one"


@pytest.mark.parametrize("adjacency", ["add-or-remove", "replace-one"])
def test_a_mixture_of_events_against_dp_accounting(adjacency):
    """Its own construction of the distributions, step by step; ours differs in the grid alone."""
    import dp_accounting as dpa
    from dp_accounting.pld import PLDAccountant

    parts = [(0.02, 1.2, 300), (0.1, 2.0, 50), (1.0, 8.0, 2)]
    found = epsilon([event(i, sampling_rate=q, noise_multiplier=s, steps=t, adjacency=adjacency,
                           mechanism="gaussian" if q == 1 else "sampled-gaussian",
                           sampling="none" if q == 1 else "poisson")
                     for i, (q, s, t) in enumerate(parts)], delta=1e-6)  # fmt: skip
    halved = 0.5 if adjacency == "replace-one" else 1.0
    theirs, tight = PLDAccountant(), PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    for q, s, t in parts:
        theirs.compose(dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(s * halved)), t)
    assert found.pld == pytest.approx(theirs.get_epsilon(1e-6), rel=5e-4)
    if adjacency == "replace-one":
        for q, s, t in parts:
            tight.compose(dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(s)), t)
        assert found.pld >= tight.get_epsilon(1e-6)


@pytest.mark.parametrize(
    ("q", "sigma", "steps"), [(0.0256, 1.0, 200), (0.01, 5.0, 10_000), (0.5, 3.0, 5), (0.3, 0.6, 1)]
)
def test_doubled_sensitivity_covers_replacing_one(q, sigma, steps):
    """Against the pair that dp-accounting takes for REPLACE_ONE: ((1−q)N(0)+qN(1), (1−q)N(0)+qN(−1))."""
    import dp_accounting as dpa
    from dp_accounting.pld import PLDAccountant

    ours = epsilon([one(q, sigma, steps, adjacency="replace-one")], delta=1e-5)
    pair = PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE, 1e-3)
    pair.compose(dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(sigma)), steps)
    assert ours.pld >= pair.get_epsilon(1e-5) - 1e-3


def test_replacing_one_doubles_the_sensitivity():
    replaced = epsilon([one(0.0256, 1.0, 200, adjacency="replace-one")], delta=1e-5)
    assert replaced == epsilon([one(0.0256, 0.5, 200)], delta=1e-5)
    assert 16.9 < replaced.rdp < 17.03, "2.79 becomes 17"
    mixed = [event(1), event(2, adjacency="replace-one")]
    assert adjacency_of(mixed) == "replace-one"
    assert epsilon(mixed, delta=1e-5) == epsilon([one(0.01, 0.5, 200)], delta=1e-5), "one asks: all are read so"


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.0), (0.1, 0.95), (0.5, 0.4), (1e-4, 3.0)])
def test_moments_at_whole_orders_against_the_binomial_sum(q, sigma):
    """Mironov et al. 2019, Eq. 3: A_α = Σ_k C(α, k)(1−q)^{α−k} q^k e^{(k²−k)/2σ²}."""
    for order in (2, 3, 7, 40):
        terms = [
            math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1)
            + k * math.log(q) + (order - k) * math.log1p(-q) + (k * k - k) / (2 * sigma**2)
            for k in range(order + 1)
        ]  # fmt: skip
        top = max(terms)
        exact = top + math.log(math.fsum(math.exp(term - top) for term in terms))
        assert renyi.log_moment(q, sigma, float(order)) == pytest.approx(exact, rel=1e-9, abs=2e-14)


@pytest.mark.parametrize(
    ("q", "sigma", "order"), [(0.1, 0.95, 2.3), (0.01, 1.0, 1.0625), (0.3, 0.2, 1.5), (0.02, 6.0, 33.3)]
)
def test_moments_at_any_order_against_high_precision(q, sigma, order):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(30):

        def integrand(z):
            ratio = 1 - mpmath.mpf(q) + mpmath.mpf(q) * mpmath.exp((2 * z - 1) / (2 * mpmath.mpf(sigma) ** 2))
            return mpmath.npdf(z, 0, sigma) * ratio**order

        cuts = [-15 * sigma, 0, sigma**2 * math.log(1 / q), order / 2, order, order + 15 * sigma]
        exact = float(mpmath.log(mpmath.quad(integrand, sorted(cuts))))
    assert renyi.log_moment(q, sigma, order) == pytest.approx(exact, rel=1e-9, abs=2e-14)


def test_where_the_integral_would_be_long_the_bound_is_above_it(monkeypatch):
    exact = [renyi.log_moment(0.1, 0.5, order) for order in (1.5, 4.0, 20.0)]
    monkeypatch.setattr(renyi, "_MOST_POINTS", 0)
    renyi.log_moment.cache_clear()
    bounds = [renyi.log_moment(0.1, 0.5, order) for order in (1.5, 4.0, 20.0)]
    renyi.log_moment.cache_clear()
    assert all(b >= e for b, e in zip(bounds, exact, strict=True))


@pytest.mark.parametrize(
    ("q", "sigma", "steps", "delta"), [(0.01, 1.0, 10_000, 1e-5), (0.1, 0.95, 200, 1 / 500), (0.2, 3.0, 40, 1e-6)]
)
def test_opacus_agrees(q, sigma, steps, delta):
    accountants = pytest.importorskip("opacus.accountants")
    theirs = accountants.RDPAccountant()
    theirs.history = [(sigma, q, steps)]
    found = epsilon([one(q, sigma, steps)], delta=delta).rdp
    assert found <= theirs.get_epsilon(delta) + 1e-3, "its grid of orders is coarser"
    assert found == pytest.approx(theirs.get_epsilon(delta), rel=5e-3)


@settings(max_examples=15)
@given(
    st.floats(1e-4, 1.0), st.floats(0.4, 20.0), st.integers(1, 3000), st.sampled_from([1e-3, 1e-5, 1e-7])
)  # fmt: skip
def test_renyi_is_never_below_the_loss_distribution(q, sigma, steps, delta):
    found = epsilon([one(q, sigma, steps)], delta=delta)
    assert 0 <= found.pld <= found.rdp * (1 + 1e-3) + 1e-3


@pytest.mark.parametrize(
    ("q", "sigma", "steps"),
    [
        (1e-12, 1e6, 10**9),
        (1.0, 1e-3, 10**9),
        (0.5, 0.01, 3),
        (1e-6, 0.05, 10**4),
        (0.999, 50.0, 10**5),
        (1.0, 0.4, 150),
        (1.0, 1.0, 1000),
        (0.9, 1.0, 900),
        (1e-5, 1.0, 10**6),
    ],
)
def test_extremes_give_an_answer(q, sigma, steps):
    found = epsilon([one(q, sigma, steps)], delta=1e-5)
    assert 0 <= found.pld <= found.rdp
    assert math.isfinite(found.rdp)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.floats(1e-5, 1.0), st.floats(0.3, 50.0), st.integers(1, 10**5)), min_size=1, max_size=3),
    st.sampled_from([1e-2, 1e-5, 1e-8]),
    st.sampled_from(["add-or-remove", "replace-one"]),
)
def test_renyi_is_never_below_the_loss_distribution_for_any_mixture(parts, delta, adjacency):
    events = [
        PrivacyEvent(**one(q, s, t, adjacency=adjacency).to_json() | {"id": f"{i:064x}"})
        for i, (q, s, t) in enumerate(parts)
    ]
    found = epsilon(events, delta=delta)
    assert 0 <= found.pld <= found.rdp * (1 + 1e-3) + 2e-3


def test_more_kinds_of_mechanisms_than_can_be_composed_are_bounded_by_renyi():
    events = [event(i, noise_multiplier=1.0 + i / 100, steps=3) for i in range(70)]
    found = epsilon(events, delta=1e-5)
    assert found.pld == found.rdp
    assert found.pld > epsilon([event(1, noise_multiplier=1.7, steps=210)], delta=1e-5).pld


def test_one_id_counts_once_and_conflicts_are_errors():
    once = epsilon([event(1)], delta=1e-5)
    assert epsilon([event(1), event(1)], delta=1e-5) == once
    twice = epsilon([event(1), event(2)], delta=1e-5)
    assert twice == epsilon([event(1, steps=200)], delta=1e-5)
    assert twice.pld > once.pld
    with pytest.raises(ValueError, match=r"noise_multiplier is 1\.0 and 1\.1"):
        epsilon([event(1), event(1, noise_multiplier=1.1)], delta=1e-5)


def test_two_releases_of_one_draw_by_the_integral_of_their_densities():
    """Both have the same coin: who is in the first is in the second. One amplified covers that, two would not."""
    q, sigma, delta = 0.2, 1.5, 1e-5
    line = np.linspace(-14, 16, 1201)
    area = (line[1] - line[0]) ** 2
    there, here = (stats.norm.pdf(line, loc=mean, scale=sigma) for mean in (0, 1))
    without = np.outer(there, there)
    with_it = (1 - q) * without + q * np.outer(here, here)

    def reached(found):
        ways = ((without, with_it), (with_it, without))
        return max(float(np.clip(p - math.exp(found.pld) * r, 0, None).sum()) * area for p, r in ways)

    fields = {"unit": "client", "sampling_rate": q, "noise_multiplier": sigma, "steps": 1, "trust": "server"}
    drawn = [event(n, **fields, draw="ab" * 32) for n in (1, 2)]
    apart = [event(n, **fields, draw=f"{n:02}" * 32) for n in (1, 2)]
    assert reached(epsilon(drawn, delta=delta)) <= delta < reached(epsilon(apart, delta=delta))


def test_units_do_not_add_up():
    with pytest.raises(ValueError, match="client and record do not add up"):
        epsilon([event(1), event(2, unit="client", trust="server")], delta=1e-5)


def test_across_clients():
    cheap, dear = [event(1)], [event(2), event(3, steps=50)]
    disjoint, together = across([cheap, dear], delta=1e-5)
    assert disjoint == epsilon(dear, delta=1e-5)
    assert together == epsilon([*cheap, *dear], delta=1e-5)
    assert across([], delta=1e-5) == (Epsilon(0.0, 0.0), Epsilon(0.0, 0.0))
    assert epsilon([], delta=1e-5) == Epsilon(0.0, 0.0)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_delta_is_checked(delta):
    with pytest.raises(ValueError, match="δ must lie between 0 and 1"):
        epsilon([event(1)], delta=delta)


@pytest.mark.parametrize("by", ["pld", "rdp"])
@pytest.mark.parametrize(
    ("target", "q", "steps"), [(2.0, 0.01, 10_000), (8.0, 0.1, 200), (0.5, 1.0, 3), (60.0, 0.5, 4)]
)
def test_calibration_rounds_towards_privacy(by, target, q, steps):
    sigma = calibrated(target, delta=1e-5, sampling_rate=q, steps=steps, by=by)
    assert sigma == round(sigma, 4)
    assert epsilon([one(q, sigma, steps)], delta=1e-5).by(by) <= target
    assert epsilon([one(q, sigma - 1e-4, steps)], delta=1e-5).by(by) > target, "no more noise than needed"


def test_calibration_of_what_cannot_be():
    with pytest.raises(ValueError, match="greater than 0"):
        calibrated(0.0, delta=1e-5, sampling_rate=0.1, steps=1)
    with pytest.raises(ValueError, match="no noise multiplier up to 1000000"):
        calibrated(1e-6, delta=1e-12, sampling_rate=1.0, steps=10**9)
    assert calibrated(1e-3, delta=1e-2, sampling_rate=0.01, steps=3) < 1.0, "δ alone nearly suffices"
    assert calibrated(1e6, delta=1e-5, sampling_rate=1e-3, steps=1) == pytest.approx(1e-3)


@pytest.mark.parametrize("orders", [renyi.ORDERS, renyi.PAPERS_ORDERS], ids=["fine", "papers"])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
@pytest.mark.parametrize(
    "charges", [[(0.1, 0.95, 200)], [(0.001, 12.0, 1)], [(0.5, 0.4, 3)], [(0.0256, 1.0, 3000), (1.0, 5.0, 1)]], ids=str
)
def test_the_best_order_is_the_best_of_all(charges, delta, orders):
    best = min(renyi.at_order(charges, order, delta) for order in orders)
    assert renyi.epsilon(charges, delta, orders) == max(0.0, best)


def test_a_delta_too_small_for_a_loss_distribution_has_the_renyi_bound():
    found = epsilon([planned(sampling_rate=0.1, noise_multiplier=1.0, steps=10)], delta=1e-300)
    assert found.pld == found.rdp
    assert 90 < found.rdp < 110
