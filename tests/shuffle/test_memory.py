"""Memory stays flat while the rows become many; time grows with them and no faster; no file is read for nothing."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from artifacts.formats import dataset_writing
from artifacts.metadata import Metadata
from stages.data.png import encode_png

# VmHWM is what ru_maxrss should be: in a child, ru_maxrss begins with what its parent, pytest, took.
MEASURED = """
import json, sys, time
from fedsynth_cli.app import run
start = time.process_time()
assert run(sys.argv[1:]) == 0
seconds = time.process_time() - start
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
moved = dict(line.split(": ") for line in open("/proc/self/io"))
moved = {name: int(moved[name]) / 1e6 for name in ("rchar", "wchar")}
print(json.dumps(moved | {"megabytes": int(status["VmHWM"].split()[0]) / 1000, "seconds": seconds}))
"""


def write_inputs(root, rows, size):
    """Four clients' datasets of random images `size` pixels wide, drawn from a few, so that writing takes no time."""
    rng = np.random.default_rng(0)
    pool = [encode_png(rng.integers(0, 256, (size, size, 1), dtype=np.uint8)) for _ in range(200)]
    images, lengths = pa.array(pool, pa.binary()), np.array([len(png) for png in pool])
    params = {"num_classes": 2, "channels": 1, "height": size, "width": size, "class_names": ["a", "b"]}
    params["labels"] = "uniform"
    paths = []
    for client in ("00", "01", "02", "03"):
        chosen = rng.integers(0, len(pool), rows // 4)
        about = Metadata(
            kind="dataset", stage="synthesize", method="vae", custody="outbound", client=client, params=params,
            versions={},
        )  # fmt: skip
        groups = (images.take(pa.array(chosen[i : i + 1000])) for i in range(0, len(chosen), 1000))
        paths.append(root / f"{client}.parquet")
        dataset_writing.stage(paths[-1], chosen % 2, lengths[chosen], groups, about)
    return paths


def measure(folder, rows, size):
    folder.mkdir()
    paths = write_inputs(folder, rows, size)
    line = ["shuffle", *map(str, paths), "--parts", "4", "-o", str(folder / "outbox"), "--quiet"]
    done = subprocess.run([sys.executable, "-c", MEASURED, *line], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout) | {"input": sum(path.stat().st_size for path in paths) / 1e6}
    shutil.rmtree(folder)
    return found


def test_memory_is_flat_from_two_thousand_to_forty_thousand_rows(tmp_path):
    few, many = measure(tmp_path / "few", 2_000, 28), measure(tmp_path / "many", 40_000, 28)
    assert many["input"] > few["input"] + 30
    assert many["megabytes"] < few["megabytes"] + 8
    more = {name: (many[name] - few[name]) / (many["input"] - few["input"]) for name in ("rchar", "wchar")}
    # Read: each input for its digest and for its images, then the spill. Written: the spill and the parts.
    assert 2.9 < more["rchar"] < 3.1 and 1.9 < more["wchar"] < 2.1, more


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_million_rows_take_ten_times_a_hundred_thousand_and_little_more_memory(tmp_path):
    found = {rows: measure(tmp_path / str(rows), rows, 12) for rows in (10_000, 100_000, 1_000_000)}
    for rows, numbers in found.items():
        each = numbers["seconds"] / rows * 1e6
        print(
            f"{rows:>9,} rows, {numbers['input']:5.0f} MB: {numbers['megabytes']:4.0f} MB of memory, "
            f"{numbers['seconds']:5.1f} s, {each:.0f} µs a row"
        )
    # A row takes some 15 bytes of memory beside its image: where it goes, its label, its length.
    assert found[1_000_000]["megabytes"] < found[10_000]["megabytes"] + 30
    assert found[1_000_000]["input"] > 150
    assert found[1_000_000]["seconds"] < 15 * found[100_000]["seconds"]
