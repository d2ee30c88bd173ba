"""The memory of a training does not grow with its dataset."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from artifacts.formats import dataset_stream
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
print(json.dumps({"megabytes": int(status["VmHWM"].split()[0]) / 1000, "seconds": seconds}))
"""
SIDE = 64


def write_images(path, rows):
    """Random images, drawn from a few, so that writing takes no time."""
    rng = np.random.default_rng(0)
    pool = [encode_png(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)) for _ in range(100)]
    images, lengths = pa.array(pool, pa.binary()), np.array([len(png) for png in pool])
    params = {"num_classes": 2, "channels": 3, "height": SIDE, "width": SIDE, "class_names": ["a", "b"]}
    about = Metadata(kind="dataset", stage="partition", custody="private", client="00", params=params, versions={})
    chosen = rng.integers(0, len(pool), rows)
    groups = (images.take(pa.array(chosen[i : i + 1000])) for i in range(0, rows, 1000))
    path.parent.mkdir(parents=True)
    dataset_stream.stage(path, chosen % 2, lengths[chosen], groups, about)


def measure(folder, rows, *options):
    data, model = folder / "00/private/data.parquet", folder / "model.safetensors"
    write_images(data, rows)
    made = ["init-model", "--like", data, "--arch", "convnet", "--width", 8, "--depth", 2, "-o", model, "--quiet"]
    trained = ["train-client", model, data, "--local-steps", 100, "-o", data.with_name("update.safetensors"), "--quiet"]
    for line in (made, [*trained, *options]):
        words = [sys.executable, "-c", MEASURED, *map(str, line)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    size = data.stat().st_size / 1e6
    shutil.rmtree(folder)
    return json.loads(done.stdout) | {"input": size}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_memory_is_flat_from_ten_thousand_to_two_hundred_thousand_images(tmp_path):
    found = {rows: measure(tmp_path / str(rows), rows) for rows in (10_000, 20_000, 200_000)}
    for rows, n in found.items():
        print(f"{rows:>8,} images, {n['input']:5.0f} MB: {n['megabytes']:4.0f} MB of memory, {n['seconds']:5.1f} s")
    assert found[200_000]["input"] > 2_000
    # Of each row: its label twice, its length, its place in the file, its number.
    assert found[200_000]["megabytes"] < found[20_000]["megabytes"] + 30
    assert found[200_000]["megabytes"] < found[10_000]["megabytes"] + 30
