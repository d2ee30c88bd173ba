"""Budgets: what they allow, what they refuse before a record is read, and by which figures."""

import dataclasses
import json
import math

import numpy as np
import pytest
import yaml

from artifacts import dataset_file, keys, spend
from artifacts.errors import BudgetError, InputError
from artifacts.metadata import Metadata
from stages.data.dataset_images import dataset_params, save_dataset
from stages.data.images import LabelledImages
from stages.keygen import settle
from stages.privacy.accountant import calibrated, epsilon, planned
from stages.privacy.budget import Budget
from stages.privacy.renyi import ORDERS, step_cost
from stages.spending import reserve

DELTA = 1e-5
RATE, SIGMA, STEPS = 0.2, 1.0, 3
KEY = bytes(range(32))


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
    assert of_record().spent([]) == 0
    assert of_record().spent([[event()]]) == alone().pld
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


def test_what_is_left_is_told_in_steps():
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
        ({"unit": "patient"}, "unit must be one of record, client"),
        ({"unit": ["record"]}, "unit"),
        ({"unit": None}, "unit"),
        ({"note": "x"}, "unknown key 'note'"),
    ],
)
def test_a_wrong_budget_is_told(changes, said):
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
def key(tmp_path):
    path = tmp_path / "00/private/client.key"
    settle(path, keys.Key(KEY), force=False)
    return path


@pytest.fixture
def ask(key, context):
    """Reserve so many steps under some seed, within a budget, if one is given."""

    def call(*events, seed=0, limit=None):
        if limit is not None:
            text = f"epsilon: {limit!r}\ndelta: {DELTA!r}\nunit: record\n"
            key.with_name("budget.yaml").write_text(text)
        return reserve(key, context=context | {"seed": seed}, data=["ab" * 32], events=list(events) or [event()])

    return call


def charged(key):
    with spend.locked(spend.beside(key), keys.read(key)) as book:
        return [[fields["steps"] for fields in release] for release in book.charged()]


def test_without_a_budget_all_is_charged_and_nothing_refused(ask, key):
    for seed in range(3):
        ask(event(10**6), seed=seed)
    assert charged(key) == [[10**6]] * 3


def test_the_limit_itself_is_within(ask, key):
    ask(limit=alone().pld)
    with pytest.raises(BudgetError):
        ask(event(1), seed=1)
    assert charged(key) == [[STEPS]]


def test_a_little_less_than_the_cost_is_refused(ask, key):
    with pytest.raises(BudgetError) as raised:
        ask(limit=alone().pld * (1 - 1e-9))
    assert raised.value.exit_code == 4
    assert charged(key) == []


def test_an_identical_rerun_is_free_and_another_is_not(ask, key):
    first = ask(limit=alone().pld)
    again = ask()
    assert first.mark == again.mark
    assert charged(key) == [[STEPS]]
    with pytest.raises(BudgetError):
        ask(seed=1)


def test_the_second_release_counts_by_renyi(ask, key):
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
    settle(key, keys.Key(KEY[::-1]), force=True)
    with pytest.raises(BudgetError):
        ask()


# The command line: refused before an image is looked at.

TRAIN = ["--family", "vae", "--filters", 4, "--hidden-size", 16, "--batch-size", 8, "--steps", STEPS, "--seed", 5,
         "--noise-multiplier", SIGMA, "--sampling-rate", RATE]  # fmt: skip


@pytest.fixture
def data(key):
    """Twelve images, none of which is a PNG: whoever looks at them says so."""
    pixels = np.zeros((12, 1, 8, 8), np.uint8)
    content = LabelledImages(pixels, np.arange(12) % 3, ("a", "b", "c"))
    metadata = Metadata(
        kind="dataset", stage="partition", custody="private", client="00", params=dataset_params(content), versions={}
    )
    path = key.with_name("data.parquet")
    save_dataset(path, content, metadata)
    dataset_file.write(path.with_name("damaged.parquet"), [b"no image"] * 12, content.labels, metadata)
    return path


def files_of(key):
    return {path: path.read_bytes() for path in key.parents[1].rglob("*") if path.is_file()}


def write_budget(key, text):
    key.with_name("budget.yaml").write_text(text)


def budget_text(limit, unit="record"):
    return f"epsilon: {limit}\ndelta: 1e-5\nunit: {unit}\n"


def test_the_budget_refuses_before_the_data_is_read(fedsynth, key, data):
    damaged, out = data.with_name("damaged.parquet"), data.with_name("generator.safetensors")
    write_budget(key, budget_text(alone().pld / 2))
    before = files_of(key)
    code, _, err = fedsynth("train-generator", damaged, *TRAIN, "-o", out)
    assert code == 4, err
    assert f"0.000 is spent, and it would become {alone().pld:.3f}" in err
    assert "Nothing was read" in err
    assert files_of(key) == before
    # With a budget that allows it, it is the image that is told, and the attempt stays charged.
    write_budget(key, budget_text(alone().pld + 1e-6))
    code, _, err = fedsynth("train-generator", damaged, *TRAIN, "-o", out)
    assert code == 3
    assert "row 0" in err
    assert charged(key) == [[STEPS]]
    assert not out.exists()


