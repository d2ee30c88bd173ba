"""An audit while the client is at work: honest work is never accused, and what is wrong is still found."""

import json
import os
import shutil
import signal
import time

import pytest

from fedsynth_cli.app import run as run_command_line
from stages.audit import audit, snapshot


@pytest.fixture
def client(run_copy):
    return run_copy / "clients/01"


@pytest.fixture
def send(run_copy, client):
    """Encode an update into the outbox, as a client does."""

    def call(name, *options, update="update-0001.safetensors", model="public/model-0000.safetensors"):
        words = [
            "encode",
            run_copy / model,
            client / "private" / update,
            "-o",
            client / "outbox" / name,
            *options,
            "-q",
        ]
        assert run_command_line([str(word) for word in words]) == 0

    return call


@pytest.fixture
def meanwhile(monkeypatch):
    """Something happens when the first file of an outbox has been listed and is about to be read; or after it was."""

    def call(work, *, after=False, times=1):
        look, left = snapshot.look_at, [None] * times

        def looking(path, watch):
            if left and not after:
                left.pop()
                work()
            found = look(path, watch)
            if left and after:
                left.pop()
                work()
            return found

        monkeypatch.setattr(snapshot, "look_at", looking)

    return call


def failures(report):
    return {(f.check, f.where.rsplit("/", 1)[-1]) for f in report.findings if f.level == "failure"}


def test_a_file_that_comes_meanwhile(run_copy, send, meanwhile):
    meanwhile(lambda: send("late.safetensors"))
    assert audit(run_copy).passed


@pytest.mark.parametrize("after", [False, True])
def test_a_file_that_is_sent_away_meanwhile(run_copy, client, meanwhile, after):
    meanwhile(lambda: [path.unlink(missing_ok=True) for path in (client / "outbox").iterdir()], after=after)
    report = audit(run_copy)
    assert report.passed, report.findings
    assert any("sent or unfinished" in f.what for f in report.findings) or after


@pytest.mark.parametrize("after", [False, True])
def test_a_file_that_is_replaced_meanwhile(client, send, meanwhile, after):
    """The bytes are read before the ledger has them, or the ledger knows two."""
    meanwhile(lambda: send("message-0001.safetensors", "--tell-examples", "--tell-steps", "--force"), after=after)
    report = audit(client)
    assert report.passed, report.findings


def test_a_whole_round_that_comes_meanwhile(run_copy, client, send, meanwhile):
    """The server sends a model, the client trains on it: nothing of it was there when the audit began."""

    def work():
        messages = sorted(run_copy.glob("clients/*/outbox/message-0001.safetensors"))
        model = run_copy / "server/outbox/other.safetensors"
        lines = [
            ["aggregate", run_copy / "public/model-0000.safetensors", *messages, "--server-rate", "0.5", "-o", model],
            ["train-client", model, client / "private/data.parquet", "--local-epochs", "1",
             "-o", client / "private/other.safetensors"],
        ]  # fmt: skip
        for words in lines:
            assert run_command_line([str(word) for word in [*words, "-q"]]) == 0
        send("other.safetensors", update="other.safetensors", model="server/outbox/other.safetensors")

    meanwhile(work)
    report = audit(run_copy)
    assert report.passed, report.findings


def test_an_unrecorded_file_is_found_while_others_come_and_go(run_copy, client, send, meanwhile):
    shutil.copy(client / "outbox/message-0001.safetensors", client / "outbox/extra.safetensors")
    meanwhile(lambda: send("late.safetensors"))
    assert failures(audit(run_copy)) == {("ledger", "extra.safetensors")}


def test_an_unrecorded_file_that_is_taken_away_in_time_was_there_all_the_same(run_copy, client, meanwhile):
    extra = client / "outbox/extra.safetensors"
    shutil.copy(client / "outbox/message-0001.safetensors", extra)
    meanwhile(lambda: extra.unlink(missing_ok=True))
    assert failures(audit(run_copy)) == {("ledger", "extra.safetensors")}


def test_a_wrong_file_that_is_exchanged_at_every_look_does_not_pass(client, meanwhile, fedsynth):
    """Who keeps an auditor from looking gains no verdict."""
    path = client / "outbox/message-0001.safetensors"
    wrong = bytearray(path.read_bytes())
    wrong[-1] ^= 1

    def exchange():
        path.unlink()
        path.write_bytes(wrong)
        os.utime(path, ns=(time.time_ns(), time.time_ns()))

    exchange()
    meanwhile(exchange, after=True, times=100)
    code, out, err = fedsynth("audit", client)
    assert code == 6 and "INCOMPLETE: 1 thing could not be checked" in err
    assert "UNKNOWN   digest" in out and "replaced each time it was looked at" in out


def at_work(run, client):
    """A client that never stops: new files, some sent away, one replaced again and again."""
    base = ["encode", run / "public/model-0000.safetensors", client / "private/update-0001.safetensors", "-q", "-o"]
    for number in range(10**6):
        words = [[*base, client / f"outbox/new-{number}.safetensors"]]
        if number % 3 == 0:
            words.append(
                [*base, client / "outbox/message-0001.safetensors", "--force", *["--tell-steps"][: number % 2]]
            )
        for line in words:
            assert run_command_line([str(word) for word in line]) == 0
        if number % 10 == 9:
            for path in (client / "outbox").glob("new-*"):
                path.unlink()


@pytest.mark.parametrize("audits", [15, pytest.param(300, marks=pytest.mark.slow)])
def test_no_false_alarm_while_a_client_works(run_copy, client, audits):
    child = os.fork()
    if not child:
        at_work(run_copy, client)
    try:
        for number in range(audits):
            report = audit(run_copy if number % 2 else client)
            assert report.passed, json.dumps(report.to_json()["findings"], indent=1)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
