"""`account`: ε from files and ledgers, ∞ where events do not cover a file, plans, curves; without torch."""

import csv
import json
import math
import shutil
import subprocess
import sys

import pytest

from stages.privacy.accountant import calibrated, epsilon, planned
from stages.privacy.events import PrivacyEvent
from stages.privacy.renyi import ORDERS, step_cost

FEDLAP = {"sampling_rate": 0.0256, "noise_multiplier": 1.0, "steps": 200}


def event(number, **changes):
    fields = planned(**FEDLAP).to_json() | {"id": f"{number:064x}"}
    return PrivacyEvent(**fields | changes).to_json()


def cost(steps, delta=1e-5):
    return epsilon([planned(**FEDLAP | {"steps": steps})], delta=delta)


@pytest.fixture
def send(forge, tmp_path):
    """Write a message with these events into a client's outbox."""

    def write(client, round, events, *, disclosures=(), run="run"):
        path = tmp_path / run / "clients" / client / "outbox" / f"message-{round:04d}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        return forge.write_tensors(
            path, kind="message", client=client, round=round, privacy=tuple(events), disclosures=disclosures
        )

    return write


def test_files_of_two_clients(fedsynth_json, send):
    files = [send("00", 1, [event(1)]), send("00", 2, [event(2)]), send("01", 1, [event(3)])]
    found = fedsynth_json("account", *files, "--delta", "1e-5")
    first, second = found["clients"]
    assert (first["client"], first["unit"], first["adjacency"], first["files"], first["trusted"]) == (
        "00", "record", "add-or-remove", 2, ["nobody"],
    )  # fmt: skip
    assert first["epsilon"] == {"pld": cost(400).pld, "rdp": cost(400).rdp}
    assert second["epsilon"]["rdp"] == pytest.approx(2.786, abs=1e-3)
    assert first["rest"] is None
    (total,) = found["across_clients"]
    assert total["if_disjoint"] == first["epsilon"]
    assert total["if_one_is_in_all"] == {"pld": cost(600).pld, "rdp": cost(600).rdp}


def test_of_one_client_nothing_is_said_of_all(fedsynth, send):
    """That others sent something, too, cannot be seen from its files."""
    files = [send("00", 1, [event(1)]), send("01", 1, [event(2)])]
    words = ["account", "--delta", "1e-5"]
    assert "of what this one sent alone" in fedsynth(*words, files[0])[1]
    assert "Over all clients" not in fedsynth(*words, files[0])[1]
    assert "Over all clients, for one record" in fedsynth(*words, *files)[1]


def test_an_event_counts_once_for_all_that_descends_from_it(fedsynth, fedsynth_json, send):
    files = [send("00", 1, [event(1)]), send("00", 2, [event(1)])]
    assert fedsynth_json("account", *files, "--delta", "1e-5")["clients"][0]["epsilon"]["pld"] == cost(200).pld
    send("01", 1, [event(1, steps=7)])
    code, _, err = fedsynth(
        "account", *files, files[0].parents[2] / "01/outbox/message-0001.safetensors", "--delta", 1e-5
    )
    assert code == 3
    assert "steps is 200 and 7" in err


def test_what_is_reported_without_noise_costs_infinity_with_the_rest_beside_it(fedsynth, fedsynth_json, send):
    files = [send("00", 1, [event(1)]), send("00", 2, [event(2)], disclosures=("radius",))]
    (row,) = fedsynth_json("account", *files, "--delta", "1e-5")["clients"]
    assert row["epsilon"] == {"pld": "inf", "rdp": "inf"}
    assert row["rest"]["pld"] == cost(400).pld
    assert row["uncovered"] == [{"file": str(files[1]), "why": "it discloses radius without noise"}]
    code, out, _ = fedsynth("account", *files, "--delta", "1e-5")
    text = " ".join(out.split())
    assert code == 0
    assert "∞" in text
    assert f"{cost(400).pld:.2f}" in text
    assert "it discloses radius without noise" in text


def test_a_run_without_noise_costs_infinity(fedsynth_json, finished_run):
    found = fedsynth_json("account", finished_run, "--delta", "1e-5")
    assert [row["client"] for row in found["clients"]] == ["00", "01", "02"]
    for row in found["clients"]:
        assert (row["epsilon"]["pld"], row["rest"], row["unit"], row["files"]) == ("inf", None, None, 2)
    assert "charged there" in found["notes"][0]


def test_a_file_without_events_or_disclosures_costs_infinity(fedsynth_json, send):
    (row,) = fedsynth_json("account", send("00", 1, []), "--delta", "1e-5")["clients"]
    assert row["epsilon"]["rdp"] == "inf"
    assert row["uncovered"][0]["why"] == "it has no privacy events"


