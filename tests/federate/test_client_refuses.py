"""What a client refuses to do or to send, and what it records of what it sends."""

import dataclasses
import json

import pytest

from artifacts.errors import InputError, VerificationError
from artifacts.ledgers import egress
from stages.federate.client import answer, log_of
from stages.federate.parcels import pack
from stages.federate.terms import FILE

CLIENTS = ("00", "01", "02")


class TestTheClientRefuses:
    def refused(self, federation, homes, status, change_home=lambda split: None, change_task=lambda task: task):
        terms, split = federation(rounds=1)
        tasks = []
        channel = homes.ByHand(split)
        channel.ask = lambda task: tasks.append(task) or str(len(tasks))
        channel.answers = lambda asked: []
        with pytest.raises(InputError):
            homes.served(terms, split, channel)
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
        homes.served(terms, split, channel)
        task = next(task for task in channel.asked if task.client == "00")
        asked = dataclasses.replace(task, targets=("clients/00/private/update-0001.safetensors",))
        assert answer(asked, split["00"], "00").parcels == ()


class TestTheOutboxAndTheGate:
    def test_what_is_sent_is_in_the_ledger_with_these_bytes(self, federation, homes):
        terms, split = federation(rounds=1)
        homes.served(terms, split, homes.ByHand(split))
        name = "clients/00/outbox/message-0001.safetensors"
        (parcel,) = pack(split["00"], [name])
        entry = egress.read(split["00"] / "clients/00/egress.jsonl").latest("message-0001.safetensors")
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

        summary, said = homes.served(terms, split, homes.ByHand(split, spoil=spoil))
        assert (summary["rounds"], len(waiting)) == (1, 1)
        assert waiting[0].parcels == ()
        assert homes.messages(split, 1) == list(CLIENTS)
        assert any("01: round 1 waits to be released" in line for line in said)


class TestSignatures:
    def test_every_message_comes_with_its_envelope(self, federation, homes):
        terms, split = federation(rounds=1, signed=True)
        homes.served(terms, split, homes.ByHand(split))
        assert len(list(split["server"].glob("clients/*/outbox/*.safetensors.intoto.jsonl"))) == 3

    def test_an_envelope_is_in_the_head_that_the_server_countersigns(self, federation, homes):
        terms, split = federation(rounds=1, signed=True, settings=["receipts=true"])
        homes.served(terms, split, homes.ByHand(split))
        left = egress.read(split["00"] / "clients/00/egress.jsonl").entries
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
            return dataclasses.replace(reply, parcels=(file, homes.with_data(envelope, b"\n".join(lines) + b"\n")))

        _, said = homes.served(terms, split, homes.ByHand(split, spoil=spoil))
        assert homes.messages(split, 1) == ["00", "02"]
        assert any("01: left out of round 1" in line for line in said), said
