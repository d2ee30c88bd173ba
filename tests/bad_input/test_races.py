"""Two processes that write the same output at once: one wins, the other is told, and the file is whole."""

import os

import pytest

from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.ledgers import egress

TRIES = 20


def race(command_line, *command_lines):
    """Run the command lines at the same moment in as many processes; returns their (exit code, stderr)."""
    gate, start = os.pipe()
    racers = []
    for arguments in command_lines:
        receive, send = os.pipe()
        child = os.fork()
        if not child:
            os.close(start)
            os.read(gate, 1)
            code, err = command_line(*arguments)
            os.write(send, f"{code} {err}".encode())
            os._exit(0)
        os.close(send)
        racers.append((child, receive))
    os.close(gate)
    os.close(start)
    results = []
    for child, receive in racers:
        with os.fdopen(receive) as pipe:
            code, err = pipe.read().split(" ", 1)
        os.waitpid(child, 0)
        results.append((int(code), err))
    return results


def one_wins(results, out):
    (winner,) = [number for number, (code, _) in enumerate(results) if code == 0]
    for number, (code, err) in enumerate(results):
        if number != winner:
            assert code == 3 and f"{out} already" in err and "Traceback" not in err, err
    return winner


@pytest.fixture
def aggregates(run_copy):
    """Two commands that write different models to one place in the server's outbox."""
    out = run_copy / "server/outbox/new.safetensors"
    messages = sorted(run_copy.glob("clients/*/outbox/message-0001.safetensors"))
    base = ["aggregate", run_copy / "public/model-0000.safetensors", *messages, "-o", out, "--server-rate"]
    return [[*base, rate] for rate in ("1.0", "0.5")], out


def test_one_of_two_models_wins_and_it_alone_is_recorded(aggregates, command_line, run_copy):
    commands, out = aggregates
    book, won = run_copy / "server/private/egress.jsonl", set()
    for number in range(TRIES):
        winner = one_wins(race(command_line, *commands), out)
        model = tensors_file.read(out, kind="model")
        assert model.metadata.params["server_rate"] == [1.0, 0.5][winner]
        latest = egress.read(book).latest(out.name)
        assert latest.sha256 == model.sha256
        assert not list(run_copy.rglob("*.part"))
        out.rename(run_copy / f"carried-off-{number}.safetensors")
        won.add(winner)
    assert len(egress.read(book).entries) <= 2 + TRIES


def test_with_force_both_are_recorded_and_the_last_entry_is_the_file_s(aggregates, command_line, run_copy):
    commands, out = aggregates
    for _ in range(TRIES // 2):
        results = race(command_line, *([*command, "--force"] for command in commands))
        assert [code for code, _ in results] == [0, 0], results
        model = tensors_file.read(out, kind="model")
        latest = egress.read(run_copy / "server/private/egress.jsonl").latest(out.name)
        assert latest.sha256 == model.sha256
        assert not list(run_copy.rglob("*.part"))


@pytest.mark.slow
def test_one_of_four_keys_wins(tmp_path, command_line):
    for number in range(TRIES // 2):
        out = tmp_path / f"{number}.key"
        results = race(command_line, *[["keygen", "-o", out]] * 4)
        assert [err for _, err in results].count("") == 1 and keys.read(out)
        for code, err in results:
            # Whoever begins after the winner has ended finds its key, which nobody has used.
            assert (code, err) == (0, "") or (code == 3 and "already holds a key" in err) or "is there already" in err
    assert not list(tmp_path.rglob("*.part"))


def test_four_messages_at_once_all_get_their_entry(run_copy, command_line, commands):
    """Different files of one client, one ledger."""
    arguments, _ = commands(run_copy)["encode-update"]
    client = run_copy / "clients/00"
    for number in range(TRIES // 4):
        outs = [client / f"outbox/{number}-{part}.safetensors" for part in range(4)]
        results = race(command_line, *([*arguments[:-1], out] for out in outs))
        assert [code for code, _ in results] == [0] * 4, results
        chain = egress.read(client / "egress.jsonl")
        assert all(chain.latest(out.name).sha256 == tensors_file.read(out).sha256 for out in outs)
    assert len(chain.entries) == 2 + 4 * (TRIES // 4)


def test_the_same_message_from_two_processes_is_recorded_once(run_copy, command_line, commands):
    arguments, _ = commands(run_copy)["encode-update"]
    book = run_copy / "clients/00/egress.jsonl"
    for _ in range(TRIES // 2):
        results = race(command_line, *[[*arguments, "--force"]] * 2)
        assert [code for code, _ in results] == [0, 0], results
    assert len(egress.read(book).entries) == 3