def test_what_was_sent_and_taken_away_or_replaced_stays_charged(fedsynth_json, forge, send, tmp_path):
    run = tmp_path / "run"
    send("00", 1, [event(1)]).unlink()
    send("00", 1, [event(2)])
    again = fedsynth_json("account", run, "--delta", "1e-5")["clients"][0]
    assert (again["files"], again["epsilon"]["pld"]) == (2, cost(400).pld)
    shutil.rmtree(run / "clients/00/outbox")
    (run / "clients/00/outbox").mkdir()
    for target in (run, run / "clients/00"):
        (row,) = fedsynth_json("account", target, "--delta", "1e-5")["clients"]
        assert row["epsilon"]["pld"] == cost(400).pld
    # A file that the ledger does not know is charged too, and said to be so.
    other = send("09", 1, [event(3)], run="elsewhere")
    shutil.copy(other, run / "clients/00/outbox/message-0009.safetensors")
    found = fedsynth_json("account", run, "--delta", "1e-5")
    assert {row["client"] for row in found["clients"]} == {"00", "09"}
    assert any("not in the ledger" in note for note in found["notes"])


def test_units_are_kept_apart(fedsynth_json, send):
    central = event(2, unit="client", trust="server")
    found = fedsynth_json("account", send("00", 1, [event(1), central]), "--delta", "1e-5")
    assert [(row["unit"], row["trusted"]) for row in found["clients"]] == [
        ("client", ["server"]),
        ("record", ["nobody", "server"]),
    ]
    assert found["clients"][0]["epsilon"]["pld"] == "inf", "what is noised for records has no ε for clients"
    assert [total["unit"] for total in found["across_clients"]] == ["client", "record"]


def test_what_a_trusted_server_sends_is_charged_for_all_clients_at_once(fedsynth_json, forge, send, tmp_path):
    """The messages cost ∞ towards the server that is trusted with them; the model costs what its events say."""
    send("00", 1, [], disclosures=("update",))
    model = tmp_path / "run/server/outbox/model-0001.safetensors"
    model.parent.mkdir(parents=True)
    central = event(1, unit="client", trust="server", sampling_rate=0.1, noise_multiplier=0.95)
    forge.write_tensors(model, kind="model", custody="downlink", round=1, privacy=(central,))
    found = fedsynth_json("account", tmp_path / "run", "--delta", 1 / 500)
    client, server = found["clients"]
    assert (client["client"], client["epsilon"]["pld"]) == ("00", "inf")
    assert (server["client"], server["unit"], server["trusted"]) == ("server", "client", ["server"])
    assert server["epsilon"]["rdp"] == pytest.approx(8.514, abs=2e-3)
    (total,) = found["across_clients"]
    assert (total["unit"], total["if_disjoint"]["pld"]) == ("client", "inf")
    assert total["trusting_the_server"] == server["epsilon"]
    assert total["why"].startswith("00/")


def test_other_files(fedsynth, fedsynth_json, forge, finished_run, tmp_path):
    public, update = finished_run / "public/model-0000.safetensors", "clients/00/private/update-0001.safetensors"
    found = fedsynth_json(
        "account", public, finished_run / update, finished_run / "public/test.parquet", "--delta", 0.1
    )
    assert [row["client"] for row in found["clients"]] == ["00"]
    assert [note.split(": ")[0].rsplit(" ", 1)[1] for note in found["notes"]] == ["public", "private", "public"]
    for target, said in ((tmp_path / "no", "no such file"), (tmp_path, "neither a run folder")):
        code, _, err = fedsynth("account", target, "--delta", 0.1)
        assert (code, said in err.lower()) == (3, True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mechanism": "magic"}, "mechanism"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"trust": None}, "trust"),
    ],
)
def test_an_event_that_is_not_understood_is_an_error(fedsynth, send, change, said):
    path = send("00", 1, [event(1) | change])
    code, _, err = fedsynth("account", path, "--delta", "1e-5")
    assert code == 3
    assert said in err
    assert "never taken for nothing" in err


def test_the_curve_over_rounds(fedsynth_json, send, tmp_path):
    files = [send("00", n, [event(n)], disclosures=("update",) if n == 3 else ()) for n in (1, 2, 3)]
    table, picture = tmp_path / "out/epsilon.csv", tmp_path / "out/epsilon.png"
    fedsynth_json("account", *files, "--delta", "1e-5", "--csv", table, "--picture", picture)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["round"] for row in rows] == ["1", "2", "3"]
    assert [float(row["rest_pld"]) for row in rows] == [cost(200 * n).pld for n in (1, 2, 3)]
    assert [row["epsilon_rdp"] == "inf" for row in rows] == [False, False, True]
    first = picture.read_bytes()
    assert first.startswith(b"\x89PNG")
    fedsynth_json("account", *files, "--delta", "1e-5", "--picture", picture, "--force")
    assert picture.read_bytes() == first


def test_a_picture_of_a_run_without_noise(fedsynth_json, finished_run, tmp_path):
    fedsynth_json("account", finished_run, "--delta", "1e-5", "--picture", tmp_path / "e.png")
    assert (tmp_path / "e.png").stat().st_size > 5000


PLAN = ["account", "plan", "--sampling-rate", "0.0256", "--steps", "200", "--delta", "1e-5"]


