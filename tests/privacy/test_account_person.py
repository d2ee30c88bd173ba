"""`account --person`: one ε for each unit over all that left, held against dp_accounting's composition by hand."""

import dp_accounting as dpa
import pytest
from dp_accounting.pld import PLDAccountant

from stages.privacy.events import PrivacyEvent

DELTA = 1e-5


def event(number, unit="person", **changes):
    fields = {"sampling_rate": 0.1, "noise_multiplier": 2.0, "clip_norm": 1.0, "steps": 100, "trust": "nobody"}
    return PrivacyEvent.planned(unit=unit, **fields | changes).to_json() | {"id": f"{number:064x}"}


def by_hand(*parts):
    """ε of (q, σ, steps) together."""
    accountant = PLDAccountant()
    for q, sigma, steps in parts:
        mechanism = dpa.GaussianDpEvent(sigma)
        accountant.compose(dpa.PoissonSampledDpEvent(q, mechanism) if q < 1 else mechanism, steps)
    return accountant.get_epsilon(DELTA)


@pytest.fixture
def send(forge, tmp_path):
    def write(who, round, events, *, disclosures=()):
        server = who == "server"
        folder = tmp_path / "run" / (who if server else f"clients/{who}") / "outbox"
        folder.mkdir(parents=True, exist_ok=True)
        about = {"kind": "model", "custody": "downlink"} if server else {"kind": "message", "client": who}
        path = folder / f"{about['kind']}-{round:04}.safetensors"
        return forge.write_tensors(path, **about, round=round, privacy=tuple(events), disclosures=disclosures)

    return write


@pytest.fixture
def units(fedsynth_json):
    def of(*targets):
        found = fedsynth_json("account", *targets, "--person", "--delta", DELTA)
        return {row["unit"]: row for row in found["units"]}

    return of


def near(value):
    return pytest.approx(value, rel=2e-3)


def test_people_compose_over_clients_and_rounds(send, units, tmp_path):
    """Client 00 sent twice, 01 once: a person may be in both; a record is in one, and has half the noise."""
    for who, round, number in (("00", 1, 1), ("00", 2, 2), ("01", 1, 3)):
        send(who, round, [event(number)])
    found = units(tmp_path / "run")
    assert found["person"]["epsilon"]["pld"] == near(by_hand((0.1, 2, 300)))
    assert found["person"]["if_disjoint"]["pld"] == near(by_hand((0.1, 2, 200)))
    assert found["record"]["epsilon"]["pld"] == near(by_hand((0.1, 1, 200)))
    assert found["client"]["epsilon"]["pld"] == "inf"
    (why,) = found["client"]["why"]
    assert why["reason"] == "some of its noise is for single people, not for whole clients" and len(why["files"]) == 3
    assert found["person"]["why"] == found["record"]["why"] == [], "both have a number"


def test_alike_events_in_an_aggregate_are_as_many_for_who_is_in_all(send, units, tmp_path):
    """The server's model has one event for both clients' equal ones; a person in both met each of them."""
    for who, number in (("00", 1), ("01", 2)):
        send(who, 1, [event(number)])
    send("server", 1, [event(3)])
    found = units(tmp_path / "run")
    assert found["person"]["trusting_the_server"]["pld"] == near(by_hand((0.1, 2, 200)))
    assert found["record"]["trusting_the_server"]["pld"] == near(by_hand((0.1, 1, 100)))
    assert units(tmp_path / "run/server")["person"]["trusting_the_server"]["pld"] == "inf"


def test_noise_for_records_has_no_epsilon_for_people(send, units, tmp_path):
    """Whoever has several records moves the sum by more than one of them (rule 32)."""
    send("00", 1, [event(1)])
    send("00", 2, [event(2, "record")])
    found = units(tmp_path / "run")
    assert found["record"]["epsilon"]["pld"] == near(by_hand((0.1, 1, 100), (0.1, 2, 100)))
    assert found["person"]["epsilon"] == found["client"]["epsilon"] == {"pld": "inf", "rdp": "inf"}
    (why,) = found["person"]["why"]
    assert why["reason"] == "some of its noise is for single records, not for all that one person has"
    assert [name.split("/")[-1] for name in why["files"]] == ["message-0002.safetensors"]


