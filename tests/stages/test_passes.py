"""How often a stage goes over its files: counted in opened files, bytes hashed and headers parsed, never in seconds."""

import hashlib
import io
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from artifacts import limits, metadata
from artifacts.formats import dataset_file
from artifacts.metadata import Metadata
from stages.data import dataset_images, png


@pytest.fixture
def opened(monkeypatch):
    """How often each file was opened, by name, and how many bytes were read from it."""
    count, read = Counter(), Counter()

    class Counting(io.FileIO):
        def readinto(self, buffer):
            got = super().readinto(buffer)
            read[Path(self.name).name] += got or 0
            return got

        def readall(self):
            data = super().readall()
            read[Path(self.name).name] += len(data)
            return data

    real = Path.open

    def opening(self, mode="r", *rest, **named):
        if mode != "rb":
            return real(self, mode, *rest, **named)
        count[self.name] += 1
        return io.BufferedReader(Counting(self))

    def opening_to_read(path, _buffering=0):
        return opening(path, "rb")

    monkeypatch.setattr(Path, "open", opening)
    monkeypatch.setattr(limits, "open_file", opening_to_read)
    return count, read


@pytest.fixture
def hashed(monkeypatch):
    """The sizes of all that went into a SHA-256."""
    sizes, real = [], hashlib.sha256

    class Counting:
        def __init__(self, data=b"", state=None):
            self._state = state or real()
            if data:
                self.update(data)

        def update(self, data):
            sizes.append(memoryview(data).nbytes)
            self._state.update(data)

        def copy(self):
            return Counting(state=self._state.copy())

        def __getattr__(self, name):
            return getattr(self._state, name)

    monkeypatch.setattr(hashlib, "sha256", Counting)
    return sizes


@pytest.fixture
def digits(fedsynth_json, tmp_path):
    fedsynth_json("partition", "digits", "--clients", "3", "--scheme", "iid", "-o", tmp_path / "run")
    model = tmp_path / "run/public/model-0000.safetensors"
    test = tmp_path / "run/public/test.parquet"
    fedsynth_json("init-model", "--arch", "softmax", "--like", test, "-o", model)
    return tmp_path / "run"


def test_private_data_is_read_once_and_hashed_for_its_file_and_for_its_rows(
    fedsynth_json, digits, opened, hashed, monkeypatch
):
    monkeypatch.setattr(dataset_images, "_cache", dataset_images._Cache())
    data = digits / "clients/00/private/data.parquet"
    size, private = data.stat().st_size, ["--noise-multiplier", "1", "--sampling-rate", "0.1", "--clip-norm", "1"]
    fedsynth_json(
        "train-client", digits / "public/model-0000.safetensors", data, "--local-steps", "1", *private,
        "-o", data.with_name("update.safetensors"),
    )  # fmt: skip
    count, read = opened
    assert count[data.name] == 1 and read[data.name] == size
    large = sum(n for n in hashed if n > size // 4)
    assert 0 < large < 2 * size, "the file with its seal is one pass, the rows are the other"


def test_a_png_is_inflated_once(monkeypatch):
    image = np.zeros((64, 64), np.uint8)
    given, inflated = [], []
    frombytes, decompressobj = png.Image.frombytes, zlib.decompressobj
    monkeypatch.setattr(png.Image, "frombytes", lambda *a: given.append(a[2]) or frombytes(*a))
    monkeypatch.setattr(png.Image, "open", None)  # would inflate it too
    monkeypatch.setattr(zlib, "decompressobj", lambda: inflated.append(1) or decompressobj())
    assert (png.decode_png(png.encode_png(image)) == image[None]).all()
    assert len(inflated) == 1 and len(given[0]) > 64 * 65, "Pillow is given the rows as they are, not compressed"


def test_shuffle_goes_over_its_inputs_twice(fedsynth_json, opened, tmp_path):
    """Once for the digest, without which no order may be drawn, and once for the images."""
    pngs = [png.encode_png(image) for image in np.random.default_rng(0).integers(256, size=(2000, 28, 28), dtype="u1")]
    path = tmp_path / "clients/00/outbox/synthetic.parquet"
    params = {"num_classes": 1, "channels": 1, "height": 28, "width": 28, "class_names": ["noise"], "labels": "uniform"}
    about = Metadata(
        kind="dataset", stage="synthesize", method="vae", custody="outbound", client="00", params=params,
        disclosures=("derived_images",), versions={},
    )  # fmt: skip
    dataset_file.write(path, pngs, np.zeros(2000, np.int64), about)
    fedsynth_json("shuffle", path, "--parts", "2", "--seed", "0", "-o", tmp_path / "server/outbox")
    _, read = opened
    assert 2 <= read[path.name] / path.stat().st_size < 2.2, "the footer is read more often"


def test_a_message_s_header_is_parsed_once_in_aggregate(fedsynth_json, digits, monkeypatch):
    model, messages = digits / "public/model-0000.safetensors", []
    for client in ("00", "01", "02"):
        place = digits / "clients" / client
        update, message = place / "private/update.safetensors", place / "outbox/message.safetensors"
        fedsynth_json("train-client", model, place / "private/data.parquet", "--local-steps", "1", "-o", update)
        fedsynth_json("encode", model, update, "-o", message)
        messages.append(message)
    metadata._parse_once.cache_clear()
    monkeypatch.setattr(metadata, "_good_forms", set())
    parsed, check = Counter(), Metadata.__post_init__
    monkeypatch.setattr(Metadata, "__post_init__", lambda self: parsed.update([self.client]) or check(self))
    fedsynth_json("aggregate", model, *messages, "-o", digits / "server/outbox/model-0001.safetensors")
    assert [parsed[client] for client in ("00", "01", "02")] == [1, 1, 1]
