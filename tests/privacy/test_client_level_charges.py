"""Privacy of whole clients: what leaves the server, and what it is charged."""

import dataclasses
import json
import math

import numpy as np
import pytest

from artifacts.formats import tensors_file
from artifacts.identity import keys
from stages.account import account
from stages.aggregate import aggregate
from stages.keygen import settle
from stages.methods.params.aggregation import MeanRule
from stages.privacy.accountant import epsilon, planned

CLIP, SIGMA, RATE, CLIENTS = 1.0, 0.5, 0.5, 8  # as the fixture `federation` has them
SHARED = {"clip_norm": 1.0, "noise_multiplier": 0.5, "least_clients": 3}


# What leaves the server.


def test_the_model_that_leaves_tells_nothing_of_who_took_part(tmp_path, make_federation):
    """Not even how many: but for weights and event ids the files for nobody, one and four clients are the same."""
    stated, sizes = [], set()
    for count in (0, 1, 4):
        federation = make_federation(tmp_path / str(count), {"w": np.ones(50, np.float32)})
        names = [f"hospital-{n}" for n in range(count)]
        messages = [federation.message(name, np.arange(50.0), clip_norm=CLIP) for name in names]
        out = federation.aggregate(messages)
        data = out.read_bytes()
        for name, path in zip(names, messages, strict=True):
            assert name.encode() not in data
            assert tensors_file.read(path).sha256.encode() not in data
        about = tensors_file.read(out).metadata
        assert (about.counts, about.client, about.disclosures) == ({}, None, ())
        assert [reference.role for reference in about.inputs] == ["model"]
        stated.append(dataclasses.replace(about, privacy=tuple(event | {"id": ""} for event in about.privacy)))
        sizes.add(len(data))
        kept = (federation.server / "private/model-0001.lineage.json").read_text()
        assert kept.count('"message"') >= count, "the server itself knows"
    assert stated[0] == stated[1] == stated[2]
    assert len(sizes) == 1
    assert stated[0].simulation


def test_what_a_model_told_without_noise_stays_with_its_descendants(federation, fedsynth_json):
    """A round of plain averaging, then one with noise: no ε for the second model, whatever its own event says."""
    plain = MeanRule()
    first = federation.server / "outbox/model-0001.safetensors"
    aggregate(federation.start, [federation.message("00", np.ones(10))], first, params=plain)
    second = federation.aggregate([federation.message("00", np.ones(10), first)], first)
    about = tensors_file.read(second).metadata
    assert (about.disclosures, len(about.privacy)) == (("update",), 1)
    (row,) = fedsynth_json("account", second, "--delta", "0.01")["clients"]
    assert row["epsilon"]["pld"] == "inf"
    third = federation.server / "outbox/model-0003.safetensors"
    aggregate(second, [federation.message("00", np.ones(10), second)], third, params=plain)
    assert len(federation.events(third)) == 1, "nor does a round without noise forget what was spent before"


def test_a_server_that_claims_an_epsilon_answers_for_all_that_it_sends(federation, forge, fedsynth_json):
    """SCAFFOLD's variates beside a noised model are the clients' mean gradients without noise."""
    federation.aggregate([federation.message("00", np.ones(10), clip_norm=CLIP)])
    state = federation.server / "outbox/state-0001.safetensors"
    forge.write_tensors(state, kind="state", custody="downlink", round=1, disclosures=("update",))
    rows = {row["client"]: row for row in fedsynth_json("account", federation.root, "--delta", "0.01")["clients"]}
    assert rows["server"]["epsilon"]["pld"] == "inf"
    assert rows["server"]["uncovered"] == [
        {"file": "server/state-0001.safetensors", "why": "it discloses update without noise"}
    ]


# What is charged.


def sampled(steps, q=0.1, sigma=0.95):
    return planned(sampling_rate=q, noise_multiplier=sigma, steps=steps)


def test_rounds_add_up_as_in_the_paper(federation, forge):
    """q = 0.1, σ = 0.95, T = 200, δ = 1/500: 8.51 by Rényi; each model carries the events of all before it."""
    setting = {"clip_norm": 0.2, "noise_multiplier": 0.95, "sampling_rate": 0.1, "clients": 500}
    model = federation.start
    for _ in range(10):
        model = federation.aggregate([], model, **setting)
    events = federation.events(model)
    assert len({event.id for event in events}) == len(events) == 10
    (same,) = {dataclasses.replace(event, id="0" * 64, draw="") for event in events}
    assert len({event.draw for event in events}) == 10, "each round has coins of its own"
    assert (same.unit, same.adjacency, same.trust, same.shares) == ("client", "add-or-remove", "server", 1)
    assert (same.sampling, same.sampling_rate, same.noise_multiplier, same.clip_norm) == ("poisson", 0.1, 0.95, 0.2)
    federation.client("00")
    for target in (federation.root, model):
        (row,) = account([target], delta=1 / 500)["clients"]
        assert (row["client"], row["unit"], row["trusted"], row["events"]) == ("server", "client", ["server"], 10)
        assert row["epsilon"]["rdp"] == epsilon([sampled(10)], delta=1 / 500).rdp
    # As many as in the paper, in one file.
    many = tuple(dataclasses.replace(same, id=f"{number:064x}").to_json() for number in range(200))
    last = federation.server / "outbox/model-0200.safetensors"
    forge.write_tensors(last, kind="model", custody="downlink", round=200, privacy=many)
    (row,) = account([last], delta=1 / 500)["clients"]
    assert (row["events"], row["epsilon"]["rdp"]) == (200, pytest.approx(8.514, abs=2e-3))
    assert row["epsilon"]["pld"] == epsilon([sampled(200)], delta=1 / 500).pld < 8.1


