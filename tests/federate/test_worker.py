"""The worker of a party: parcels in pieces, faults in the middle of one, and a process that is kept."""

import os
import signal
import socket
import stat
import time

import pytest

from stages.federate import keeper, worker
from stages.federate.flower_app import wire
from stages.federate.incoming import Piece, take
from stages.federate.worker import PartyWorker

CLIENTS = ("00", "01", "02")
PIECE = 2000


class Carried:
    """What Flower's apps do, in one process: pieces to the clients' workers, and back. `lost` pieces never arrive."""

    def __init__(self, split, tmp_path, monkeypatch):
        monkeypatch.setattr(worker, "_PIECE", PIECE)
        self.split, self.folder = split, tmp_path / "carried"
        self.calls, self.lost, self.state = 0, set(), {}
        self.start()

    def start(self):
        """As after a power cut: nobody remembers anything but files."""
        self.workers = {
            name: PartyWorker(home, str(self.folder / name), None if name == "server" else name, shared=False)
            for name, home in self.split.items()
        }
        self.there, self.back = {}, {}

    def server(self, data=b"", **said):
        return self.workers["server"].answer(said, data)

    def turn(self):
        """One step of the server, and one message to each client; whether the federation is at its end."""
        said, _ = self.server(do="step")
        assert said["state"] in ("done", "waiting"), said
        for parcel in said["parcels"]:
            self.message(parcel)
        return said["state"] == "done"

    def message(self, parcel):
        self.calls += 1
        client, name = parcel["to"], parcel["name"]
        offset = self.there.get(name, 0)
        _, data = self.server(do="read", name=name, offset=offset, most=PIECE)
        if self.calls in self.lost:
            return
        question = {**parcel, "do": "deliver", "offset": offset, "back": self.back.get(name, 0), "most": PIECE}
        said, piece = self.workers[client].answer(question, data)
        self.state[client] = said["state"]
        self.there[name] = said.get("have", 0)
        if "name" in said:
            answer = {key: said[key] for key in ("name", "size", "sha256")}
            taken, _ = self.server(piece, do="write", **{"from": client}, offset=self.back.get(name, 0), **answer)
            self.back[name] = taken["have"]

    def to_the_end(self, most=300):
        for _ in range(most):
            if self.turn():
                return
        raise AssertionError(self.state)


@pytest.fixture
def carried(federation, tmp_path, monkeypatch):
    def make(**said):
        terms, split = federation(**{"wait": 300.0} | said)
        return terms, Carried(split, tmp_path, monkeypatch)

    return make


@pytest.fixture(scope="module")
def by_run(begun, tmp_path_factory, homes, run_on_one_worker):
    """The digests of the models of `run`, of two rounds."""
    import shutil

    from stages.recipes.recipe import change, load_recipe

    out = tmp_path_factory.mktemp("by-run") / "run"
    shutil.copytree(begun, out)
    settings = (
        "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null", "partition.clients=3",
        "train-client.local_epochs=null", "train-client.local_steps=1", "receipts=true",
    )  # fmt: skip
    run_on_one_worker(change(load_recipe("fedavg"), settings, 2), out, seed=5)
    return {name: digest for name, digest in homes.digests(out).items() if name.endswith("/model-0002.safetensors")}


def models(homes, split):
    return {n: d for n, d in homes.digests(split["server"]).items() if n.endswith("/model-0002.safetensors")}


@pytest.mark.slow
def test_lost_pieces_and_power_cuts_change_no_byte(carried, homes, by_run):
    _, federation = carried(settings=("receipts=true",))
    federation.lost = {2, 5, 6, 11}
    for number in range(300):
        if number % 7 == 3:
            federation.start()
        if federation.turn():
            break
    assert models(homes, federation.split) == by_run
    assert len(by_run) == 1
    assert federation.calls > 3 * 2 * 2, "there was more than one piece to a parcel"


def test_a_piece_that_came_is_not_sent_again(carried):
    """After a broken line both ends go on with the piece that is missing."""
    _, federation = carried(rounds=1)
    federation.turn()
    federation.turn()
    first = dict(federation.there)
    assert set(first.values()) == {2 * PIECE}
    federation.start()
    federation.turn()
    assert federation.there == first, "the first piece, sent once more, is answered with what is there"


