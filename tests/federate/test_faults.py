"""What goes wrong between server and clients: each fault is met by name, and nothing is lost or sent unrecorded.

Tasks and answers go from hand to hand here, so that each fault happens exactly where it should.
"""

import dataclasses
import json
import shutil

import pytest

from artifacts import ledger
from artifacts.errors import InputError, UsageError, VerificationError
from stages.federate.client import answer, log_of
from stages.federate.parcels import ParcelError, check_label, pack
from stages.federate.server import serve
from stages.federate.terms import FILE, Terms, read_terms

CLIENTS = ("00", "01", "02")


def served(terms, homes, channel):
    said = []
    return serve(terms, homes["server"], channel, log=said.append), said


def inputs_of(path):
    from artifacts import tensors_file

    return [ref for ref in tensors_file.read(path).metadata.inputs if ref.kind == "message"]


def messages(homes, round):
    found = homes["server"].glob(f"clients/*/outbox/message-{round:04}.safetensors")
    return sorted(path.parent.parent.name for path in found)


class TestAClientThatIsNotThere:
    def test_the_round_ends_with_those_who_answered(self, federation, homes):
        terms, split = federation(least_clients=2)
        summary, said = served(terms, split, homes.ByHand(split, absent=["02"]))
        assert summary["rounds"] == 2
        assert messages(split, 1) == messages(split, 2) == ["00", "01"]
        assert any("02: left out of round 1: no answer within 1 s" in line for line in said)

    def test_too_few_end_the_run_and_what_came_is_kept(self, federation, homes):
        terms, split = federation(least_clients=3)
        with pytest.raises(InputError, match=r"2 of 3 clients answered as agreed, but the terms want 3. 02: no answer"):
            served(terms, split, homes.ByHand(split, absent=["02"]))
        assert messages(split, 1) == ["00", "01"]
        assert not (split["server"] / "server/outbox/model-0001.safetensors").exists()
        channel = homes.ByHand(split)
        assert served(terms, split, channel)[0]["rounds"] == 2
        assert {task.client for task in channel.asked if task.round == 1} == {"02"}

    def test_one_that_missed_a_round_takes_part_in_the_next(self, federation, homes):
        """SCAFFOLD's client then has no state of the round that it missed, and begins with none."""
        terms, split = federation("scaffold", least_clients=2)
        channel = homes.ByHand(split)
        first_model = split["server"] / "server/outbox/model-0001.safetensors"
        channel.present = lambda: {"00", "02"} | ({"01"} if first_model.exists() else set())
        assert served(terms, split, channel)[0]["rounds"] == 2
        assert (messages(split, 1), messages(split, 2)) == (["00", "02"], ["00", "01", "02"])

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
        assert served(terms, split, channel)[0]["rounds"] == 1
        assert gone
        assert (split["server"] / "server/outbox/model-0001.safetensors").exists()


class TestAnswersThatAreNotAsAgreed:
    def left_out(self, federation, homes, spoil, because, **said):
        terms, split = federation(least_clients=2, rounds=1, **said)
        reply_to = lambda task, reply: spoil(reply) if task.client == "01" and reply.parcels else reply  # noqa: E731
        _, log = served(terms, split, homes.ByHand(split, spoil=reply_to))
        assert messages(split, 1) == ["00", "02"]
        assert any("01: left out of round 1" in line and because in line for line in log), log
        assert not list(split["server"].rglob("*.part"))

    def test_larger_than_agreed(self, federation, homes):
        def spoil(reply):
            return dataclasses.replace(reply, parcels=(with_data(reply.parcels[0], bytes(2_000_000)),))

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
            return dataclasses.replace(reply, parcels=(with_data(reply.parcels[0], bytes_of_model[0]),))

        terms, split = federation(least_clients=2, rounds=1)

        def paths():
            return split["server"].glob("public/model-0000.safetensors")

        replies = lambda task, reply: spoil(reply) if task.client == "01" and reply.parcels else reply  # noqa: E731
        _, log = served(terms, split, homes.ByHand(split, spoil=replies))
        assert any("01: left out" in line and "is a model of round" in line for line in log), log

    def test_rubbish_of_the_right_size_and_digest(self, federation, homes):
        def spoil(reply):
            return dataclasses.replace(reply, parcels=(with_data(reply.parcels[0], b"\xff" * 100),))

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


