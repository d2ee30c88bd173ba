"""`audit --replay`: the same bytes again, nothing charged, nothing left behind; and what only it can catch."""

import numpy as np
from tampering.run import Run

from artifacts import keys, tensors_file
from stages.audit import ReplayOptions, audit

MADE = {"message-0001", "message-0002", "surrogate-0001", "proxy-0001", "state-0001", "noised-0001", "synthetic"}


def replayed(root, **options):
    received = [root / "public", root / "server/outbox"]
    return audit(root / "clients/01", received=received, replay=ReplayOptions(device="cpu", **options))


def hide_bits(tampered, forge):
    """An insider puts a text into the lowest bits of a message's numbers; everything else fits again."""
    run = Run(tampered, forge)
    found = tensors_file.read(run.out / "message-0002.safetensors").tensors
    name = max(found, key=lambda n: found[n].size)
    bits = found[name].view(np.uint32).reshape(-1).copy()
    text = np.unpackbits(np.frombuffer(b"Mueller 29.2.1968", np.uint8))
    bits[: len(text)] = bits[: len(text)] & ~np.uint32(1) | text
    hidden = {name: bits.view(np.float32).reshape(found[name].shape)}
    run.rewrite("message", hidden, file="message-0002.safetensors")


def test_everything_that_is_computed_comes_out_again(every_kind):
    private = every_kind / "clients/01/private"
    before = {path.name: path.read_bytes() for path in private.iterdir()}
    report = replayed(every_kind)
    assert report.passed, report.findings
    assert report.replayed["identical"] == len(MADE)
    notes = {f.where.rsplit("/", 1)[-1]: f.what for f in report.findings if f.check == "replay"}
    assert not {name.split(".")[0] for name in notes} & MADE - {"message-0001"}  # whose envelope has the same beginning
    assert notes["secagg-masked-0001.safetensors"] == "masks are fresh; its update before them: identical"
    assert f"replay: {len(MADE)} identical" in report.verdict
    # Neither is anything charged nor does anything stay.
    assert {path.name: path.read_bytes() for path in private.iterdir()} == before


def test_bits_hidden_in_numbers_are_caught_by_replay_alone(tampered, forge):
    hide_bits(tampered, forge)
    client, received = tampered / "clients/01", [tampered / "public", tampered / "server/outbox"]
    assert audit(client, received=received).passed
    report = replayed(tampered)
    assert {f.check for f in report.findings if f.level == "failure"} == {"replay"}
    assert report.replayed["different"] == 1


def test_within_a_tolerance_they_are_not_and_it_says_so(tampered, forge):
    hide_bits(tampered, forge)
    report = replayed(tampered, tolerance=1e-4)
    assert report.passed
    assert report.replayed["within tolerance"] == 1
    assert any("neither that no bits are hidden" in f.what for f in report.findings)


def test_a_sample_and_a_missing_key(tampered):
    report = replayed(tampered, sample=1)
    assert sum(report.replayed.values()) == 1
    (tampered / "clients/01/private/client.key").unlink()
    report = replayed(tampered)
    assert report.replayed == {}
    assert any(f.check == "replay" and "key" in f.what for f in report.findings)


def test_another_key_gives_another_file(tampered):
    """The first images of a surrogate come from the key."""
    path = tampered / "clients/01/private/client.key"
    keys.write(path, keys.simulated(1, "somebody else"), force=True)
    report = replayed(tampered)
    assert not report.passed


def test_options_of_replay_without_it(every_kind, fedsynth):
    code, _, err = fedsynth("audit", every_kind, "--sample", 1)
    assert code == 2
    assert "--replay" in err
