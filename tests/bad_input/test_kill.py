"""Kill a stage at any moment: no half file, no file without its ledger entry, and the next run completes.

At random moments, a few hundred times. What is left after each system call that changes the disk, one after the other,
is in tests/faults.
"""

import os
import random
import shutil
import signal
import time

import pytest

from artifacts.formats import tensors_file
from artifacts.ledgers import egress
from artifacts.places import Place
from stages.data.params import PartitionParams
from stages.encode import encode
from stages.methods.params.encoding import DeltaEncoding
from stages.partition import partition


def killed_after(seconds, work):
    """Fork, let the child work for so long, kill it. Returns whether it was still at work."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(send, b"!")
            work()
            os._exit(0)
        finally:
            os._exit(1)
    os.read(receive, 1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    os.close(receive)
    os.close(send)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed before it was killed"
    return os.WIFSIGNALED(status)


def check(place):
    """Whatever is in the outbox is whole and recorded; the ledger is whole up to a line that was torn."""
    chain = egress.read(place.ledger)
    recorded = {(entry.file, entry.sha256) for entry in chain.entries}
    for path in place.outbox.iterdir():
        assert (path.name, tensors_file.read(path).sha256) in recorded, f"{path} is not in the ledger"
    return chain


def parts(folder):
    return sorted(folder.rglob("*.part"))


@pytest.fixture
def encoder(run_copy):
    """A client, and its stage `encode` under two settings that give different bytes."""
    place = Place(run_copy / "clients/00")
    out = place.outbox / "message-0001.safetensors"
    model, update = run_copy / "public/model-0000.safetensors", place.private / "update-0001.safetensors"

    def work(tell, *, force):
        encode(model, update, out, params=DeltaEncoding(tell_examples=tell), force=force)

    return place, out, work


@pytest.mark.parametrize("kills", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_encode_killed_again_and_again(encoder, kills):
    place, out, work = encoder
    rng = random.Random(2)

    def forever():
        tell = False
        while True:
            work(tell, force=True)
            tell = not tell

    started = time.perf_counter()
    for tell in (True, False, True):
        work(tell, force=True)
    duration = time.perf_counter() - started
    seen = {"leftover": 0, "torn line": 0, "entry without its file": 0}
    for number in range(kills):
        if number % 30 == 0:  # a long ledger takes long to check
            place.ledger.unlink()
            shutil.rmtree(place.outbox)
            work(True, force=False)
        assert killed_after(rng.uniform(0, duration), forever)
        chain = check(place)
        latest = chain.latest(out.name)
        seen["leftover"] += bool(parts(place.base))
        seen["torn line"] += chain.unfinished_tail
        seen["entry without its file"] += latest.sha256 != tensors_file.read(out).sha256
    # The moment between an entry and its file is short: of a few kills none may hit it.
    assert seen["leftover"] > kills / 60, f"the kills came at idle moments: {seen}"
    assert kills < 300 or seen["entry without its file"] > 0, f"the kills came at idle moments: {seen}"
    work(True, force=True)
    work(False, force=True)
    assert check(place).latest(out.name).sha256 == tensors_file.read(out).sha256
    assert parts(place.base) == [], "leftovers are swept by the next run"


@pytest.mark.parametrize("left", [0, 20])
def test_partition_goes_on_from_a_ledger_whose_first_line_was_cut(tmp_path, forge, left):
    for name in ("whole", "cut"):
        partition("digits", tmp_path / name, params=PartitionParams(clients=3), seed=3)
    ledger = tmp_path / "cut/server/private/spend.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:left])
    (tmp_path / "cut/simulation/partition.json").unlink()
    partition("digits", tmp_path / "cut", params=PartitionParams(clients=3), seed=3)
    assert forge.snapshot(tmp_path / "cut") == forge.snapshot(tmp_path / "whole")


@pytest.mark.parametrize("kills", [pytest.param(5, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.slow)])
def test_partition_killed_at_random_moments_completes_to_the_same_bytes(tmp_path, forge, kills):
    params = PartitionParams(clients=3)

    def work(out):
        partition("digits", out, params=params, seed=3)

    work(tmp_path / "warm-up")
    started = time.perf_counter()
    work(tmp_path / "whole")
    duration = time.perf_counter() - started
    whole = forge.snapshot(tmp_path / "whole")
    rng, met, out = random.Random(4), 0, tmp_path / "run"
    for number in range(kills):
        killed_after((number + rng.random()) / kills * duration, lambda: work(out))
        for name, data in forge.snapshot(out).items():
            begun = name.endswith("spend.jsonl") and whole[name].startswith(data)  # a ledger grows line by line
            assert name.endswith(".part") or begun or data == whole[name], f"{name} is half a file"
        if not (out / "simulation/partition.json").exists():
            met += bool(forge.snapshot(out))
            work(out)
            assert forge.snapshot(out) == whole
        shutil.rmtree(out)
    assert met, "the kills came too early or too late"
