"""Datasets too large for memory: the same images and the same trainings, from the file instead of from an array."""

import os

import numpy as np
import pytest
import torch

from artifacts.errors import InputError
from artifacts.formats import dataset_file, dataset_stream
from artifacts.metadata import Metadata
from stages.data import dataset_images
from stages.data.dataset_images import DescribedDataset, chosen, joined, joined_once, load_described
from stages.data.device_images import DeviceImages
from stages.data.images import LabelledImages, to_pixels
from stages.data.streamed import StreamedImages
from stages.registry import ALGORITHMS, GENERATORS
from stages.train_client import train_client
from stages.train_generator import train_generator


def write(path, count, seed, size=6, units=None):
    """Noise of which some images are plain, so that PNGs are of many lengths. `units` says whose each row is."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 3, size, size), dtype=np.uint8)
    images[::3] = rng.integers(0, 256, (len(images[::3]), 1, 1, 1), dtype=np.uint8)
    content = LabelledImages(images, rng.integers(0, 4, count), ("a", "b", "c", "d"), units=units)
    params = dataset_images.dataset_params(content)
    about = Metadata(kind="dataset", stage="partition", custody="private", client="00", params=params, versions={})
    dataset_images.save_dataset(path, content, about)
    return content


def loaded(*paths):
    return load_described(paths, [dataset_images.describe_dataset(path) for path in paths])


def test_every_image_is_found_in_the_file(tmp_path):
    """Against Arrow: in three row groups, of several pages each."""
    path = tmp_path / "private/data.parquet"
    write(path, 2_300, 0, size=32)
    reader, whole = dataset_stream.ImageReader(dataset_stream.scan(path)), dataset_file.read(path)
    assert path.stat().st_size > 4_000_000
    assert all(reader[row] == whole.pngs[row].as_py() for row in range(len(whole)))


def test_rows_of_several_files_in_any_order(tmp_path, streamed):
    paths = [tmp_path / f"private/{name}.parquet" for name in ("a", "b")]
    first, second = write(paths[0], 5, 1), write(paths[1], 7, 2)
    streamed()
    images, labels = joined(loaded(*paths))
    together = np.concatenate([first.images, second.images])
    assert isinstance(images, StreamedImages)
    assert labels.tolist() == [*first.labels, *second.labels]
    order = np.array([11, 0, 4, 5, 0])
    assert np.array_equal(images[order], together[order])
    assert np.array_equal(images[3:9], together[3:9])
    part = chosen(images, order)
    assert part.shape == (5, 3, 6, 6)
    assert np.array_equal(part[np.array([0, 3])], together[[11, 5]])
    assert images[np.array([], np.int64)].shape == (0, 3, 6, 6)


def test_a_large_file_beside_a_small_one(tmp_path, monkeypatch):
    paths = [tmp_path / f"private/{name}.parquet" for name in ("small", "large")]
    few, many = write(paths[0], 3, 1), write(paths[1], 40, 2)
    monkeypatch.setattr(dataset_images, "_STREAMED_BYTES", (paths[0].stat().st_size + paths[1].stat().st_size) // 2)
    images, _ = joined(loaded(*paths))
    assert isinstance(images, StreamedImages)
    assert np.array_equal(images[:], np.concatenate([few.images, many.images]))


def test_a_record_in_two_files_counts_once(tmp_path, streamed):
    paths = [tmp_path / f"private/{name}.parquet" for name in ("a", "b")]
    content = write(paths[0], 6, 1)
    write(paths[1], 6, 1)
    streamed()
    images, labels = joined_once(loaded(*paths))
    assert np.array_equal(images[:], content.images)
    assert labels.tolist() == content.labels.tolist()


def test_a_file_that_is_written_to_or_replaced_is_refused(tmp_path, streamed):
    path = tmp_path / "private/data.parquet"
    write(path, 5, 1)
    streamed()
    (dataset,) = loaded(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match="changed while it was read"):
        dataset.content.images[:2]
    with pytest.raises(InputError, match="was replaced"):
        load_described([path], [DescribedDataset(dataset.metadata, "0" * 64)])


def test_what_cannot_be_decoded_is_black_under_noise_and_else_named(tmp_path, streamed):
    path = tmp_path / "private/a.parquet"
    content = write(path, 5, 1)
    artifact = dataset_file.read(path)
    pngs = [png.as_py() for png in artifact.pngs]
    pngs[3] = pngs[3][:20]
    dataset_file.write(path, pngs, artifact.labels, artifact.metadata, force=True)
    streamed()
    described = [dataset_images.describe_dataset(path)]
    for _ in range(2):  # one after the other: what is kept of the first is not taken for the second
        (dataset,) = load_described([path], described, blank=True)
        images = dataset.content.images[np.arange(5)]
        assert not images[3].any() and np.array_equal(images[[0, 1, 2, 4]], content.images[[0, 1, 2, 4]])
        (dataset,) = load_described([path], described)
        with pytest.raises(InputError, match="row 3"):
            dataset.content.images[np.arange(5)]


def test_a_damaged_file_is_refused(tmp_path, streamed):
    path = tmp_path / "private/data.parquet"
    write(path, 5, 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    streamed()
    with pytest.raises(InputError, match="seal"):
        loaded(path)


@pytest.mark.parametrize("from_file", [False, True])
def test_pixels_are_scaled_bit_for_bit(from_file):
    every_byte = np.arange(256, dtype=np.uint8).reshape(4, 1, 8, 8)
    images = DeviceImages(StreamedImages([every_byte]) if from_file else every_byte, torch.device("cpu"))
    rows = torch.tensor([3, 0, 0])
    assert images[rows].numpy().tobytes() == to_pixels(every_byte[[3, 0, 0]]).tobytes()
    assert images[1:3].numpy().tobytes() == to_pixels(every_byte[1:3]).tobytes()
    assert len(images) == 4


NOISY = {"noise_multiplier": 1.0, "sampling_rate": 0.3}


@pytest.mark.parametrize("options", [{"batch_size": 8}, {**NOISY, "batch_size": 8}])
def test_a_round_is_the_same_to_the_byte(run_copy, streamed, options):
    model, own = run_copy / "public/model-0000.safetensors", run_copy / "clients/00/private"
    params = ALGORITHMS.from_mapping({"algorithm": "fedavg", "local_steps": 3, **options})

    def update():
        train_client(model, [own / "data.parquet"], own / "u.safetensors", params=params, seed=1, force=True)
        return (own / "u.safetensors").read_bytes()

    in_memory = update()
    streamed()
    assert update() == in_memory


@pytest.mark.parametrize("options", [{}, NOISY])
def test_a_generator_is_the_same_to_the_byte(run_copy, streamed, options):
    own = run_copy / "clients/00/private"
    quick = {"family": "vae", "filters": 4, "hidden_size": 8, "batch_size": 8, "steps": 2}
    params = GENERATORS.from_mapping({**quick, **options})

    def generator():
        train_generator([own / "data.parquet"], own / "g.safetensors", params=params, seed=1, force=True)
        return (own / "g.safetensors").read_bytes()

    in_memory = generator()
    streamed()
    assert generator() == in_memory


PEOPLE = {**NOISY, "unit": "person", "batch_size": 8, "micro_batch": 2}


def test_people_of_a_streamed_file_are_protected_as_those_in_memory(run_copy, streamed):
    """A person's records are far apart in the file, and in several pieces of a batch."""
    own = run_copy / "clients/00/private"
    units = np.array([0, 1, 2, 0, 0, 3, 1, 0, 4, 0])
    write(own / "people.parquet", len(units), 3, size=8, units=units)
    quick = {"family": "vae", "filters": 4, "hidden_size": 8, "steps": 2, "data_fraction": 0.8}
    params = GENERATORS.from_mapping({**quick, **PEOPLE})

    def generator():
        train_generator([own / "people.parquet"], own / "g.safetensors", params=params, seed=1, force=True)
        return (own / "g.safetensors").read_bytes()

    in_memory = generator()
    streamed()
    (dataset,) = loaded(own / "people.parquet")
    assert isinstance(dataset.content.images, StreamedImages)
    assert dataset.content.units.tolist() == units.tolist()
    assert generator() == in_memory
