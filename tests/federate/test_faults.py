"""What goes wrong between server and clients: each fault is met by name, and nothing is lost or sent unrecorded.

Tasks and answers go from hand to hand here, so that each fault happens exactly where it should.
"""

import dataclasses

import pytest

from artifacts.errors import InputError, VerificationError
from stages.federate.client import answer
from stages.federate.parcels import ParcelError, check_label, pack


class TestAClientThatIsNotThere:
    def test_the_round_ends_with_those_who_answered(self, federation, homes):
        terms, split = federation(least_clients=2)
        summary, said = homes.served(terms, split, homes.ByHand(split, absent=["02"]))
        assert summary["rounds"] == 2
        assert homes.messages(split, 1) == homes.messages(split, 2) == ["00", "01"]
        assert any("02: left out of round 1: no answer within 1 s" in line for line in said)

    def test_too_few_end_the_run_and_what_came_is_kept(self, federation, homes):
        terms, split = federation(least_clients=3)
        with pytest.raises(InputError, match=r"2 of 3 clients answered as agreed, but the terms want 3. 02: no answer"):
            homes.served(terms, split, homes.ByHand(split, absent=["02"]))
        assert homes.messages(split, 1) == ["00", "01"]
        assert not (split["server"] / "server/outbox/model-0001.safetensors").exists()
        channel = homes.ByHand(split)
        assert homes.served(terms, split, channel)[0]["rounds"] == 2
        assert {task.client for task in channel.asked if task.round == 1} == {"02"}

    def test_one_that_missed_a_round_takes_part_in_the_next(self, federation, homes):
        """SCAFFOLD's client then has no state of the round that it missed, and begins with none."""
        terms, split = federation("scaffold", least_clients=2)
        channel = homes.ByHand(split)
        first_model = split["server"] / "server/outbox/model-0001.safetensors"
        channel.present = lambda: {"00", "02"} | ({"01"} if first_model.exists() else set())
        assert homes.served(terms, split, channel)[0]["rounds"] == 2
        assert (homes.messages(split, 1), homes.messages(split, 2)) == (["00", "02"], ["00", "01", "02"])

    def test_secure_aggregation_goes_on_without_one_that_drops_out_under_way(self, federation, homes):
        terms, split = federation("fedavg-secure", 1, least_clients=2)
        gone = []

        def spoil(task, reply):
            if task.client == "02" and any("masked" in name for name in task.targets):
                gone.append(task)
                channel.absent.add("02")
                return None
            return reply

        channel = homes.ByHand(split, spoil=spoil)
        assert homes.served(terms, split, channel)[0]["rounds"] == 1
        assert gone
        assert (split["server"] / "server/outbox/model-0001.safetensors").exists()


class TestAnswersThatAreNotAsAgreed:
    def left_out(self, federation, homes, spoil, because, **said):
        terms, split = federation(least_clients=2, rounds=1, **said)
        reply_to = lambda task, reply: spoil(reply) if task.client == "01" and reply.parcels else reply  # noqa: E731
        _, log = homes.served(terms, split, homes.ByHand(split, spoil=reply_to))
        assert homes.messages(split, 1) == ["00", "02"]
        assert any("01: left out of round 1" in line and because in line for line in log), log
        assert not list(split["server"].rglob("*.part"))

    def test_larger_than_agreed(self, federation, homes):
        def spoil(reply):
            return dataclasses.replace(reply, parcels=(homes.with_data(reply.parcels[0], bytes(2_000_000)),))

        self.left_out(federation, homes, spoil, "agreed were at most 1,000,000", most_bytes=1_000_000)

    def test_other_bytes_than_the_label_says(self, federation, homes):
        def spoil(reply):
            return dataclasses.replace(reply, parcels=(dataclasses.replace(reply.parcels[0], sha256="0" * 64),))

        self.left_out(federation, homes, spoil, "other bytes than its label")

    def test_of_another_round(self, federation, homes):
        def spoil(reply):
            return dataclasses.replace(reply, parcels=(dataclasses.replace(reply.parcels[0], round=7),))

        self.left_out(federation, homes, spoil, "of round 7")

    def test_of_another_kind(self, federation, homes):
        def spoil(reply):
            return dataclasses.replace(reply, parcels=(dataclasses.replace(reply.parcels[0], kind="model"),))

        self.left_out(federation, homes, spoil, "labelled as a model")

    def test_a_label_that_the_file_itself_contradicts(self, federation, homes):
        """The label fits what was asked for, the file does not: it is found once it is opened."""
        model = []

        def spoil(reply):
            bytes_of_model = model or [next((path.read_bytes() for path in paths()), b"")]
            return dataclasses.replace(reply, parcels=(homes.with_data(reply.parcels[0], bytes_of_model[0]),))

        terms, split = federation(least_clients=2, rounds=1)

        def paths():
            return split["server"].glob("public/model-0000.safetensors")

        replies = lambda task, reply: spoil(reply) if task.client == "01" and reply.parcels else reply  # noqa: E731
        _, log = homes.served(terms, split, homes.ByHand(split, spoil=replies))
        assert any("01: left out" in line and "is a model of round" in line for line in log), log

    def test_rubbish_of_the_right_size_and_digest(self, federation, homes):
        def spoil(reply):
            return dataclasses.replace(reply, parcels=(homes.with_data(reply.parcels[0], b"\xff" * 100),))

        self.left_out(federation, homes, spoil, "message-0001")

    def test_a_file_that_nobody_asked_for(self, federation, homes):
        def spoil(reply):
            more = dataclasses.replace(reply.parcels[0], name="clients/00/outbox/message-0001.safetensors")
            return dataclasses.replace(reply, parcels=(*reply.parcels, more))

        self.left_out(federation, homes, spoil, "was not asked for")

    def test_in_anothers_name(self, federation, homes):
        self.left_out(
            federation, homes, lambda reply: dataclasses.replace(reply, client="00"), "another client or round"
        )

    def test_no_files_at_all(self, federation, homes):
        self.left_out(federation, homes, lambda reply: dataclasses.replace(reply, parcels=()), "sent no clients/01")