def test_one_parcel_of_one_size_for_everybody_drawn_or_not(carried):
    _, federation = carried(settings=("participation=0.4",), least_clients=1, rounds=1)
    said, _ = federation.server(do="step")
    assert {parcel["to"] for parcel in said["parcels"]} == set(CLIENTS)
    assert len({parcel["size"] for parcel in said["parcels"]}) == 1


def test_an_answer_in_anothers_name_is_not_taken(carried):
    """A node hands in as its own what another client sealed, and something that nobody sealed."""
    _, federation = carried(rounds=1, least_clients=2, wait=4.0)
    federation.turn()
    while "done" not in federation.state.values():
        federation.turn()
    name = next(name for name in federation.there if "-to-01" in name)
    forged = name.replace("server-to-01", "01-to-server").replace(".sealed", "") + ".sealed"
    rubbish = b"x" * 5000
    import hashlib

    said = {
        "do": "write",
        "from": "02",
        "name": forged,
        "size": 5000,
        "offset": 0,
        "sha256": hashlib.sha256(rubbish).hexdigest(),
    }
    assert federation.server(rubbish, **said)[0]["state"] == "refused"


def test_pieces_that_are_not_what_they_say(federation, tmp_path):
    from artifacts.errors import InputError
    from stages.federate.drop import DropFolder, Label

    drop, label = DropFolder(str(tmp_path), "f"), Label(1, "a", "b")
    for wrong in ({"size": 10**9}, {"offset": 9}, {"sha256": "x"}, {"data": b"12345"}):
        piece = {"size": 4, "sha256": "0" * 64, "offset": 0, "data": b"1234"} | wrong
        with pytest.raises(InputError):
            take(Piece(label, **piece), tmp_path, drop, most_bytes=1000)
    with pytest.raises(InputError, match="other bytes than its digest"):
        take(Piece(label, 4, "0" * 64, 0, b"1234"), tmp_path, drop, most_bytes=1000)
    assert not list(tmp_path.iterdir()), "and nothing of it is kept"


@pytest.fixture
def kept(federation, tmp_path, monkeypatch):
    """A worker of client 00 as a process; its keeper's lines."""

    def make(**bounds):
        _, split = federation(rounds=1)
        lines = []
        context = keeper.kept(split["00"], "00", drop=None, bounds=keeper.WorkerBounds(**bounds), echo=lines.append)
        return context, lines

    monkeypatch.setattr(keeper, "_SECONDS_TO_START", 240.0)
    return make


@pytest.mark.slow
def test_a_worker_that_dies_or_hangs_is_started_anew(kept, monkeypatch):
    context, lines = kept(seconds=1.0)
    with context as started:
        started.wait_until_up()
        path = started.socket
        monkeypatch.setenv(wire.VARIABLE, str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert wire.ask({"do": "nothing"}, patience=60)[0] == {"state": "failed"}
        with socket.socket(socket.AF_UNIX) as line:  # a task that hangs: half a question
            folder = os.open(path.parent, os.O_PATH)
            line.connect(f"/proc/self/fd/{folder}/{path.name}")
            os.close(folder)
            line.sendall(b'{"do": "deliver", "bytes": 10}\n')
            until = time.monotonic() + 60
            while not any(f"by signal {signal.SIGALRM:d}" in text for text in lines):
                assert time.monotonic() < until, lines
                time.sleep(0.1)
        assert wire.ask({"do": "nothing"}, patience=120)[0] == {"state": "failed"}
    assert not path.exists()


@pytest.mark.slow
def test_a_worker_that_has_used_up_its_memory_is_replaced(kept, monkeypatch):
    context, lines = kept(memory=310 * 2**20)
    with context as started:
        started.wait_until_up()
        path = started.socket
        monkeypatch.setenv(wire.VARIABLE, str(path))
        wire.ask({"do": "nothing"}, patience=60)
        until = time.monotonic() + 60
        while not any("ended with code 0" in text for text in lines):
            assert time.monotonic() < until, lines
            wire.ask({"do": "nothing"}, patience=60)
            time.sleep(0.1)