def test_within_the_budget_it_trains_and_the_rest_is_refused(fedsynth, fedsynth_json, key, data):
    write_budget(key, budget_text(alone().pld + 1e-6))
    first, second = data.with_name("first.safetensors"), data.with_name("second.safetensors")
    fedsynth_json("train-generator", data, *TRAIN, "-o", first)
    code, _, err = fedsynth("train-generator", data, *TRAIN, "--learning-rate", 0.01, "-o", second)
    assert code == 4
    assert f"{alone().pld:.3f} is spent" in err
    assert not second.exists()
    fedsynth_json("train-generator", data, *TRAIN, "-o", second)
    assert first.read_bytes() == second.read_bytes(), "the same again is free"
    assert charged(key) == [[STEPS]]


def test_a_target_that_is_the_budget_fits(fedsynth_json, key, data):
    write_budget(key, budget_text(3.0))
    options = [*TRAIN[:-4], "--target-epsilon", 3.0, "--delta", DELTA, "--sampling-rate", RATE]
    summary = fedsynth_json("train-generator", data, *options, "-o", data.with_name("generator.safetensors"))
    sigma = calibrated(3.0, delta=DELTA, sampling_rate=RATE, steps=STEPS)
    assert summary["noise_multiplier"] == sigma
    assert summary["epsilon"] == {"pld": alone(sigma=sigma).pld, "rdp": alone(sigma=sigma).rdp}


def test_a_budget_for_clients_refuses_protection_of_records(fedsynth, key, data):
    write_budget(key, budget_text(1000, unit="client"))
    code, _, err = fedsynth("train-generator", data, *TRAIN, "-o", data.with_name("generator.safetensors"))
    assert code == 4
    assert "per client" in err
    assert "would become inf" in err
    assert charged(key) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epsilon: [1", "does not parse"),
        ("- epsilon", "mapping"),
        ("", "mapping"),
        ("epsilon: 1\ndelta: 1e-5\nunit: record\nnotes: x", "unknown key 'notes'"),
        ("epsilon: 1\ndelta: 1e-5", "no 'unit'"),
        ("epsilon: none\ndelta: 1e-5\nunit: record", "epsilon must be a number"),
        ("epsilon: .inf\ndelta: 1e-5\nunit: record", "epsilon"),
        ("epsilon: -1\ndelta: 1e-5\nunit: record", "epsilon"),
        ("epsilon: 1\ndelta: 2\nunit: record", "delta"),
        ("epsilon: 1\ndelta: 1e-5\nunit: person", "unit"),
    ],
)
def test_a_budget_that_cannot_be_read_stops_everything(fedsynth, key, data, text, said):
    write_budget(key, text)
    before = files_of(key)
    code, _, err = fedsynth("train-generator", data, *TRAIN, "-o", data.with_name("generator.safetensors"))
    assert code == 3, err
    assert "budget" in err
    assert said in err
    assert files_of(key) == before


@pytest.mark.parametrize("kind", ["folder", "link to nowhere", "bytes"])
def test_something_else_in_the_budgets_place_is_not_taken_for_none(fedsynth, key, data, kind):
    path = key.with_name("budget.yaml")
    if kind == "folder":
        path.mkdir()
    elif kind == "bytes":
        path.write_bytes(b"\xff\xfe\x00")
    else:
        path.symlink_to(key.with_name("gone.yaml"))
    code, _, err = fedsynth("train-generator", data, *TRAIN, "-o", data.with_name("generator.safetensors"))
    assert code == 3, err
    assert "budget.yaml" in err
    assert charged(key) == []


def test_a_damaged_ledger_is_exit_code_five(fedsynth, key, data):
    book = spend.beside(key)
    line = json.loads(book.read_text())
    book.write_text(json.dumps(line | {"key": "cd" * 32}) + "\n")
    code, _, err = fedsynth("train-generator", data, *TRAIN, "-o", data.with_name("generator.safetensors"))
    assert code == 5
    assert "spend.jsonl, line 1" in err
    assert not data.with_name("generator.safetensors").exists()


def test_a_deleted_ledger_is_refused(fedsynth, key, data):
    spend.beside(key).unlink()
    code, _, err = fedsynth("train-generator", data, *TRAIN, "-o", data.with_name("generator.safetensors"))
    assert code == 3
    assert "what was spent before cannot be known" in err
    assert not spend.beside(key).exists()


def test_a_published_plan(fedsynth_json):
    """Twenty thousand steps at a fortieth: ε = 10 at δ = 1e-5 takes σ = 1.906."""
    found = fedsynth_json(
        "account", "plan", "--sampling-rate", 1 / 40, "--steps", 20_000, "--delta", 1e-5, "--noise-multiplier", 1.906
    )
    assert found["epsilon"]["pld"] == pytest.approx(10, abs=0.02)


def test_with_a_budget_nothing_leaves_without_noise(tmp_path, fedsynth, fedsynth_json):
    """An update as it is costs ∞, whatever is left; the same commands go through once the budget is gone."""
    run = tmp_path / "run"
    fedsynth_json("partition", "digits", "--clients", 2, "-o", run)
    model, mine = run / "public" / "model-0000.safetensors", run / "clients" / "00"
    fedsynth_json("init-model", "--arch", "softmax", "--like", run / "public" / "test.parquet", "-o", model)
    update, message = mine / "private" / "update-0001.safetensors", mine / "outbox" / "message-0001.safetensors"
    fedsynth_json("train-client", model, mine / "private" / "data.parquet", "-o", update)
    budget = mine / "private" / "budget.yaml"
    budget.write_text("epsilon: 1000\ndelta: 1e-5\nunit: record\n")
    code, _, err = fedsynth("encode", model, update, "-o", message)
    assert code == 4 and "tell update without noise" in err
    assert not message.exists() and not (mine / "egress.jsonl").exists()
    budget.unlink()
    fedsynth_json("encode", model, update, "-o", message)
