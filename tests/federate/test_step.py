"""A federation by files alone: each party is called, does what it can, and ends. The files are those of `run`."""

import contextlib
import dataclasses
import errno
import itertools
import os
import shutil
import types

import pytest

from artifacts.errors import InputError, UsageError
from artifacts.identity import keys
from artifacts.writing import atomic, locks
from stages.federate import channel
from stages.federate.client import log_of
from stages.federate.drop import DropFolder, Label
from stages.federate.party import Party
from stages.federate.sealed import address_of, seal
from stages.federate.step import step
from stages.recipes.recipe import change, load_recipe
from stages.run_folder.charges import read_charges

SETTINGS = (
    "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null", "partition.clients=2",
    "train-client.local_epochs=null", "train-client.local_steps=2", "receipts=true",
)  # fmt: skip
PARTIES = ("server", "00", "01")


@pytest.fixture(scope="module")
def begun(tmp_path_factory, homes):
    """Two clients on digits, with identities and roster, before their first round."""
    recipe = change(load_recipe("fedavg"), SETTINGS, 2)
    return recipe, homes.prepared(recipe, tmp_path_factory.mktemp("step") / "begun", 3)


@pytest.fixture(scope="module")
def by_run(begun, tmp_path_factory, homes, run_on_one_worker):
    """The digests of all files of `run`."""
    recipe, folder = begun
    out = tmp_path_factory.mktemp("by-run") / "run"
    shutil.copytree(folder, out)
    run_on_one_worker(recipe, out, seed=3)
    return homes.digests(out)


class Parties:
    """Homes and a drop folder; `call` is what cron does."""

    def __init__(self, terms, split, drop):
        self.terms, self.homes, self.drop = terms, split, drop
        self.said = []

    def call(self, name):
        """True when its part is at its end."""
        return step(self.homes[name], str(self.drop), log=self.said.append)[0]

    def rounds(self, order=PARTIES, most=40):
        """In turns, until all are done."""
        for _ in range(most):
            done = [self.call(name) for name in order]
            if all(done):
                return
        raise AssertionError(self.said)

    def until(self, name, condition):
        """Everybody in turns, until this is so, just before this one is called."""
        for party in itertools.islice(itertools.cycle(PARTIES), 60):
            if party == name and condition():
                return
            self.call(party)
        raise AssertionError(self.said)

    def parcels(self, end=""):
        return sorted(path for path in self.drop.iterdir() if path.name.endswith(f"{end}.sealed"))


@pytest.fixture
def federation(begun, homes, tmp_path):
    def make(**said):
        recipe, folder = begun
        terms = homes.terms_for(recipe, folder, seed=3, **said)
        drop = tmp_path / "drop"
        drop.mkdir()
        return Parties(terms, homes.split(folder, terms, tmp_path / "homes"), drop)

    return make


@pytest.mark.parametrize(
    "order", [PARTIES, pytest.param(("01", "01", "00", "server", "server"), marks=pytest.mark.slow)]
)
def test_the_homes_hold_what_run_would_have_written(order, federation, homes, by_run):
    """In turns and in odd orders, each called more often than needed, and again at its end."""
    found = federation(signed=False)
    found.rounds(order)
    assert homes.united(found.homes) == by_run
    before = {path: path.read_bytes() for path in found.parcels()}
    assert all(found.call(name) for name in order)
    assert {path: path.read_bytes() for path in found.parcels()} == before
    assert found.said == [text for text in found.said if text.startswith("round ")]


def test_who_waits_says_so_and_changes_nothing(federation):
    found = federation()
    assert not found.call("00")
    assert not found.parcels()
    assert not found.call("server")
    first = found.parcels()
    assert len(first) == 2
    assert len({path.stat().st_size for path in first}) == 1
    assert not found.call("server")
    assert found.parcels() == first


@pytest.mark.slow
def test_names_and_bytes_in_the_folder_tell_nothing(federation):
    found = federation()
    found.until("server", lambda: found.parcels("-to-server"))
    for path in found.parcels():
        data = path.read_bytes()
        assert b"safetensors" not in data
        assert b"message" not in data


@pytest.mark.slow
def test_a_client_killed_between_its_files_and_its_answer(federation, homes, by_run, monkeypatch):
    found = federation()
    found.until("00", lambda: found.parcels("-server-to-00"))
    with monkeypatch.context() as patch:
        patch.setattr(Party, "seal", _killed)
        with pytest.raises(KeyboardInterrupt):
            found.call("00")
    found.rounds()
    assert homes.united(found.homes) == by_run


