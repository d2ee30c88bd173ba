"""Budgets: what they allow and what they refuse, and by which figures."""

import dataclasses
import math

import pytest
import yaml

from artifacts.errors import BudgetError, InputError
from artifacts.identity import keys
from artifacts.ledgers import spend
from stages.charging.spending import reserve
from stages.keygen import settle
from stages.privacy.accountant import epsilon, planned
from stages.privacy.budget import Budget
from stages.privacy.renyi import ORDERS, step_cost

DELTA = 1e-5
RATE, SIGMA, STEPS = 0.2, 1.0, 3


def event(steps=STEPS, **changes):
    fields = {"sampling_rate": RATE, "noise_multiplier": SIGMA, "steps": steps}
    return dataclasses.replace(planned(**fields), **changes)


def alone(steps=STEPS, sigma=SIGMA, rate=RATE):
    """Both figures of so many steps, from the accountant itself."""
    return epsilon([planned(sampling_rate=rate, noise_multiplier=sigma, steps=steps)], delta=DELTA)


def by_filter(*events, limit=1.0):
    """FedLAP-DP's Theorems A.6 and A.7 written out, at the one order of the budget's filter."""
    order = Budget(epsilon=limit, delta=DELTA, unit="record").order
    cost = sum(e.steps * step_cost(e.sampling_rate, e.noise_multiplier, order) for e in events)
    return cost + math.log((order - 1) / order) - (math.log(DELTA) + math.log(order)) / (order - 1)


def of_record(epsilon=1.0):
    return Budget(epsilon=epsilon, delta=DELTA, unit="record")


# The arithmetic.


def test_one_release_counts_by_its_loss_distribution_and_several_by_renyi():
    assert of_record().spent([]) == of_record().spent([[], []]) == 0
    assert of_record().spent([[event()]]) == alone().pld
    assert of_record().spent([[], [event()], []]) == alone().pld, "the mark of a draw is no release"
    assert of_record().spent([[event()], [event()]]) == pytest.approx(by_filter(event(2 * STEPS)))
    assert alone(2 * STEPS).pld < alone(2 * STEPS).rdp <= by_filter(event(2 * STEPS))
    other = event(sampling_rate=0.1, steps=7)
    assert of_record().spent([[event()], [other]]) == pytest.approx(by_filter(event(), other))


@pytest.mark.parametrize("limit", [0.1, 1.0, 8.0, 50.0])
def test_the_filters_order_depends_on_the_budget_alone_and_is_the_best_for_gaussians(limit):
    """At α the budget leaves (ε − conversion)/α for a Gaussian's ρ: no other order of the grid leaves more."""
    budget = Budget(epsilon=limit, delta=DELTA, unit="record")

    def left(order):
        return (limit - math.log1p(-1 / order) + (math.log(DELTA) + math.log(order)) / (order - 1)) / order

    assert left(budget.order) == max(left(order) for order in ORDERS) > 0
    sigma = math.sqrt(1 / (2 * left(budget.order)))
    whole = event(mechanism="gaussian", sampling="none", sampling_rate=1.0, steps=1, noise_multiplier=sigma)
    assert by_filter(whole, limit=limit) == pytest.approx(limit)


def test_equal_reservations_each_count():
    assert of_record().spent([[event(), event()]]) == alone(2 * STEPS).pld, "they all carry the id of what is planned"


def test_a_budget_for_clients_is_not_met_by_events_about_records():
    central = event(unit="client", trust="server")
    clients = Budget(epsilon=1.0, delta=DELTA, unit="client")
    assert clients.spent([[central]]) == alone().pld
    assert clients.spent([[central], [event()]]) == math.inf
    assert clients.spent([[event()]]) == math.inf


def test_a_record_changes_its_clients_contribution_by_twice_the_clip():
    """Taken away, a client moves the sum by C; with one record less, from one vector of length C to any other."""
    central = event(unit="client", trust="server")
    assert of_record().spent([[central]]) == alone(sigma=SIGMA / 2).pld
    whole = event(unit="client", mechanism="gaussian", sampling="none", sampling_rate=1.0, steps=1)
    replaced = epsilon([dataclasses.replace(whole, adjacency="replace-one")], delta=DELTA)
    assert of_record().spent([[whole]]) == pytest.approx(replaced.pld, rel=1e-6)
    mixed = [event(id="1" * 64), event(noise_multiplier=SIGMA / 2, id="2" * 64)]
    assert of_record().spent([[event()], [central]]) == pytest.approx(by_filter(*mixed))
    assert of_record().spent([[event(unit="client", trust="server", noise_multiplier=1e-3)]]) == math.inf