class TestTwiceAndLate:
    def test_a_task_that_comes_twice_is_done_once(self, federation, homes):
        terms, split = federation(rounds=1)
        channel = homes.ByHand(split)
        homes.served(terms, split, channel)
        book = split["00"] / "clients/00/egress.jsonl"
        before, first = book.read_bytes(), next(task for task in channel.asked if task.client == "00")
        again = answer(first, split["00"], "00")
        assert again.status == "done"
        assert book.read_bytes() == before
        assert again.parcels[0].data == (split["00"] / again.parcels[0].name).read_bytes()

    def test_a_late_answer_is_left_out_and_said_to_be_late(self, federation, homes):
        terms, split = federation(least_clients=2, wait=1.5)
        held = []

        def answers(asked):
            ready = original(asked)
            if channel.asked[-1].round == 1:
                held.extend(item for item in ready if item[1].client == "02")
                return [item for item in ready if item[1].client != "02"]
            return [*ready, *(held.pop() for _ in list(held))]

        channel = homes.ByHand(split)
        original, channel.answers = channel.answers, answers
        _, said = homes.served(terms, split, channel)
        assert homes.messages(split, 1) == ["00", "01"]
        assert homes.messages(split, 2) == ["00", "01", "02"]
        assert any("02: an answer to round 1 came too late" in line for line in said)

    def test_other_bytes_the_second_time_are_refused(self, federation, homes):
        terms, split = federation(rounds=1)
        channel = homes.ByHand(split)
        homes.served(terms, split, channel)
        from stages.federate.parcels import unpack

        name = "clients/00/outbox/message-0001.safetensors"
        (mine,) = pack(split["00"], [name])
        assert unpack([mine], split["server"], expected=[name], most_bytes=10**6, client="00") == []
        with pytest.raises(ParcelError, match="other bytes than"):
            forged = homes.with_data(mine, b"x" + mine.data)
            unpack([forged], split["server"], expected=[name], most_bytes=10**6, client="00")


def test_labels_are_checked_before_a_byte_is_parsed(federation, homes, monkeypatch):
    """With every reader taken away a wrong label is still refused."""
    terms, split = federation(rounds=1)
    homes.served(terms, split, homes.ByHand(split))
    name = "clients/00/outbox/message-0001.safetensors"
    (mine,) = pack(split["00"], [name])
    from artifacts.formats import any_file

    monkeypatch.setattr(any_file, "scan", None)
    for wrong in ({"size": 3}, {"sha256": "0" * 64}, {"kind": "state"}, {"round": 9}, {"name": "../x"}):
        with pytest.raises((InputError, VerificationError)):
            check_label(dataclasses.replace(mine, **wrong), [name], 10**6)
    check_label(mine, [name], 10**6)