def test_plan(fedsynth, fedsynth_json, tmp_path):
    found = fedsynth_json(*PLAN, "--noise-multiplier", "1")
    assert found["epsilon"] == {"pld": cost(200).pld, "rdp": cost(200).rdp}
    assert found["noise_multiplier"] == 1.0
    rounds = fedsynth_json(*PLAN, "--noise-multiplier", "1", "--rounds", "15", "--csv", tmp_path / "plan.csv")
    assert rounds["epsilon"]["rdp"] == pytest.approx(10.18, abs=5e-3)
    rows = list(csv.DictReader((tmp_path / "plan.csv").read_text().splitlines()))
    assert len(rows) == 15
    assert float(rows[-1]["epsilon_rdp"]) == rounds["epsilon"]["rdp"]
    code, out, _ = fedsynth(*PLAN, "--noise-multiplier", "1")
    assert code == 0
    assert "ε = 2.384 by privacy loss distributions, 2.787 by Rényi" in out, "rounded up"
    code, out, _ = fedsynth(*PLAN, "--noise-multiplier", "1", "--rounds", "15", "--orders", "papers")
    assert "ε = 9.376 by privacy loss distributions, 10.183 by Rényi" in out, "10.180 on finer orders"
    replaced = fedsynth_json(*PLAN, "--noise-multiplier", "1", "--adjacency", "replace-one")
    assert replaced["epsilon"]["rdp"] == pytest.approx(17.0, abs=0.1)


def test_plan_for_a_target(fedsynth_json):
    found = fedsynth_json(*PLAN, "--target-epsilon", "1.5")
    assert found["epsilon"]["pld"] <= 1.5 < found["epsilon"]["rdp"]
    assert found["noise_multiplier"] == calibrated(1.5, delta=1e-5, sampling_rate=0.0256, steps=200)
    by_rdp = fedsynth_json(*PLAN, "--target-epsilon", "1.5", "--by", "rdp")
    assert by_rdp["epsilon"]["rdp"] <= 1.5
    assert by_rdp["noise_multiplier"] > found["noise_multiplier"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["account", "x"], "--delta"),
        (["account", "x", "--delta", "0"], "between 0 and 1"),
        (["account", "x", "--delta", "0.1", "--steps", "3"], "--steps goes with"),
        (["account", "plan", "--delta", "0.1", "--steps", "3"], "needs --sampling-rate"),
        (PLAN, "either --noise-multiplier or --target-epsilon"),
        ([*PLAN, "--noise-multiplier", "1", "--target-epsilon", "1"], "either"),
        ([*PLAN, "--noise-multiplier", "0"], "noise_multiplier"),
        ([*PLAN, "--target-epsilon", "-1"], "target ε"),
    ],
)
def test_usage_errors(fedsynth, arguments, said):
    code, _, err = fedsynth(*arguments)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) <= 2


def test_outputs_are_not_overwritten(fedsynth, tmp_path):
    (tmp_path / "plan.csv").write_text("mine")
    code, _, err = fedsynth(*PLAN, "--noise-multiplier", "1", "--csv", tmp_path / "plan.csv")
    assert code == 3
    assert "already exists" in err


def test_neither_account_nor_its_help_imports_torch(finished_run):
    lines = [
        ["account", "--help"],
        ["account", str(finished_run), "--delta", "1e-5"],
        [*PLAN, "--noise-multiplier", "1"],
    ]
    code = (
        "import sys\nfrom fedsynth_cli.app import run\n"
        f"lines = {json.dumps(lines)}\n"
        "assert run(lines[0]) == 0\n"
        "assert not {'torch', 'dp_accounting', 'scipy'} & set(sys.modules)\n"
        "assert run(lines[1]) == 0 and run(lines[2]) == 0\n"
        "assert 'dp_accounting' in sys.modules\n"
        "assert not {'torch', 'torchvision', 'opacus', 'diffusers'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_papers_two_rates_are_a_calculation_beside_the_guarantee(fedsynth_json, fedsynth):
    """Theorem A.8 written out with numpy at a few orders; with C = 1 it is the guarantee itself."""
    options = ("--sampling-rate", 0.02, "--steps", 10, "--rounds", 3, "--noise-multiplier", 1.0, "--delta", 1e-5)
    whole = fedsynth_json("account", "plan", *options, "--participation", 1.0)
    assert whole["theorem_a8"]["rdp"] == pytest.approx(whole["epsilon"]["rdp"], rel=1e-6)
    found = fedsynth_json("account", "plan", *options, "--participation", 0.5)
    assert found["epsilon"] == whole["epsilon"] and found["theorem_a8"]["guarantee"] is False
    oracle = min(
        3 * step_cost(0.01, 1.0, order) + 3 * 9 * step_cost(0.02, 1.0, order)
        + math.log((order - 1) / order) - (math.log(1e-5) + math.log(order)) / (order - 1)
        for order in ORDERS
    )  # fmt: skip
    assert found["theorem_a8"]["rdp"] == pytest.approx(oracle, rel=1e-9)
    assert found["theorem_a8"]["rdp"] < found["epsilon"]["rdp"]
    assert fedsynth_json("account", "plan", *options)["theorem_a8"] is None
    for wrong in (0, 1.5):
        assert fedsynth("account", "plan", *options, "--participation", wrong)[0] == 2