def test_what_is_left_is_reported_in_steps():
    limit = alone(40).pld
    assert of_record(limit).most_steps([], event(100)) == 40
    assert of_record(limit).most_steps([[event(10)]], event(100)) == max(
        n for n in range(1, 100) if by_filter(event(10 + n), limit=limit) <= limit
    )
    assert of_record(alone(1).pld / 2).most_steps([], event(100)) == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": 0}, "epsilon must be a number greater than 0"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"epsilon": "much"}, "epsilon must be a number greater than 0, found 'much'"),
        ({"delta": 0}, "delta"),
        ({"delta": 1}, "delta must lie between 0 and 1"),
        ({"delta": [1e-5]}, "delta"),
        ({"unit": "patient"}, "unit must be one of record, person, client"),
        ({"unit": ["record"]}, "unit"),
        ({"unit": None}, "unit"),
        ({"note": "x"}, "unknown key 'note'"),
    ],
)
def test_a_wrong_budget_is_reported(changes, said):
    with pytest.raises(ValueError, match=said):
        Budget.from_mapping({"epsilon": 1.0, "delta": DELTA, "unit": "record"} | changes)


def test_a_budget_needs_all_its_keys_and_reads_yamls_numbers():
    for name in ("epsilon", "delta", "unit"):
        values = {"epsilon": 1.0, "delta": DELTA, "unit": "record"}
        del values[name]
        with pytest.raises(ValueError, match=f"no '{name}'"):
            Budget.from_mapping(values)
    assert Budget.from_mapping(yaml.safe_load("epsilon: 2\ndelta: 1e-5\nunit: record")) == of_record(2)


# Reserving.


@pytest.fixture
def ask(key, context):
    """Reserve so many steps under some seed, within a budget, if one is given."""

    def call(*events, seed=0, limit=None):
        if limit is not None:
            text = f"epsilon: {limit!r}\ndelta: {DELTA!r}\nunit: record\n"
            key.with_name("budget.yaml").write_text(text)
        return reserve(key, context=context | {"seed": seed}, data=["ab" * 32], events=list(events) or [event()])

    return call


def test_without_a_budget_all_is_charged_and_nothing_refused(ask, key, charged):
    for seed in range(3):
        ask(event(10**6), seed=seed)
    assert charged(key) == [[10**6]] * 3


def test_the_limit_itself_is_within(ask, key, charged):
    ask(limit=alone().pld)
    with pytest.raises(BudgetError):
        ask(event(1), seed=1)
    assert charged(key) == [[STEPS]]


def test_a_little_less_than_the_cost_is_refused(ask, key, charged):
    with pytest.raises(BudgetError) as raised:
        ask(limit=alone().pld * (1 - 1e-9))
    assert raised.value.exit_code == 4
    assert charged(key) == []


def test_an_identical_rerun_is_free_and_another_is_not(ask, key, charged):
    first = ask(limit=alone().pld)
    again = ask()
    assert first.mark == again.mark
    assert charged(key) == [[STEPS]]
    with pytest.raises(BudgetError):
        ask(seed=1)


def test_the_second_release_counts_by_renyi(ask, key, charged):
    """What the loss distributions would still allow is refused: which release comes next may depend on the last."""
    limit = (alone(2 * STEPS).pld + alone(2 * STEPS).rdp) / 2
    ask(limit=limit)
    with pytest.raises(BudgetError, match=f"it would become {by_filter(event(2 * STEPS), limit=limit):.3f}"):
        ask(seed=1)
    ask(seed=1, limit=1.5 * limit)
    assert charged(key) == [[STEPS], [STEPS]]


def test_the_refusal_says_what_is_spent_and_left(ask):
    ask(limit=alone(40).pld)
    with pytest.raises(BudgetError) as raised:
        ask(event(100), seed=1)
    limit = alone(40).pld
    now, then = alone().pld, by_filter(event(STEPS + 100), limit=limit)
    allowed = max(n for n in range(100) if by_filter(event(STEPS + n), limit=limit) <= limit)
    said = str(raised.value)
    assert f"{now:.3f} is spent, and it would become {then:.3f}" in said
    assert f"allows {allowed} of its 100 steps" in said
    assert "per record" in said


def test_a_charge_that_is_not_understood_is_an_error(ask, key, context):
    with spend.locked(spend.beside(key), keys.read(key)) as book:
        book.reserve(stage="s", context="ab" * 32, data=[], events=[event().to_json() | {"mechanism": "laplace"}])
    with pytest.raises(InputError, match="never taken for nothing"):
        ask(limit=1000.0)


def test_rotating_the_key_does_not_fill_the_purse(ask, key):
    ask(limit=alone().pld)
    settle(key, keys.Key(bytes(32)), force=True)
    with pytest.raises(BudgetError):
        ask()