def with_data(parcel, data):
    from artifacts.digests import sha256_hex

    return dataclasses.replace(parcel, data=data, size=len(data), sha256=sha256_hex(data))


class TestTwiceAndLate:
    def test_a_task_that_comes_twice_is_done_once(self, federation, homes):
        terms, split = federation(rounds=1)
        channel = homes.ByHand(split)
        served(terms, split, channel)
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
        _, said = served(terms, split, channel)
        assert messages(split, 1) == ["00", "01"]
        assert messages(split, 2) == ["00", "01", "02"]
        assert any("02: an answer to round 1 came too late" in line for line in said)

    def test_other_bytes_the_second_time_are_refused(self, federation, homes):
        terms, split = federation(rounds=1)
        channel = homes.ByHand(split)
        served(terms, split, channel)
        from stages.federate.parcels import unpack

        name = "clients/00/outbox/message-0001.safetensors"
        (mine,) = pack(split["00"], [name])
        assert unpack([mine], split["server"], expected=[name], most_bytes=10**6, client="00") == []
        with pytest.raises(ParcelError, match="other bytes than"):
            forged = with_data(mine, b"x" + mine.data)
            unpack([forged], split["server"], expected=[name], most_bytes=10**6, client="00")


class TestTheServerStopsAndGoesOn:
    def test_from_its_last_whole_round(self, federation, homes, tmp_path):
        terms, split = federation(rounds=3)
        whole = tmp_path / "whole"
        for name, home in split.items():
            shutil.copytree(home, whole / name)
        by_one_go = {name: whole / name for name in split}
        served(terms, by_one_go, homes.ByHand(by_one_go))

        class Killed(Exception):
            pass

        def killed(task, reply):
            if task.round == 2 and task.client == "01":
                raise Killed
            return reply

        with pytest.raises(Killed):
            served(terms, split, homes.ByHand(split, spoil=killed))
        channel = homes.ByHand(split)
        served(terms, split, channel)
        assert {task.round for task in channel.asked} == {2, 3}
        assert homes.united(split) == homes.united(by_one_go)

    def test_a_full_disk_ends_the_run_and_loses_nothing(self, federation, homes, monkeypatch):
        """The client is not to blame, so it is not left out: the run stops, and goes on when there is room."""
        from artifacts import atomic

        terms, split = federation(rounds=1)
        place = atomic.place

        def full(temporary, path, *, force):
            if split["server"] in path.parents and "message" in path.name:
                with atomic.explained(path):
                    raise OSError(28, "No space left on device")
            place(temporary, path, force=force)

        monkeypatch.setattr(atomic, "place", full)
        with pytest.raises(InputError, match="No space left on device"):
            served(terms, split, homes.ByHand(split))
        assert messages(split, 1) == []
        monkeypatch.undo()
        assert served(terms, split, homes.ByHand(split))[0]["rounds"] == 1


def test_one_run_at_a_time_in_a_home(federation, homes):
    terms, split = federation(rounds=1)

    def second(task, reply):
        with pytest.raises(InputError, match="another run is at work"):
            served(terms, split, homes.ByHand(split))
        return reply

    assert served(terms, split, homes.ByHand(split, spoil=second))[0]["rounds"] == 1


