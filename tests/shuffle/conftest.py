"""Small synthetic datasets, each image of which can be told from all others."""

import numpy as np
import pyarrow as pa
import pytest
from federation import Federation
from hypothesis import settings

from artifacts.formats import dataset_file
from artifacts.metadata import InputRef, Metadata
from stages.data.png import decode_png, encode_png

settings.register_profile("fedsynth", deadline=None)
settings.load_profile("fedsynth")

PARAMS = {"num_classes": 3, "channels": 1, "height": 2, "width": 2, "class_names": ["cat", "dog", "owl"]}


def picture(number, channels=1):
    """The PNG of a number below 2³²."""
    pixels = np.frombuffer(int(number).to_bytes(4, "big"), np.uint8).reshape(2, 2, 1)
    return encode_png(pixels.repeat(channels, axis=2))


def about(client, **changes):
    fields = {
        "kind": "dataset",
        "stage": "synthesize",
        "custody": "outbound",
        "client": client,
        "method": "vae",
        "params": {**PARAMS, "labels": "frequency"},
        "inputs": (InputRef(role="generator", kind="generator", commitment="ab" * 32, salt="cd" * 16),),
        "disclosures": ("class_counts", "class_set", "derived_images"),
        "versions": {"fedsynth": "0", "pyarrow": pa.__version__},
    }
    return Metadata(**fields | changes)


class Senders(Federation):
    """A run folder in which clients have synthetic datasets to send."""

    def __init__(self, root):
        super().__init__(root)
        self.sent, self._next = [], 0

    @property
    def outbox(self):
        return self.root / "server" / "outbox"

    @property
    def private(self):
        return self.root / "server" / "private"

    def path(self, client, name="synthetic.parquet"):
        return self.root / "clients" / client / "outbox" / name

    def send(self, client, rows, *, path=None, pngs=None, **changes):
        """Rows that show the numbers from where the last client ended, labelled by them."""
        numbers = np.arange(self._next, self._next + rows)
        self._next += rows
        path = path or self.path(client)
        pngs = [picture(number) for number in numbers] if pngs is None else pngs
        dataset_file.write(path, pngs, numbers % 3, about(client, **changes))
        self.sent.append(path)
        return path

    def send_all(self, *sizes, **changes):
        for number, rows in enumerate(sizes):
            self.send(f"{number:02}", rows, **changes)
        return self

    def parts(self):
        return sorted(self.outbox.glob("*.parquet"))

    def numbers(self):
        """What each row of each part shows; labels must be those that it was sent with."""
        found = []
        for path in self.parts():
            part = dataset_file.read(path)
            shown = [int.from_bytes(decode_png(png.as_py()).tobytes(), "big") for png in part.pngs]
            assert part.labels.tolist() == [number % 3 for number in shown]
            found.append(shown)
        return found


@pytest.fixture
def federation(tmp_path):
    return Senders(tmp_path)


@pytest.fixture
def new_federation(tmp_path_factory):
    """For tests that need many."""
    return lambda: Senders(tmp_path_factory.mktemp("federation"))


@pytest.fixture
def unsynced(monkeypatch):
    """Hundreds of shuffles need not wait for the disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture(scope="session")
def make_picture():
    return picture
