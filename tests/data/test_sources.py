"""Sources with a name: digits, torchvision's datasets in tiny files of their own layouts; and what `load` refuses."""

from __future__ import annotations

import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from artifacts.errors import InputError, UsageError
from stages.data.sources import load
from stages.nets.torchvision_door import torchvision

SHARED = Path(__file__).parents[3] / "shared" / "data"


def idx(path, array) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes())


def pixels(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 28, 28), dtype=np.uint8)


def put_mnist(raw: Path, prefixes: tuple[str, str] = ("train-", "t10k-"), labels=(9, 0, 4)) -> None:
    for prefix, seed in zip(prefixes, (0, 1), strict=True):
        idx(raw / f"{prefix}images-idx3-ubyte", pixels(len(labels), seed))
        idx(raw / f"{prefix}labels-idx1-ubyte", np.array(labels, np.uint8))


def put_cifar(monkeypatch, root: Path, kind: str, key: str, names_key: str, names: list[str]) -> np.ndarray:
    """Files in CIFAR's layout, and torchvision told that their digests are the right ones."""
    dataset = getattr(torchvision().datasets, kind)
    folder = root / dataset.base_folder
    folder.mkdir()
    images = np.random.default_rng(2).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)

    def put(name: str, content) -> str:
        data = pickle.dumps(content)
        (folder / name).write_bytes(data)
        return hashlib.md5(data).hexdigest()

    batch = {"data": images.reshape(2, -1), key: [1, 0]}
    for files in ("train_list", "test_list"):
        digests = [[name, put(name, batch)] for name, _ in getattr(dataset, files)]
        monkeypatch.setattr(dataset, files, digests)
    meta = dataset.meta["filename"]
    monkeypatch.setattr(dataset, "meta", dataset.meta | {"md5": put(meta, {names_key: names})})
    return images


def test_digits_are_all_there_and_use_the_whole_range() -> None:
    source = load("digits")
    assert source.test is None
    assert source.train.images.shape == (1797, 1, 8, 8)
    assert source.train.class_names == tuple("0123456789")
    assert source.train.labels[:4].tolist() == [0, 1, 2, 3]
    # scikit-learn's first row is 0 0 5 13 9 1 0 0, out of 16.
    assert source.train.images[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
    assert len(np.unique(source.train.images)) == 17
    assert source.train.images.max() == 255


def test_digits_in_another_form() -> None:
    assert load("digits", image_size=16, channels=3).train.images.shape == (1797, 3, 16, 16)


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")])
def test_mnist_layout(tmp_path, name, folder) -> None:
    put_mnist(tmp_path / folder / "raw")
    source = load(name, root=tmp_path)
    assert np.array_equal(source.train.images, pixels(3, 0)[:, None])
    assert np.array_equal(source.test.images, pixels(3, 1)[:, None])
    assert source.train.labels.tolist() == [9, 0, 4]
    assert len(source.train.class_names) == 10


def test_emnist_is_set_upright(tmp_path) -> None:
    put_mnist(tmp_path / "EMNIST/raw", ("emnist-balanced-train-", "emnist-balanced-test-"), labels=(46, 10, 0))
    source = load("emnist", root=tmp_path)
    assert np.array_equal(source.train.images[:, 0], pixels(3, 0).transpose(0, 2, 1))
    assert [source.train.class_names[label] for label in source.train.labels] == ["t", "A", "0"]
    assert len(source.train.class_names) == 47


def test_emnist_letters_start_at_zero(tmp_path) -> None:
    put_mnist(tmp_path / "EMNIST/raw", ("emnist-letters-train-", "emnist-letters-test-"), labels=(1, 26, 2))
    source = load("emnist", root=tmp_path, emnist_split="letters")
    assert source.train.labels.tolist() == [0, 25, 1]
    assert source.train.class_names == tuple("abcdefghijklmnopqrstuvwxyz")


def test_emnist_letters_refuse_label_zero(tmp_path) -> None:
    put_mnist(tmp_path / "EMNIST/raw", ("emnist-letters-train-", "emnist-letters-test-"), labels=(0, 26, 2))
    with pytest.raises(InputError, match="found -1…25"):
        load("emnist", root=tmp_path, emnist_split="letters")


def test_emnist_takes_the_split_that_was_asked_for(tmp_path) -> None:
    put_mnist(tmp_path / "EMNIST/raw", ("emnist-digits-train-", "emnist-digits-test-"))
    assert len(load("emnist", root=tmp_path, emnist_split="digits").train.class_names) == 10
    with pytest.raises(InputError, match="emnist is not in"):
        load("emnist", root=tmp_path)


def test_cifar10_layout(monkeypatch, tmp_path) -> None:
    images = put_cifar(monkeypatch, tmp_path, "CIFAR10", "labels", "label_names", ["plane", "car"])
    source = load("cifar10", root=tmp_path)
    assert np.array_equal(source.train.images, np.concatenate([images] * 5))
    assert np.array_equal(source.test.images, images)
    assert source.test.labels.tolist() == [1, 0]
    assert source.train.class_names == ("plane", "car")


def test_cifar100_has_fine_labels(monkeypatch, tmp_path) -> None:
    images = put_cifar(monkeypatch, tmp_path, "CIFAR100", "fine_labels", "fine_label_names", ["apple", "bear"])
    source = load("cifar100", root=tmp_path)
    assert np.array_equal(source.train.images, images)
    assert source.train.labels.tolist() == [1, 0]
    assert source.train.class_names == ("apple", "bear")


def test_a_strange_pickle_is_never_opened(monkeypatch, tmp_path) -> None:
    put_cifar(monkeypatch, tmp_path, "CIFAR10", "labels", "label_names", ["plane", "car"])
    marker = tmp_path / "was run"

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (marker,))

    (tmp_path / "cifar-10-batches-py/data_batch_1").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match=r"cifar10 is not in .*cifar-10-batches-py, or not whole; add --download"):
        load("cifar10", root=tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", "FashionMNIST/raw"),
        ("emnist", "EMNIST/raw"),
        ("cifar10", "cifar-10-batches-py"),
        ("cifar100", "cifar-100-python"),
    ],
)
def test_missing_files_name_the_folder_and_the_network_is_not_asked(monkeypatch, tmp_path, name, folder) -> None:
    def never(*args, **kwargs):
        raise AssertionError("the network was asked")

    for kind in ("MNIST", "EMNIST", "CIFAR10"):
        monkeypatch.setattr(getattr(torchvision().datasets, kind), "download", never)
    with pytest.raises(InputError, match=f"{name} is not in {tmp_path / folder}, or not whole; add --download"):
        load(name, root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_download_is_passed_on_and_its_failure_explained(monkeypatch, tmp_path) -> None:
    def fails(self):
        raise RuntimeError("no route to host\nand much more")

    monkeypatch.setattr(torchvision().datasets.MNIST, "download", fails)
    with pytest.raises(InputError, match=r"mnist could not be downloaded to .*: no route to host\.$"):
        load("mnist", root=tmp_path, download=True)


def test_download_is_called_once_asked_for(monkeypatch, tmp_path) -> None:
    def fetch(self):
        put_mnist(tmp_path / "MNIST/raw")

    monkeypatch.setattr(torchvision().datasets.MNIST, "download", fetch)
    assert len(load("mnist", root=tmp_path, download=True).train) == 3


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda _: b"", lambda data: b"\0\0\x0d\3" + data[4:]])
def test_damaged_idx_files(tmp_path, damage) -> None:
    raw = tmp_path / "MNIST/raw"
    put_mnist(raw)
    file = raw / "train-images-idx3-ubyte"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InputError, match=r"mnist in .*MNIST/raw is damaged"):
        load("mnist", root=tmp_path)


