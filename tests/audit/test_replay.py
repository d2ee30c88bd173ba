"""`audit --replay`: the same bytes again, nothing charged, nothing left behind; and what only it can catch."""

import json
import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
import torch
from tampering.run import Run

from artifacts.formats import tensors_file
from artifacts.identity import keys
from fedsynth_cli.app import run as run_command_line
from stages.audit import ReplayOptions, audit

MADE = {
    "message-0001",
    "message-0002",
    "surrogate-0001",
    "proxy-0001",
    "state-0001",
    "noised-0001",
    "synthetic",
    "compressed-0001",
    "topk-0001",
    "lowrank-0001",
    "residuals-0001",
    "merf",
}


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


IN_PIECES = (
    "train-client {model} {private}/data.parquet --local-steps 2 {pieces} -o {private}/pieces.safetensors",
    "encode {model} {private}/pieces.safetensors -o {out}/pieces.safetensors",
    "train-client {model} {private}/data.parquet --local-steps 2 {bf16} -o {private}/bf16.safetensors",
    "encode {model} {private}/bf16.safetensors -o {out}/bf16.safetensors",
    "train-client {model} {private}/data.parquet --local-steps 2 --noise-multiplier 1 --sampling-rate 0.3 "
    "--batch-size 16 {few} -o {private}/noised.safetensors",
    "encode {model} {private}/noised.safetensors -o {out}/noised.safetensors",
    "encode {model} {private}/data.parquet --method fedlap --images-per-class 1 --points 1 --batches 2 --image-steps 2 "
    "--radius-steps 2 {pieces} -o {out}/fedlap.safetensors",
    "encode {model} {private}/data.parquet --method feddm --images-per-class 1 --iterations 2 {pieces} "
    "-o {out}/feddm.safetensors",
    "train-generator {private}/data.parquet --family vae --steps 2 {pieces} {bf16} -o {private}/g.safetensors",
    "synthesize {private}/g.safetensors --count 12 -o {out}/drawn.parquet",
)


def test_pieces_of_a_batch_and_bf16_are_made_again(run_copy):
    client = run_copy / "clients/01"
    model, private, out = run_copy / "public/model-0000.safetensors", client / "private", client / "outbox"

    def typed(line):
        options = {"pieces": "--micro-batch 5", "bf16": "--precision bf16", "few": "--micro-batch 2"}
        words = line.format(model=model, private=private, out=out, **options).split()
        assert run_command_line([*words, "-q"]) == 0, line

    for line in IN_PIECES:
        typed(line)
    report = replayed(run_copy)
    assert report.passed, report.findings
    assert report.replayed == {"identical": 6 + 2}  # the messages of two rounds, too
    # A replay that took whole batches, or float32, would have got other bytes.
    typed("train-client {model} {private}/data.parquet --local-steps 2 -o {private}/whole.safetensors")
    found = [tensors_file.read(private / f"{name}.safetensors").tensors for name in ("whole", "pieces", "bf16")]
    assert len({b"".join(tensors[name].tobytes() for name in sorted(tensors)) for tensors in found}) == 3


# Another kind of processor: torch is held to other instructions, in a process of its own.

ELSEWHERE = """
import json, sys
import torch
from fedsynth_cli.app import run
capability, *lines = json.loads(sys.argv[1])
if torch.backends.cpu.get_cpu_capability() == capability:
    sys.exit("the same")
for words in lines:
    code = run(words)
    assert code == (6 if words[0] == "audit" else 0), (words, code)
"""
MADE_ELSEWHERE = (
    "train-client {model} {private}/data.parquet --local-steps 2 -o {private}/there-0001.safetensors -q",
    "encode {model} {private}/there-0001.safetensors -o {out}/message-there.safetensors -q",
    "encode {model} {private}/there-0001.safetensors --method tofu --images 2 --iterations 2 --least-cosine 0 "
    "-o {out}/proxy-there.safetensors -q",
    "encode {model} {private}/data.parquet --method fedlap --images-per-class 1 --points 1 --batches 1 --image-steps 1 "
    "--noise-multiplier 1 --sampling-rate 0.1 --batch-size 16 --radius 1 -o {out}/surrogate-there.safetensors -q",
)


def test_on_another_kind_of_processor_nothing_fails_and_it_says_which_is_needed(tampered, forge):
    """What was made here is replayed there, and the other way round; noise comes from the context that was recorded."""
    here = torch.backends.cpu.get_cpu_capability()
    model, client = tampered / "public/model-0000.safetensors", tampered / "clients/01"
    received = ["--received", tampered / "public", "--received", tampered / "server/outbox"]
    words = [
        ["audit", client, *received, "--replay", "--json"],
        *(shlex.split(line.format(model=model, private=client / "private", out=client / "outbox"))
          for line in MADE_ELSEWHERE),
    ]  # fmt: skip
    there = os.environ | {"ATEN_CPU_CAPABILITY": "avx2" if here == "DEFAULT" else "default"}
    asked = json.dumps([here, *([str(word) for word in line] for line in words)])
    done = subprocess.run([sys.executable, "-c", ELSEWHERE, asked], env=there, capture_output=True, text=True)
    if "the same" in done.stderr:
        pytest.skip("torch knows one way to compute on this processor")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"].startswith("INCOMPLETE") and "different" not in report["replayed"]
    assert report["replayed"]["not confirmed"] >= 4
    before = forge.snapshot(client)
    back = replayed(tampered)
    assert back.error.exit_code == 6 and "different" not in back.replayed, back.findings
    assert back.replayed["identical"] >= len(MADE)
    assert forge.snapshot(client) == before, "nothing is deleted, charged or left behind"
    stated = {f.where.rsplit("/", 1)[-1]: f.what for f in back.findings if f.check == "replay"}
    for name in ("message-there", "proxy-there", "surrogate-there"):
        assert "on another kind of processor. It was made with «cpu: float32" in stated[f"{name}.safetensors"]
    assert "values differ by" in stated["message-there.safetensors"]
    assert "other last bits come out" in stated["surrogate-there.safetensors"], "its noise is bound to them"
    near = replayed(tampered, tolerance=1e-4)
    assert near.replayed["within tolerance"] >= 1 and not near.count("failure")


def test_noise_that_was_never_charged_fails_whatever_processor_the_file_claims(tampered, forge, fedsynth_json):
    """An insider names another one, so that other bits would be no wonder: the ledger knows no such computation."""
    model, client = tampered / "public/model-0000.safetensors", tampered / "clients/01"
    line = MADE_ELSEWHERE[-1].format(model=model, private=client / "private", out=client / "outbox")
    fedsynth_json(*shlex.split(line))
    claimed = {"arithmetic": "cpu: float32, one thread, ABACUS, by hand"}
    Run(tampered, forge).rewrite("surrogate", file="surrogate-there.safetensors", **claimed)
    report = replayed(tampered)
    (failure,) = [f for f in report.findings if f.level == "failure"]
    assert (failure.check, failure.what) == ("replay", "the spend ledger knows no such computation")
