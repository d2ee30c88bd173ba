"""A server that stops, is killed or has no room: it goes on where it was, and nothing is lost."""

import shutil

import pytest

from artifacts.errors import InputError
from artifacts.writing import atomic


class TestTheServerStopsAndGoesOn:
    def test_from_its_last_whole_round(self, federation, homes, tmp_path):
        terms, split = federation(rounds=3)
        whole = tmp_path / "whole"
        for name, home in split.items():
            shutil.copytree(home, whole / name)
        by_one_go = {name: whole / name for name in split}
        homes.served(terms, by_one_go, homes.ByHand(by_one_go))

        class Killed(Exception):
            pass

        def killed(task, reply):
            if task.round == 2 and task.client == "01":
                raise homes.Killed
            return reply

        with pytest.raises(homes.Killed):
            homes.served(terms, split, homes.ByHand(split, spoil=killed))
        channel = homes.ByHand(split)
        homes.served(terms, split, channel)
        assert {task.round for task in channel.asked} == {2, 3}
        assert homes.united(split) == homes.united(by_one_go)

    def test_a_full_disk_ends_the_run_and_loses_nothing(self, federation, homes, monkeypatch):
        """The client is not to blame, so it is not left out: the run stops, and goes on when there is room."""
        terms, split = federation(rounds=1)
        place = atomic.place

        def full(temporary, path, *, force):
            if split["server"] in path.parents and "message" in path.name:
                with atomic.explained(path):
                    raise OSError(28, "No space left on device")
            place(temporary, path, force=force)

        monkeypatch.setattr(atomic, "place", full)
        with pytest.raises(InputError, match="No space left on device"):
            homes.served(terms, split, homes.ByHand(split))
        assert homes.messages(split, 1) == []
        monkeypatch.undo()
        assert homes.served(terms, split, homes.ByHand(split))[0]["rounds"] == 1


class TestAServerThatIsKilled:
    def test_a_signed_file_is_never_there_without_its_signature(self, federation, homes, monkeypatch):
        terms, split = federation(rounds=1, signed=True)
        place, seen = atomic.place, []

        def killed(temporary, path, *, force):
            inside = split["server"] / "clients" in path.parents
            if inside and seen:
                raise homes.Killed
            seen.extend([path] if inside else [])
            place(temporary, path, force=force)

        monkeypatch.setattr(atomic, "place", killed)
        with pytest.raises(homes.Killed):
            homes.served(terms, split, homes.ByHand(split))
        monkeypatch.undo()
        homes.served(terms, split, homes.ByHand(split))
        files = set(split["server"].glob("clients/*/outbox/*"))
        assert len(files) == 6
        assert seen[0].name.endswith(".intoto.jsonl")

    def test_one_that_dropped_out_of_secure_aggregation_stays_out(self, federation, homes):
        """The list of those who stayed is made: nothing more of the others is wanted in this round."""
        terms, split = federation("fedavg-secure", 1, least_clients=2)

        def spoil(task, reply):
            if "masked" in task.targets[0] and task.client == "02":
                first.absent.add("02")
                return None
            if "survivors" in task.targets[0]:
                raise homes.Killed
            return reply

        first = homes.ByHand(split, spoil=spoil)
        with pytest.raises(homes.Killed):
            homes.served(terms, split, first)
        second = homes.ByHand(split)
        assert homes.served(terms, split, second)[0]["rounds"] == 1
        assert {task.client for task in second.asked} == {"00", "01"}

    def test_one_that_missed_half_of_a_round_is_not_in_the_other_half(self, federation, homes, tmp_path, monkeypatch):
        """SCAFFOLD's server makes a model, then a state: both of the same clients, whatever happens in between."""
        from stages.federate import server

        terms, split = federation("scaffold", 1, least_clients=2)
        whole = {name: shutil.copytree(home, tmp_path / "whole" / name) for name, home in split.items()}
        homes.served(terms, whole, homes.ByHand(whole, absent=["02"]))
        perform = server.perform

        def killed(step, home):
            if step.out == "server/outbox/state-0001.safetensors":
                raise homes.Killed
            return perform(step, home)

        monkeypatch.setattr(server, "perform", killed)
        with pytest.raises(homes.Killed):
            homes.served(terms, split, homes.ByHand(split, absent=["02"]))
        monkeypatch.undo()
        homes.served(terms, split, homes.ByHand(split))
        name = "server/outbox/state-0001.safetensors"
        assert (split["server"] / name).read_bytes() == (whole["server"] / name).read_bytes()


def test_one_run_at_a_time_in_a_home(federation, homes):
    terms, split = federation(rounds=1)

    def second(task, reply):
        with pytest.raises(InputError, match=r"is in use: fedsynth federate .* is at work there"):
            homes.served(terms, split, homes.ByHand(split))
        return reply

    assert homes.served(terms, split, homes.ByHand(split, spoil=second))[0]["rounds"] == 1