@pytest.mark.slow
def test_a_client_killed_before_its_answer_is_in_the_folder(federation, homes, by_run, monkeypatch):
    found = federation()
    found.until("00", lambda: found.parcels("-server-to-00"))
    with monkeypatch.context() as patch:
        patch.setattr(DropFolder, "keep", _killed)
        with pytest.raises(KeyboardInterrupt):
            found.call("00")
    assert not found.parcels("-00-to-server")
    found.rounds()
    assert homes.united(found.homes) == by_run


@pytest.mark.slow
@pytest.mark.parametrize("what", [(Party, "seal"), (Party, "remember"), (DropFolder, "keep"), (atomic, "place")])
def test_a_server_killed_at_each_step(what, federation, homes, by_run, monkeypatch):
    """After any number of calls of each function that writes: the next call goes on."""
    found = federation()
    owner, name = what
    for after in (0, 1, 3):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, _killed_after(after, getattr(owner, name)))
            try:
                found.call("server")
            except KeyboardInterrupt:
                found.said.append("killed")
        found.call("00")
        found.call("01")
    assert "killed" in found.said
    found.rounds()
    assert homes.united(found.homes) == by_run


def _killed(*given, **more):
    raise KeyboardInterrupt


def _killed_after(count, function):
    calls = itertools.count()

    def call(*given, **more):
        if next(calls) >= count:
            raise KeyboardInterrupt
        return function(*given, **more)

    return call


