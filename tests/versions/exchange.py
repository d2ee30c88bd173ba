"""Files that one environment writes and another, with other versions of the libraries, reads.

    python exchange.py write FOLDER    # prints the digest of every file whose bytes are promised, as JSON
    python exchange.py read FOLDER...  # fails unless all is as it was written

Not a test itself: `run.py` calls it in two environments, `test_exchange.py` in one.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy
from PIL import Image

from artifacts.formats import dataset_stream, tensors_file
from artifacts.metadata import Metadata
from fedsynth_cli.app import run as fedsynth
from stages.data.dataset_images import dataset_params, load_dataset, save_dataset
from stages.data.images import LabelledImages
from stages.data.png import encode_png
from stages.data.sources import load

ROWS = 1100  # two row groups
NAMES = ("cat", "dog", "Ærø")
FORMATS = {"png": {}, "bmp": {}, "tiff": {"compression": "tiff_lzw"}, "webp": {"lossless": True}}


def content():
    """Images and labels by arithmetic alone: no generator, whose numbers a version could change."""
    pixels = np.arange(ROWS * 3 * 9 * 7, dtype=np.uint64) * np.uint64(2654435761) >> np.uint64(13)
    images = (pixels % np.uint64(256)).astype(np.uint8).reshape(ROWS, 3, 9, 7)
    return LabelledImages(images, np.arange(ROWS, dtype=np.int64) % 3, NAMES)


def tensors():
    """The types of numbers that a model may hold, and a scalar."""
    ramp = np.arange(-12, 12, dtype=np.int64).reshape(2, 3, 4)
    return {"f4": (ramp / 7).astype(np.float32), "i8": ramp, "scalar": np.array(0.1, np.float32)}


def command(*words):
    code = fedsynth([str(word) for word in words])
    if code != 0:
        raise SystemExit(f"fedsynth {words[0]} ended with {code}")


def write(folder):
    """All files; returns the digests of those that hold the same content whoever writes them."""
    (folder / "public").mkdir(parents=True)
    about = Metadata(kind="dataset", stage="ingest", custody="public", params=dataset_params(content()), versions={})
    save_dataset(folder / "public/dataset.parquet", content(), about)
    model = Metadata(kind="model", stage="init-model", custody="public", versions={})
    tensors_file.write(folder / "public/model.safetensors", tensors(), model)
    safetensors.numpy.save_file(tensors(), folder / "plain.safetensors")
    pngs = [encode_png(image.transpose(1, 2, 0)) for image in content().images]
    (folder / "first.png").write_bytes(pngs[0])
    rows = {"image": [{"bytes": png} for png in pngs], "label": content().labels}
    pq.write_table(pa.table(rows), folder / "plain.parquet")
    for row, (ending, options) in enumerate(FORMATS.items()):
        place = folder / "pictures" / NAMES[row % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(content().images[row].transpose(1, 2, 0)).save(place / f"{row}.{ending}", **options)
    _round(folder / "run")
    ours = ["public/dataset.parquet", "public/model.safetensors", "plain.safetensors", "plain.parquet", "first.png"]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ours}


def _round(run):
    """A round of two clients, signed. In this process: `run` starts others, which takes seconds."""
    start, updated = run / "public/model-0000.safetensors", "private/update-0001.safetensors"
    command("partition", "digits", "--clients", 2, "--seed", 5, "-q", "-o", run)
    command("init-model", "--arch", "softmax", "--like", run / "public/test.parquet", "-q", "-o", start)
    homes = sorted((run / "clients").iterdir())
    for home in homes:
        command("train-client", start, home / "private/data.parquet", "--local-epochs", 1, "-q", "-o", home / updated)
        command("encode", start, home / updated, "-q", "-o", home / "outbox/message-0001.safetensors")
        command("identity", "-q", "-o", home / "private/identity.json")
    command("aggregate", start, *_messages(run), "-q", "-o", run / "server/outbox/model-0001.safetensors")
    command("roster", *(home / "private/identity.json" for home in homes), "-q", "-o", run / "public/roster.json")
    command("sign", *_messages(run), "--roster", run / "public/roster.json", "-q")


def _messages(run):
    return sorted(run.glob("clients/*/outbox/message-*.safetensors"))


def read(folder):
    """Read everything in every way; an `AssertionError` or an exit code says what is not as it was."""
    wanted = content()
    found = load_dataset(folder / "public/dataset.parquet").content
    _same(found, wanted, "public/dataset.parquet")
    stream = dataset_stream.scan(folder / "public/dataset.parquet")
    assert stream.labels.tolist() == wanted.labels.tolist(), "public/dataset.parquet, read in pieces"
    rows = pq.read_table(folder / "public/dataset.parquet", page_checksum_verification=True)
    assert rows["label"].to_pylist() == wanted.labels.tolist(), "public/dataset.parquet, read by pyarrow alone"
    for name in ("public/model.safetensors", "plain.safetensors"):
        _same_tensors(safetensors.numpy.load_file(folder / name), f"{name}, read by safetensors alone")
    _same_tensors(tensors_file.read(folder / "public/model.safetensors").tensors, "public/model.safetensors")
    plain = load(str(folder / "plain.parquet")).train
    assert np.array_equal(plain.labels, wanted.labels), "plain.parquet, labels"
    assert np.array_equal(plain.images, wanted.images), "plain.parquet, images"
    pictures = load(str(folder / "pictures")).train.images
    expected = sorted(wanted.images[: len(FORMATS)].tolist())
    assert sorted(pictures.tolist()) == expected, "pictures"
    command("inspect", folder / "plain.safetensors", "-q")
    command("inspect", folder / "plain.parquet", "-q")
    command("verify", *_messages(folder / "run"), "--roster", folder / "run/public/roster.json", "-q")
    command("audit", folder / "run", "-q")


def _same(found, wanted, name):
    assert found.class_names == wanted.class_names, f"{name}, classes"
    assert np.array_equal(found.labels, wanted.labels), f"{name}, labels"
    assert np.array_equal(found.images, wanted.images), f"{name}, images"


def _same_tensors(found, name):
    assert found.keys() == tensors().keys(), f"{name}, names"
    for key, wanted in tensors().items():
        assert found[key].dtype == wanted.dtype and np.array_equal(found[key], wanted), f"{name}, {key}"


if __name__ == "__main__":
    if sys.argv[1] == "write":
        print(json.dumps(write(Path(sys.argv[2]))))
    else:
        for name in sys.argv[2:]:
            read(Path(name))