class TestTheClientRefuses:
    def refused(self, federation, homes, status, change_home=lambda split: None, change_task=lambda task: task):
        terms, split = federation(rounds=1)
        tasks = []
        channel = homes.ByHand(split)
        channel.ask = lambda task: tasks.append(task) or str(len(tasks))
        channel.answers = lambda asked: []
        with pytest.raises(InputError):
            served(terms, split, channel)
        task = next(task for task in tasks if task.client == "00")
        change_home(split)
        reply = answer(change_task(task), split["00"], "00")
        assert (reply.status, reply.parcels) == (status, ())
        outbox = split["00"] / "clients/00/outbox"
        assert not list(outbox.iterdir())
        assert not (split["00"] / "clients/00/egress.jsonl").exists()
        return log_of(split["00"], "00").read_text()

    def test_other_terms(self, federation, homes):
        def change_home(split):
            path = split["00"] / FILE
            path.write_text(path.read_text().replace("local_steps: 1", "local_steps: 2"))

        assert "ask for them" in self.refused(federation, homes, "terms", change_home)

    def test_other_versions(self, federation, homes):
        def change_task(task):
            return dataclasses.replace(task, versions={**task.versions, "torch": "1.0"})

        assert "here are" in self.refused(federation, homes, "versions", change_task=change_task)

    def test_a_task_for_someone_else(self, federation, homes):
        self.refused(federation, homes, "name", change_task=lambda task: dataclasses.replace(task, client="01"))

    @pytest.mark.parametrize(
        "target",
        ["clients/00/private/data.parquet", "clients/01/outbox/message-0001.safetensors", "../x", "/etc/passwd"],
    )
    def test_a_file_that_is_not_its_own_to_send(self, federation, homes, target):
        """Even its own private data, if the plan has no step that makes it."""
        self.refused(federation, homes, "target", change_task=lambda task: dataclasses.replace(task, targets=(target,)))

    def test_a_model_that_is_not_what_its_label_says(self, federation, homes):
        def change_task(task):
            spoilt = dataclasses.replace(task.parcels[0], data=b"x" * task.parcels[0].size)
            return dataclasses.replace(task, parcels=(spoilt, *task.parcels[1:]))

        assert "other bytes" in self.refused(federation, homes, "parcel", change_task=change_task)

    def test_a_roster_by_the_network(self, federation, homes):
        """Whom to trust is nothing that the server may say."""

        def change_task(task):
            sent = dataclasses.replace(task.parcels[0], name="public/roster.json")
            return dataclasses.replace(task, parcels=(sent,))

        self.refused(federation, homes, "parcel", change_task=change_task)

    def test_what_went_wrong_stays_in_its_own_log(self, federation, homes):
        """An error could tell of private data: the server learns one word."""

        def change_home(split):
            (split["00"] / "clients/00/private/data.parquet").write_bytes(b"secret")

        said = self.refused(federation, homes, "failed", change_home)
        assert "data.parquet" in said

    def test_private_files_can_be_made_but_not_sent(self, federation, homes):
        terms, split = federation(rounds=1)
        channel = homes.ByHand(split)
        served(terms, split, channel)
        task = next(task for task in channel.asked if task.client == "00")
        asked = dataclasses.replace(task, targets=("clients/00/private/update-0001.safetensors",))
        assert answer(asked, split["00"], "00").parcels == ()


class TestTheOutboxAndTheGate:
    def test_what_is_sent_is_in_the_ledger_with_these_bytes(self, federation, homes):
        terms, split = federation(rounds=1)
        served(terms, split, homes.ByHand(split))
        name = "clients/00/outbox/message-0001.safetensors"
        (parcel,) = pack(split["00"], [name])
        entry = ledger.read(split["00"] / "clients/00/egress.jsonl").latest("message-0001.safetensors")
        assert entry.sha256 == parcel.sha256
        (split["00"] / "clients/00/egress.jsonl").unlink()
        with pytest.raises(VerificationError, match="does not leave"):
            pack(split["00"], [name])

    def test_a_message_waits_at_the_gate_until_it_is_released(self, federation, homes, fedsynth, monkeypatch):
        from stages.federate import server

        monkeypatch.setattr(server, "_AGAIN", 0.1)
        terms, split = federation(rounds=1, wait=30.0)
        policy = split["01"] / "clients/01/private/policy.yaml"
        policy.write_text("delta: 1.0e-5\nrules: []\n")
        waiting = []

        def spoil(task, reply):
            if task.client == "01" and reply.status == "held":
                waiting.append(reply)
                assert not list((split["01"] / "clients/01/outbox").iterdir())
                code, _, err = fedsynth("release", split["01"] / "clients/01/pending", "--yes", "--not-seen-private")
                assert code == 0, err
            return reply

        summary, said = served(terms, split, homes.ByHand(split, spoil=spoil))
        assert (summary["rounds"], len(waiting)) == (1, 1)
        assert waiting[0].parcels == ()
        assert messages(split, 1) == list(CLIENTS)
        assert any("01: round 1 waits to be released" in line for line in said)