def test_what_the_server_noised_counts_with_what_clients_sent(send, units, tmp_path):
    """Client-level noise at a trusted server; messages without noise cost ∞ to the server, and the reason is said."""
    for who in ("00", "01", "02"):
        send(who, 1, [], disclosures=("update",))
    send("server", 1, [event(9, "client", sampling_rate=1.0, noise_multiplier=12.0, steps=1, trust="server")])
    found = units(tmp_path / "run")
    assert {row["epsilon"]["pld"] for row in found.values()} == {"inf"}
    assert all(row["why"][0]["reason"] == "it discloses update without noise" for row in found.values())
    assert all(len(row["why"][0]["files"]) == 3 for row in found.values())
    assert found["client"]["trusting_the_server"]["pld"] == near(by_hand((1, 12, 1)))
    assert found["record"]["trusting_the_server"]["pld"] == near(by_hand((1, 6, 1)))
    # A person in all three moves each of the three updates by up to 2C.
    assert found["person"]["trusting_the_server"]["pld"] == near(by_hand((1, 12 / 6, 1)))


def test_whoever_is_in_all_clients_meets_a_sum_of_shares_as_often(send, units, tmp_path):
    """The noise of all shares is one σC; a person in n clients moves the sum by 2nC, not by 2C√n."""
    shared = {"sampling_rate": 1.0, "noise_multiplier": 30.0, "steps": 1, "trust": "aggregate", "shares": 3}
    for number, who in enumerate(("00", "01", "02")):
        send(who, 1, [event(number, "client", **shared)])
    found = units(tmp_path / "run")
    assert found["client"]["epsilon"]["pld"] == near(by_hand((1, 30, 1)))
    assert found["person"]["epsilon"]["pld"] == near(by_hand((1, 30 / 6, 1)))
    assert found["person"]["if_disjoint"]["pld"] == near(by_hand((1, 15, 1)))


def test_own_and_server_noise_are_one_composition(send, units, tmp_path):
    send("00", 1, [event(1)])
    send("server", 1, [event(1), event(2, "client", sampling_rate=1.0, noise_multiplier=8.0, steps=1, trust="server")])
    found = units(tmp_path / "run")
    assert found["person"]["epsilon"]["pld"] == near(by_hand((0.1, 2, 100), (1, 4, 1)))


def test_from_the_server_alone_nobody_knows_how_many_share_a_person(send, units):
    noised = event(1, "client", sampling_rate=1.0, noise_multiplier=8.0, steps=1, trust="server")
    found = units(send("server", 1, [noised]))
    assert found["client"]["epsilon"]["pld"] == near(by_hand((1, 8, 1)))
    assert found["person"]["epsilon"]["pld"] == "inf"
    assert "cannot be seen here" in found["person"]["why"][0]["reason"]
    assert found["person"]["if_disjoint"]["pld"] == near(by_hand((1, 4, 1)))


def test_too_little_noise_for_a_smaller_unit_is_no_error(send, units, tmp_path):
    send("00", 1, [event(1, noise_multiplier=0.001, steps=1)])
    found = units(tmp_path / "run")
    assert found["record"]["epsilon"]["pld"] == "inf"
    assert found["record"]["why"][0]["reason"] == "its noise is too little to say anything about one record"


def test_the_table_says_the_number_and_the_reason(fedsynth, send, tmp_path):
    send("00", 1, [event(1)])
    send("01", 1, [event(2)])
    _, text, _ = fedsynth("account", tmp_path / "run", "--person", "--delta", "1e-5")
    line = next(line for line in text.splitlines() if "at all clients" in line)
    assert float(line.split()[-3]) == near(by_hand((0.1, 2, 200)))
    assert "∞ for one client: 00/message-0001.safetensors (and 1 more): some of its noise is for single people" in text
    assert "If no person is in two clients' data, it is" in text
    code, _, stated = fedsynth("account", "plan", "--person", "--delta", "1e-5")
    assert code == 2 and "--person" in stated