def test_an_identical_aggregate_is_free_and_any_other_is_charged_without_amplification(federation):
    """All that is made from one draw has the same coins: who is in one release is in the next."""
    early = [federation.message(name, np.ones(10)) for name in ("00", "01")]
    late = federation.message("02", np.ones(10))
    first = federation.aggregate(early)
    before = first.read_bytes()
    federation.aggregate(early)
    assert (first.read_bytes() == before, len(federation.charged())) == (True, 1)
    federation.aggregate([*early, late], name="late")
    federation.aggregate(early, name="tuned", server_rate=0.5)
    assert [event["sampling_rate"] for event in federation.charged()] == [RATE, 1.0, 1.0]
    outs = [federation.server / f"outbox/{name}.safetensors" for name in ("late", "tuned")]
    events = [federation.events(out)[0] for out in (first, *outs)]
    assert [(e.mechanism, e.sampling_rate) for e in events] == [
        ("sampled-gaussian", RATE), ("gaussian", 1.0), ("gaussian", 1.0),
    ]  # fmt: skip
    assert len({event.id for event in events}) == 3
    differences = np.abs(federation.moved(first) * 2 - federation.moved(outs[1]) * 4)
    # All ten numbers so close by chance: 3e-13. With the same noise they are the same.
    assert differences.max() > 0.05 * SIGMA, "other noise each time"
    # Again as it was: the same bytes, the same price.
    federation.aggregate(early)
    federation.aggregate([*early, late], name="late")
    assert (first.read_bytes() == before, len(federation.charged())) == (True, 3)
    # The next round has coins of its own. Another key draws none again for the same messages.
    federation.aggregate([], first)
    settle(federation.server / "private/server.key", keys.simulated(1, "server"), force=True)
    federation.aggregate(early)
    assert [event["sampling_rate"] for event in federation.charged()[3:]] == [RATE, 1.0]


def test_two_releases_from_one_draw_are_worth_more_than_two_draws(federation):
    """Together they are one sampled release with noise σ/√2; what is charged covers that, two amplified would not."""
    together = epsilon([sampled(1, sigma=0.95 / math.sqrt(2))], delta=1e-3).pld
    amplified = epsilon([sampled(2)], delta=1e-3).pld
    again = dataclasses.replace(planned(sampling_rate=1, noise_multiplier=0.95, steps=1), id=f"{1:064}")
    charged = epsilon([sampled(1), again], delta=1e-3).pld
    assert amplified < together < charged


def test_the_budget_of_the_server(federation, fedsynth):
    """Three rounds and no fourth; and with a budget nothing leaves without noise."""
    delta, rounds = 0.01, 3
    allowed = [[sampled(1, RATE, SIGMA)]] * rounds
    from stages.privacy.budget import Budget

    limit = math.ceil(Budget(epsilon=9.0, delta=delta, unit="record").spent(allowed) * 100) / 100
    budget = {"epsilon": limit, "delta": delta, "unit": "client"}
    (federation.server / "private/budget.yaml").write_text(json.dumps(budget))
    model = federation.start
    options = [
        "--rule", "dp-mean", "--clip-norm", CLIP, "--noise-multiplier", SIGMA, "--sampling-rate", RATE, "--clients",
        CLIENTS,
    ]  # fmt: skip
    codes = []
    for number in range(1, 6):
        out = federation.server / f"outbox/model-{number:04}.safetensors"
        code, _, err = fedsynth("aggregate", model, "-o", out, *options)
        codes.append(code)
        if code:
            break
        model = out
    assert codes[-1] == 4, codes
    assert rounds <= len(codes) <= rounds + 2
    assert not out.exists()
    assert "does not allow this" in err
    assert len(federation.charged()) == len(codes) - 1
    message = federation.message("00", np.ones(10))
    code, _, err = fedsynth(
        "aggregate", federation.start, message, "-o", federation.server / "outbox/plain.safetensors"
    )
    assert (code, "without noise" in err) == (4, True)


def test_noise_for_records_does_not_hide_a_client_and_noise_for_clients_counts_for_records(
    federation, forge, fedsynth_json
):
    federation.message("00", np.ones(10), **SHARED)
    record = dataclasses.replace(planned(sampling_rate=0.1, noise_multiplier=1.0, steps=10), id=f"{7:064}")
    path = federation.client("00") / "outbox/message-0002.safetensors"
    forge.write_tensors(path, kind="message", client="00", round=2, privacy=(record.to_json(),), disclosures=())
    rows = {row["unit"]: row for row in fedsynth_json("account", federation.client("00"), "--delta", 1e-3)["clients"]}
    assert rows["client"]["epsilon"]["pld"] == "inf"
    assert rows["client"]["uncovered"][0]["why"] == "some of its noise is for single records, not for whole clients"
    half = planned(sampling_rate=1, noise_multiplier=SIGMA / 2, steps=1)
    assert rows["record"]["epsilon"]["pld"] == epsilon([record, half], delta=1e-3).pld