class TestSignatures:
    def test_every_message_comes_with_its_envelope(self, federation, homes):
        terms, split = federation(rounds=1, signed=True)
        served(terms, split, homes.ByHand(split))
        assert len(list(split["server"].glob("clients/*/outbox/*.safetensors.intoto.jsonl"))) == 3

    def test_an_envelope_is_in_the_head_that_the_server_countersigns(self, federation, homes):
        terms, split = federation(rounds=1, signed=True, settings=["receipts=true"])
        served(terms, split, homes.ByHand(split))
        left = ledger.read(split["00"] / "clients/00/egress.jsonl").entries
        assert [entry.kind for entry in left] == ["message", "envelope", "head"]

    @pytest.mark.parametrize("how", ["without an envelope", "by another's key"])
    def test_what_is_not_signed_by_its_client_is_refused(self, federation, homes, how):
        terms, split = federation(rounds=1, signed=True, least_clients=2)

        def spoil(task, reply):
            if task.client != "01" or not reply.parcels:
                return reply
            if how == "without an envelope":
                return dataclasses.replace(reply, parcels=reply.parcels[:1])
            file, envelope = reply.parcels
            line = json.loads(envelope.data.splitlines()[0])
            line["signatures"][0]["sig"] = "AAAA" + line["signatures"][0]["sig"][4:]
            lines = [json.dumps(line, separators=(",", ":")).encode(), *envelope.data.splitlines()[1:]]
            return dataclasses.replace(reply, parcels=(file, with_data(envelope, b"\n".join(lines) + b"\n")))

        _, said = served(terms, split, homes.ByHand(split, spoil=spoil))
        assert messages(split, 1) == ["00", "02"]
        assert any("01: left out of round 1" in line for line in said), said


class TestTerms:
    def test_they_read_as_they_were_written(self, federation):
        terms, split = federation()
        assert read_terms(split["00"] / FILE) == terms
        assert read_terms(split["00"] / FILE).digest == terms.digest

    @pytest.mark.parametrize(
        ("found", "instead", "because"),
        [
            ("seed: 5", "seed: five", "federation.seed has a wrong value"),
            ("least_clients: 3", "least_clients: 4", "from 1 to the number of clients"),
            ("wait: 1.0", "wait: 0", "more than 0 seconds"),
            ("  signed: false\n", "", "must have the keys"),
            ("rounds: 2", "rounds: 0", "at least 1"),
        ],
    )
    def test_others_are_refused(self, federation, found, instead, because):
        _, split = federation()
        path = split["00"] / FILE
        assert found in path.read_text()
        path.write_text(path.read_text().replace(found, instead, 1))
        with pytest.raises((InputError, UsageError), match=because):
            read_terms(path)

    def test_they_say_nothing_of_how_a_simulation_divides_its_data(self, federation):
        terms, _ = federation()
        assert isinstance(terms, Terms)
        assert "partition" not in terms.to_yaml()


def test_labels_are_checked_before_a_byte_is_parsed(federation, homes, monkeypatch):
    """With every reader taken away a wrong label is still refused."""
    terms, split = federation(rounds=1)
    served(terms, split, homes.ByHand(split))
    name = "clients/00/outbox/message-0001.safetensors"
    (mine,) = pack(split["00"], [name])
    from artifacts import any_file

    monkeypatch.setattr(any_file, "scan", None)
    for wrong in ({"size": 3}, {"sha256": "0" * 64}, {"kind": "state"}, {"round": 9}, {"name": "../x"}):
        with pytest.raises((InputError, VerificationError)):
            check_label(dataclasses.replace(mine, **wrong), [name], 10**6)
    check_label(mine, [name], 10**6)