def test_labels_and_images_that_do_not_match(tmp_path) -> None:
    raw = tmp_path / "MNIST/raw"
    put_mnist(raw)
    idx(raw / "train-labels-idx1-ubyte", np.array([1, 2], np.uint8))
    with pytest.raises(InputError, match=r"MNIST/raw: labels must be int64, one for each of the 3 images"):
        load("mnist", root=tmp_path)


def test_torchvision_needs_a_root() -> None:
    with pytest.raises(UsageError, match="mnist needs --root, the folder that holds MNIST/raw"):
        load("mnist")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown source 'imagenet'; known: digits, dsprites, mnist, fashion-mnist"):
        load("imagenet")


def test_paths_that_are_missing_or_of_no_kind(tmp_path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        load(str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="no such file or folder"):
        load("nothing.parquet")
    (tmp_path / "data.csv").write_text("label,pixel\n")
    with pytest.raises(InputError, match=r"neither a \.parquet file nor a folder"):
        load(str(tmp_path / "data.csv"))


@pytest.mark.parametrize(
    ("source", "options", "named"),
    [
        ("digits", {"root": Path()}, "--root"),
        ("digits", {"download": True}, "--download"),
        ("digits", {"emnist_split": "letters"}, "--emnist-split"),
        ("mnist", {"root": Path(), "emnist_split": "letters"}, "--emnist-split"),
        ("mnist", {"root": Path(), "id_column": "writer"}, "--id-column"),
        ("cifar10", {"root": Path(), "label_column": "y"}, "--label-column"),
        ("digits", {"image_column": "x"}, "--image-column"),
    ],
)
def test_an_option_that_the_source_would_ignore_is_refused(source, options, named) -> None:
    with pytest.raises(UsageError, match=f"{named} does not apply to the source {source}"):
        load(source, **options)


def test_importing_sources_does_not_import_torch() -> None:
    import subprocess
    import sys

    code = "import sys, stages.data.sources, stages.data.schemes, stages.pictures.class_counts; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"torch", "torchvision", "sklearn", "matplotlib", "pyarrow"}


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real data in ../shared is not there")
def test_real_fashion_mnist() -> None:
    source = load("fashion-mnist", root=SHARED)
    assert source.train.images.shape == (60_000, 1, 28, 28)
    assert source.test.images.shape == (10_000, 1, 28, 28)
    assert source.train.class_counts().tolist() == [6000] * 10
    assert source.train.class_names[9] == "Ankle boot"
    assert source.train.images.mean() == pytest.approx(72.94, abs=0.01)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real data in ../shared is not there")
def test_real_cifar10_parquet() -> None:
    source = load(str(SHARED / "cifar10"))
    assert source.train.images.shape == (20_000, 3, 32, 32)
    assert source.test.images.shape == (5_000, 3, 32, 32)
    assert source.train.class_counts().tolist() == [2000] * 10
    assert source.train.class_names[0] == "airplane"