def test_parcels_cut_foreign_duplicate_and_renamed(federation, homes, by_run, tmp_path):
    """Each is refused in a sentence, and the rest goes on; what was cut is sent again by its sender."""
    found = federation()
    found.until("server", lambda: len(found.parcels("-to-server")) == 2)
    one, other = found.parcels("-to-server")
    whole = one.read_bytes()
    first = tmp_path / "first"
    first.write_bytes(whole)
    # cut on the way
    one.write_bytes(whole[: len(whole) // 2])
    assert not found.call("server")
    assert "not signed by '00': changed or cut on its way" in found.said[-1]
    # another client's answer under this name
    shutil.copy(other, one)
    assert not found.call("server")
    assert "it is from '01'; one from '00' is waited for" in found.said[-1]
    # nothing of ours at all
    one.write_bytes(b"hello" * 1000)
    assert not found.call("server")
    assert "no sealed parcel" in found.said[-1]
    # a stranger's
    stranger = found.drop / one.name.replace("-00-to", "-99-to")
    shutil.copy(other, stranger)
    assert not found.call("server")
    assert "'99' is not a client by the terms" in " ".join(found.said[-2:])
    stranger.unlink()
    assert not found.call("00")  # whose answer it is puts it right
    assert one.read_bytes() == whole
    found.said.clear()
    found.until("server", lambda: len(found.parcels("-to-server")) == 2 and not one.exists())
    # an answer to an earlier exchange: another one than was taken, and the same under the name of the newest
    one.write_bytes(whole[:-1])
    newest = found.parcels("-00-to-server")[-1]
    kept = newest.read_bytes()
    shutil.copy(first, newest)
    found.said.clear()
    found.call("server")
    assert any("it is late or replayed: of exchange 1, round 1" in text for text in found.said)
    assert any(f"{one.name} was refused: it comes too late, or again; the exchange is" in text for text in found.said)
    newest.write_bytes(kept)
    shutil.copy(first, one)
    found.rounds()
    assert homes.united(found.homes) == by_run


@pytest.mark.slow
def test_a_task_again_or_of_another_federation(federation, homes, by_run):
    found = federation()
    found.call("server")
    (task,) = found.parcels("-server-to-00")
    (theirs,) = found.parcels("-server-to-01")
    first = task.read_bytes()
    shutil.copy(theirs, task)
    assert not found.call("00")
    assert "addressed to '01', not to '00'" in found.said[-1]
    task.write_bytes(first)
    party = Party.at(found.homes["server"], str(found.drop), None)
    label = Label(1, "server", "00")
    for word, because in (("federation", "of another federation, 'x'"), ("terms", "under other terms, x")):
        address = dataclasses.replace(party.address(label, 1), **{word: "x"})
        task.write_bytes(seal(b"", address, size=4096, key=party.key, roster=party.roster))
        assert not found.call("00")
        assert because in found.said[-1]
    # by one who is in the roster, in the server's name
    other = keys.read(found.homes["01"] / "clients/01/private/client.key")
    task.write_bytes(seal(b"", party.address(label, 1), size=4096, key=other, roster=party.roster))
    assert not found.call("00")
    assert "not signed by 'server'" in found.said[-1]
    task.write_bytes(first)
    found.until("00", lambda: len(found.parcels("-server-to-00")) == 1 and not task.exists())
    found.call("00")
    task.write_bytes(first)
    assert not found.call("00")
    assert "it comes too late, or again: exchange 2 was answered" in found.said[-1]
    task.unlink()
    found.rounds()
    assert homes.united(found.homes) == by_run


def test_a_second_task_of_the_same_exchange_is_refused(federation):
    """By the server's own key: an answer would be a second one to the same question."""
    found = federation()
    found.call("server")
    found.call("00")
    (task,) = found.parcels("-server-to-00")
    party = Party.at(found.homes["server"], str(found.drop), None)
    address = address_of(task.read_bytes())
    task.write_bytes(seal(b"{}", address, size=4096, key=party.key, roster=party.roster))
    assert not found.call("00")
    assert "exchange 1 was answered already" in found.said[-1]


@pytest.fixture
def clock(monkeypatch):
    """The server's clock, by which it waits from call to call: `clock(seconds)` sets it forward, or back."""
    now = [1e9]
    monkeypatch.setattr(channel, "time", types.SimpleNamespace(time=lambda: now[0]))

    def move(seconds):
        now[0] += seconds

    return move


@pytest.mark.slow
def test_a_client_that_never_comes_is_left_out_after_the_wait(federation, homes, clock):
    """Counted by the clock from call to call, not by one process; it comes back for the next round."""
    found = federation(wait=1000.0, least_clients=1)
    found.call("server")
    found.call("00")
    clock(900)
    assert not found.call("server")
    assert not any("left out" in text for text in found.said)
    clock(200)
    found.call("server")
    assert any("01: left out of round 1: no answer within 1000 s" in text for text in found.said)
    found.rounds(("00", "01", "server"))
    assert homes.messages(found.homes, 1) == ["00"]
    assert homes.messages(found.homes, 2) == ["00", "01"]


@pytest.mark.slow
def test_too_few_end_the_call_and_the_next_one_asks_again(federation, homes, by_run, clock):
    found = federation(wait=1000.0)
    found.call("server")
    found.call("00")
    clock(1100)
    with pytest.raises(InputError, match="1 of 2 clients answered as agreed, but the terms want 2"):
        found.call("server")
    assert not found.call("server"), "which waits anew"
    found.call("01")
    found.rounds()
    assert homes.united(found.homes) == by_run


@pytest.mark.slow
def test_a_clock_that_is_set_back_and_a_server_that_moves(federation, homes, by_run, clock):
    """A day back: nobody is left out. The server's home on another machine goes on; so does an emptied drop folder."""
    found = federation(wait=1000.0)
    found.call("server")
    clock(-86400)
    found.call("00")
    assert not found.call("server")
    moved = found.homes["server"].with_name("elsewhere")
    shutil.copytree(found.homes["server"], moved)
    shutil.rmtree(found.homes["server"])
    found.homes["server"] = moved
    for path in found.parcels():
        path.unlink()
    found.call("server")
    assert len(found.parcels("-to-01")) == 1, "its last parcel is there again"
    found.rounds()
    assert homes.united(found.homes) == by_run


def test_a_clock_that_was_a_day_ahead_when_the_wait_began(federation, homes, clock):
    """Set right, the wait begins anew: one that never comes is not waited for a day longer."""
    found = federation(wait=1000.0, least_clients=1)
    clock(86400)
    found.call("server")
    found.call("00")
    clock(-86400)
    assert not found.call("server")
    assert homes.messages(found.homes, 1) == ["00"]
    clock(999)
    assert not found.call("server")
    assert not any("01: left out" in text for text in found.said)
    clock(2)
    assert not found.call("server")
    assert any("01: left out of round 1: no answer within 1000 s" in text for text in found.said)
    assert not found.call("server")
    assert (found.homes["server"] / "server/outbox/model-0001.safetensors").exists()


@pytest.mark.slow
def test_a_clock_that_jumps_a_day_ahead(federation, homes, by_run, clock):
    """All who were asked are taken for late: the call ends and says so, and the next one waits for them anew."""
    found = federation(wait=1000.0)
    found.call("server")
    clock(86400)
    assert not found.call("server")
    with pytest.raises(InputError, match="0 of 2 clients answered as agreed"):
        found.call("server")
    found.rounds()
    assert homes.united(found.homes) == by_run


@pytest.mark.slow
@pytest.mark.parametrize("name", ["server", "00"])
def test_a_disk_that_is_full(name, federation, homes, by_run, monkeypatch):
    """At either end, at each of the first writes of a call: it ends with a sentence, and the next call goes on."""
    found = federation()
    if name != "server":
        found.call("server")
    for after in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", _full_after(after, os.fsync))
            with contextlib.suppress(InputError):
                found.call(name)
    log_of(found.homes["00"], "00").unlink(missing_ok=True)
    for _ in range(4):
        with contextlib.suppress(InputError):  # what was answered meanwhile was a failure; it is asked again
            found.call("00")
            found.call("01")
            found.call("server")
    log_of(found.homes["00"], "00").unlink(missing_ok=True)
    found.rounds()
    assert homes.united(found.homes) == by_run


def _full_after(count, function):
    calls = itertools.count()

    def call(*given):
        if next(calls) >= count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return function(*given)

    return call


@pytest.mark.slow
def test_a_failure_stays_at_home_and_is_reported_there(federation, homes, by_run):
    found = federation()
    found.call("server")
    data = found.homes["00"] / "clients/00/private/data.parquet"
    data.rename(data.with_suffix(".away"))
    with pytest.raises(InputError, match=r"round 1: 00 failed; its own log says why. See .*federate.log"):
        found.call("00")
    assert "data.parquet" in log_of(found.homes["00"], "00").read_text()
    data.with_suffix(".away").rename(data)
    found.call("01")
    with pytest.raises(InputError, match="00: failed; its own log says why"):
        found.call("server")
    log_of(found.homes["00"], "00").unlink()
    found.rounds()
    assert homes.united(found.homes) == by_run


def test_two_at_once_are_one(federation):
    found = federation()
    with locks.held(found.homes["server"] / "server/private", "another", name="step"):
        done, summary = step(found.homes["server"], str(found.drop), log=found.said.append)
    assert not done
    assert "is in use: another" in summary["why"]


def test_whose_home_it_is(federation):
    found = federation()
    call = {"drop": str(found.drop), "log": found.said.append}
    with pytest.raises(UsageError, match=r"--client 01: .* is the home of 00"):
        step(found.homes["00"], client="01", **call)
    with pytest.raises(UsageError, match="--client 07: not in"):
        step(found.homes["00"], client="07", **call)
    shutil.copytree(found.homes["00"] / "clients/00", found.homes["00"] / "clients/01")
    with pytest.raises(UsageError, match=r"client.key is not the key of '01' in .*another party's home"):
        step(found.homes["00"], client="01", **call)
    with pytest.raises(UsageError, match="holds the keys of 2 participants"):
        step(found.homes["00"], **call)
    with pytest.raises(InputError, match="no drop folder at"):
        step(found.homes["01"], str(found.drop / "none"), log=found.said.append)


def test_a_file_that_waits_for_release_keeps_its_task_open(federation, homes):
    found = federation()
    place = found.homes["00"] / "clients/00"
    (place / "private/policy.yaml").write_text("")
    found.call("server")
    done, summary = step(found.homes["00"], str(found.drop), log=found.said.append)
    assert not done
    assert "waits to be released: fedsynth release" in summary["why"]
    assert not found.parcels("-00-to-server")
    assert list((place / "pending").iterdir())


def test_account_at_home_counts_what_was_received_and_blames_nobody(federation):
    """The ledgers of others are with them: their files are none that somebody forgot to enter."""
    found = federation(signed=False)
    found.rounds()
    notes = {name: read_charges([home]).notes for name, home in found.homes.items()}
    assert not [note for said in notes.values() for note in said if "run fedsynth audit" in note]
    assert [note for note in notes["00"] if "server was received" in note]
    assert sum("was received" in note for note in notes["server"]) == 2
