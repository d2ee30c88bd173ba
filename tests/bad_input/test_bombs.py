"""Small files that unfold, and large ones that hold nothing: refused within a second and a few hundred megabytes.

Each is measured in a forked process, whose growth is its own; large files are sparse and take no room on the disk.
"""

import hashlib
import json
import resource
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stages.audit
import stages.decode
import stages.inspect
import stages.report.page
import stages.verify  # noqa: F401
from artifacts import limits
from artifacts.digests import ZEROS, canonical_json
from artifacts.errors import InputError
from artifacts.formats import dataset_file, seal, tensors_file
from artifacts.formats.safetensors_layout import TensorSpec, layout
from artifacts.identity.roster import read_roster
from artifacts.ledgers import egress
from artifacts.metadata import InputRef
from stages.data.png import encode_png

SECONDS, BYTES = 1.0, 300_000_000
GIB = 2**30


@pytest.fixture
def measured(in_child, command_line):
    """Run a command line: its exit code and what it says, within a second and 300 MB more than it began with."""

    def call(*arguments):
        def work():
            before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            began = time.process_time()
            code, err = command_line(*arguments)
            most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            return code, err, time.process_time() - began, most * 1024 - before

        code, err, seconds, grown = in_child(work)
        assert seconds < SECONDS and grown < BYTES, f"{seconds:.2f} s, {grown >> 20} MB"
        return code, err

    return call


def sparse(path, size, start=b""):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as handle:
        handle.write(start)
        handle.truncate(size)
    return path


def large_message(path, model, forge):
    """A message for the model with one tensor of 6 GB, its seal as it should be."""
    start = InputRef(role="model", kind="model", sha256=tensors_file.read(model).sha256)
    about = forge.metadata("message", round=1, inputs=(start,)).to_json(payload_sha256=ZEROS, seal_sha256=ZEROS)
    header = layout(canonical_json(about), [TensorSpec("w", "F32", (1_500_000_000,))])
    position = seal.find(header, escaped=True)
    sealed = header[:position] + seal.compute(header, position).encode() + header[position + 64 :]
    return sparse(path, len(sealed) + 6_000_000_000, sealed)


def test_a_message_of_six_gigabytes(tmp_path, forge, measured):
    model = forge.write_tensors(tmp_path / "model.safetensors", round=0)
    message = large_message(tmp_path / "message.safetensors", model, forge)
    code, err = measured("decode", model, message, "-o", tmp_path / "update.safetensors")
    assert code == 3 and "6,000,0" in err and limits.VARIABLE in err


def test_a_message_is_held_against_its_model_before_it_is_read(tmp_path, forge, measured, monkeypatch):
    monkeypatch.setenv(limits.VARIABLE, "100")
    model = forge.write_tensors(tmp_path / "model.safetensors", round=0)
    message = large_message(tmp_path / "message.safetensors", model, forge)
    code, err = measured("decode", model, message, "-o", tmp_path / "update.safetensors")
    assert code == 3 and "does not fit the model" in err


@pytest.mark.parametrize("start", [b"", b"\n" * 60_000_000])
def test_a_ledger_of_gigabytes_or_of_empty_lines(run_copy, measured, start):
    sparse(run_copy / "clients/00/egress.jsonl", 10 * GIB if not start else len(start), start).chmod(0o600)
    code, err = measured("audit", run_copy)
    assert code == 5 and "FAIL" in err


def test_a_roster_of_gigabytes(tmp_path, run_copy, measured):
    roster = sparse(tmp_path / "roster.json", 10 * GIB)
    code, err = measured("verify", run_copy / "clients/00/outbox/message-0001.safetensors", "--roster", roster)
    assert code == 3 and "at most" in err


def test_a_roster_of_thousands_is_read_at_once(tmp_path):
    def keys(number):
        return {name: hashlib.sha256(f"{name} {number}".encode()).hexdigest() for name in ("envelopes", "secagg")}

    path = tmp_path / "roster.json"
    clients = {f"c{number:05}": keys(number) for number in range(8000)}
    said = {"schema": "fedsynth.roster/1", "federation": "f", "clients": clients}
    path.write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")
    began = time.process_time()
    assert len(read_roster(path).clients) == 8000
    assert time.process_time() - began < 3  # 11 s when each was held against all before it
    clients["c00017"] = clients["c07000"]
    path.write_text(json.dumps(said))
    with pytest.raises(InputError, match="have the same key"):
        read_roster(path)


def test_envelopes_of_empty_lines(tmp_path, measured):
    path = tmp_path / "a.intoto.jsonl"
    path.write_bytes(b"\n" * 30_000_000)
    assert measured("inspect", path)[0] == 3


