"""`federate status`: by the files of one home, held against what the test itself did."""

import re
import shutil
import subprocess
import time

import pytest

from artifacts.errors import UsageError
from stages.federate.status import status
from stages.federate.step import step
from stages.federate.worker import PartyWorker


@pytest.fixture
def called(federation, tmp_path):
    """Homes of three clients, and what calls one of them."""
    (tmp_path / "drop").mkdir()

    def make(**said):
        _, split = federation(**{"rounds": 1, "wait": 100.0, **said})
        return split, lambda name: step(split[name], str(tmp_path / "drop"), log=lambda text: None)[0]

    return make


def test_what_the_server_and_a_client_say(called):
    split, call = called()
    assert status(split["server"])["last_round"] == "none yet"
    before = time.time()
    call("server")
    found = status(split["server"])
    assert (found["party"], found["rounds"], found["last_round"], found["exchange"]) == ("server", 1, 0, 1)
    assert set(found["waits_for"]) == {"00", "01", "02"}
    assert status(split["00"])["last_answer"] == "none yet"
    call("00")
    call("server")
    found = status(split["server"], delta=1e-5)
    assert set(found["waits_for"]) == {"01", "02"}
    row = next(row for row in found["clients"] if row["client"] == "01")
    assert row["registered"] is True
    assert row["file"] == "message-0001.safetensors"
    when = time.strptime(row["waited_for_since"], "%Y-%m-%d %H:%M:%SZ")
    assert abs(time.mktime(when) - time.timezone - before) < 60, "since the first call, in UTC"
    message = split["00"] / "clients/00/outbox/message-0001.safetensors"
    assert found["bytes_received"] == message.stat().st_size
    assert found["epsilon"] == "∞", "an update without noise"
    mine = status(split["00"])
    assert (mine["last_answer"], mine["bytes_sent"], mine["ended"]) == ("done", message.stat().st_size, False)
    model = split["server"] / "public/model-0000.safetensors"
    assert mine["bytes_received"] == model.stat().st_size
    assert status(split["01"], delta=1e-5)["epsilon"] == "0: nothing has left"


def test_a_secret_draw_is_not_shown(called):
    split, call = called(name="dp-fedavg", settings=("participation=0.5",), least_clients=1)
    call("server")
    found = status(split["server"])
    assert found["waits_for"] == "not shown: who takes part is drawn in secret"
    assert [set(row) for row in found["clients"]] == [{"client", "registered"}] * 3


def test_the_wrong_name_for_a_home(called):
    split, _ = called()
    with pytest.raises(UsageError, match=r"--client 01: .* is the home of 00; it has no key of '01'"):
        status(split["00"], client="01")


def test_units(called, fedsynth, tmp_path):
    """By systemd's own checker, where there is one; of a folder whose name systemd would take apart."""
    split, _ = called()
    drop = tmp_path / 'd r"o%p$'
    drop.mkdir()
    line = ["federate", "units", "--home", split["00"], "--drop", drop, "--every", 60, "-o", tmp_path / "units"]
    assert fedsynth(*line)[0] == 0
    service, timer = tmp_path / "units/fedsynth-00.service", tmp_path / "units/fedsynth-00.timer"
    assert f'--drop "{tmp_path}/d r\\"o%%p$$" --client 00' in service.read_text()
    assert f'"{tmp_path}/d r\\"o%%p$"\n' in service.read_text(), "and variables are not read in lists of paths"
    assert "PrivateNetwork=yes" in service.read_text()
    assert "OnUnitInactiveSec=60" in timer.read_text()
    if shutil.which("systemd-analyze"):
        done = subprocess.run(["systemd-analyze", "verify", service, timer], capture_output=True, text=True)
        assert "fedsynth-00" not in done.stderr, done.stderr
    line[line.index(drop)] = "s3://bucket/drop"
    assert fedsynth(*line, "--force")[0] == 0
    assert "PrivateNetwork" not in service.read_text()


def test_commands(called, fedsynth, tmp_path):
    """Exit codes, as a loop sees them."""
    split, _ = called()
    code, out, _ = fedsynth("federate", "step", "--home", split["00"], "--drop", tmp_path / "drop")
    assert code == 75
    assert re.search(r"state +waiting", out)
    code, out, _ = fedsynth("federate", "status", "--home", split["server"])
    assert code == 0
    assert re.search(r"01 +yes", out)
    code, _, err = fedsynth("federate", "step", "--home", split["00"], "--client", "02", "--drop", tmp_path / "drop")
    assert code == 2
    assert "is the home of 00" in err
    code, _, err = fedsynth("federate", "step", "--home", "s3://bucket/home", "--drop", tmp_path / "drop")
    assert code == 2
    assert "takes no URL" in err
    code, _, err = fedsynth("federate", "step", "--home", split["00"], "--drop", "ftp://x/y")
    assert code == 2
    assert "fedsynth knows s3://" in err


def test_whose_nodes_are_connected(called, tmp_path):
    """What Flower's app tells the server's worker, each time that it looks."""
    split, _ = called()
    assert "connected" not in status(split["server"])
    worker = PartyWorker(split["server"], str(tmp_path / "parcels"), None, shared=False)
    for names in (["00", "02"], ["02"]):
        said, _ = worker.answer({"do": "step", "present": names}, b"")
        assert said["state"] == "waiting"
        assert status(split["server"])["connected"] == names
