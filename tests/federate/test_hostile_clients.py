"""A client that lies, and one whose file waits at its gate: what the server makes of their answers."""

import dataclasses
import json

import pytest

from stages.federate.messages import read_reply, reply_bytes
from stages.federate.parcels import ParcelError, Reply

MODEL = "public/model-0000.safetensors"


class TestAClientThatLies:
    def left_out(self, federation, homes, spoil, recipe="fedavg", **said):
        """Client 01 lies, and the round goes on without it; what was said of it."""
        terms, split = federation(recipe, least_clients=2, rounds=1, **said)
        lie = lambda task, reply: spoil(task, reply) if task.client == "01" else reply  # noqa: E731
        channel = homes.ByHand(split, spoil=lie)
        _, log = homes.served(terms, split, channel)
        (line,) = [line for line in log if line.startswith("01: left out of round 1")]
        assert not list(split["server"].glob("clients/01/outbox/*"))
        return line, channel

    @pytest.mark.parametrize("wrong", [{"status": None}, {"round": "first"}, {"names": 3}, {"client": None}])
    def test_an_answer_that_is_not_laid_out_as_agreed(self, wrong):
        line, _, rest = reply_bytes(Reply("done", "01", 1, names=("x",))).partition(b"\n")
        said = json.loads(line)
        for name, value in wrong.items():
            del said[name]
            if value is not None:
                said[name] = value
        with pytest.raises(ParcelError):
            read_reply(json.dumps(said).encode() + b"\n" + rest)

    def test_words_that_would_write_other_lines_into_the_log(self, federation, homes):
        forged = "message\nfedsynth: error: all is well (exit code 0)\x1b[2J" + "x" * 10_000

        def spoil(task, reply):
            return dataclasses.replace(reply, parcels=(dataclasses.replace(reply.parcels[0], kind=forged),))

        line, _ = self.left_out(federation, homes, spoil)
        assert line.isprintable()
        assert len(line) < 1000

    def test_one_that_always_lacks_what_it_was_sent(self, federation, homes):
        """Each time it would be sent all of it again."""
        spoil = lambda task, reply: Reply("lacks", task.client, task.round, names=(MODEL,))  # noqa: E731
        _, channel = self.left_out(federation, homes, spoil, wait=30.0)
        assert len([task for task in channel.asked if task.client == "01"]) <= 2

    def test_half_an_answer_is_not_kept(self, federation, homes):
        """SCAFFOLD's message without its state: after a restart it would count, in a round that went without it."""
        spoil = lambda task, reply: dataclasses.replace(reply, parcels=reply.parcels[:1])  # noqa: E731
        line, _ = self.left_out(federation, homes, spoil, "scaffold")
        assert "sent no clients/01/outbox/state-0001" in line

    def test_a_message_of_no_round(self, federation, homes, tmp_path):
        def spoil(task, reply):
            made = tmp_path / "homes/01"
            forged = homes.rewritten(made, reply.parcels[0].name, tmp_path / "forged", round=None)
            return dataclasses.replace(reply, parcels=(forged,))

        assert "of round None" in self.left_out(federation, homes, spoil)[0]


class TestHeldAndSigned:
    def test_a_signature_waits_at_the_gate_like_its_file(self, federation, homes, fedsynth, monkeypatch):
        """Asked again while it waits, the client still says that it waits."""
        from stages.federate import server

        monkeypatch.setattr(server, "_AGAIN", 0.05)
        terms, split = federation(rounds=1, signed=True, wait=60.0)
        (split["01"] / "clients/01/private/policy.yaml").write_text("delta: 1.0e-5\nrules: []\n")
        pending, held = split["01"] / "clients/01/pending", []

        def spoil(task, reply):
            if task.client == "01" and reply.status == "held":
                held.append(reply.names)
                if held.count(reply.names) == 2:
                    code, _, err = fedsynth("release", pending, "--yes", "--not-seen-private")
                    assert code == 0, err
            return reply

        assert homes.served(terms, split, homes.ByHand(split, spoil=spoil))[0]["rounds"] == 1
        name = "clients/01/outbox/message-0001.safetensors"
        assert held == [(name,)] * 2 + [(f"{name}.intoto.jsonl",)] * 2
        assert (split["server"] / f"{name}.intoto.jsonl").exists()


def test_names_that_lead_out_of_a_home_are_in_no_plan(federation):
    """A client's name is checked in the terms, and every other part of a name is ours."""
    from artifacts.errors import UsageError

    terms, _ = federation()
    for name in ("..", "a/b", "/etc", "", "server", ".hidden"):
        with pytest.raises(UsageError):
            dataclasses.replace(terms, clients=(name, "01", "02"))