def bright(folder, count, forge, side=4096):
    """A client's outbox with PNGs of 4096 × 4096 equal pixels, 73 kB each."""
    path = folder / "clients/00/outbox/synthetic.parquet"
    params = {"num_classes": 2, "channels": 1, "height": side, "width": side, "class_names": ["a", "b"]}
    about = forge.metadata(
        "dataset", stage="synthesize", method="gan", custody="outbound", client="00",
        params=params | {"labels": "uniform"}, disclosures=("class_set", "derived_images"),
    )  # fmt: skip
    png = encode_png(np.zeros((side, side), np.uint8))
    dataset_file.write(path, [png] * count, np.zeros(count, np.int64), about)
    (folder / "public").mkdir()
    return path


@pytest.mark.parametrize("command", ["audit", "report"])
def test_a_hundred_pictures_of_sixteen_million_pixels(tmp_path, forge, measured, command):
    path = bright(tmp_path / "run", 100, forge)
    words = ["-o", tmp_path / "page.html"] if command == "report" else []
    code, err = measured(command, tmp_path / "run", *words)
    assert code == 5 and "FAIL" in err
    assert measured("inspect", path)[0] == 3


def test_pictures_that_are_larger_than_their_file_says(tmp_path, forge):
    """Metadata of 2 × 2 pixels over PNGs of sixteen million: none of them is inflated."""
    path = tmp_path / "clients/00/private/d.parquet"
    png = encode_png(np.zeros((4096, 4096), np.uint8))
    dataset_file.write(path, [png] * 20, np.zeros(20, np.int64), forge.metadata("dataset"))
    from stages.data.dataset_images import load_dataset

    began = time.process_time()
    with pytest.raises(InputError, match="declares 4096×4096 pixels"):
        load_dataset(path)
    assert time.process_time() - began < 0.5


def test_sixty_thousand_tensors(tmp_path, forge, measured):
    table = {f"t{n}": {"dtype": "F32", "shape": [1], "data_offsets": [4 * n, 4 * n + 4]} for n in range(60_000)}
    path = tmp_path / "many.safetensors"
    path.write_bytes(forge.frame(json.dumps(table), bytes(4 * 60_000)))
    code, err = measured("inspect", path)
    assert code == 3 and "60,000 tensors; at most 10,000" in err


def test_a_recipe_that_laughs(tmp_path, measured):
    lines = ["rounds:", "  - &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"  - &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    path = tmp_path / "laughs.yaml"
    path.write_text("\n".join(lines))
    code, err = measured("run", path, "-o", tmp_path / "run")
    assert code == 3 and "*a0 refers to another place" in err


@pytest.fixture
def zeros(tmp_path):
    """Images of 300 MB of zeros in a Parquet file of ten kilobytes."""
    images = pa.StructArray.from_arrays(
        [pa.array([bytes(150_000_000)] * 2, pa.large_binary()), pa.nulls(2, pa.string())], ["bytes", "path"]
    )
    path = tmp_path / "zeros.parquet"
    table = pa.table({"image": images, "label": [0, 1]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
    assert path.stat().st_size < 50_000
    return path


def test_parquet_that_unfolds(tmp_path, zeros, measured):
    for words in (["inspect", zeros], ["ingest", zeros, "-o", tmp_path / "a/private/d.parquet"]):
        code, err = measured(*words)
        assert code == 3 and "unpacked it has 300,000," in err


def test_parquet_that_unfolds_and_says_that_it_does_not(tmp_path, zeros, forge, measured):
    """The footer claims a thousandth: the process that unpacks it has its limits."""

    def small(footer):
        for group in footer["4:list<struct>"]:
            for column in group["1:list<struct>"]:
                column["3:struct"]["6:i64"] = 1000

    lying = tmp_path / "lying.parquet"
    lying.write_bytes(forge.forge_footer(zeros.read_bytes(), small))
    code, err = measured("inspect", lying)
    assert code == 3 and ("MiB to read" in err or "was ended" in err)


def test_limits_are_raised_by_one_variable(tmp_path, monkeypatch):
    path = sparse(tmp_path / "egress.jsonl", limits.LEDGER.base + 1)
    with pytest.raises(InputError, match=f"{limits.VARIABLE}=2 allows more"):
        egress.read(path)
    monkeypatch.setenv(limits.VARIABLE, "2")
    with pytest.raises(Exception, match="longer than any entry"):
        egress.read(path)
    monkeypatch.setenv(limits.VARIABLE, "many")
    with pytest.raises(Exception, match=f"{limits.VARIABLE} must be a number"):
        egress.read(path)
