"""A Parquet artifact that was hurt on its way is found, wherever it was hurt."""

import functools
import random

import pytest

from artifacts.errors import InputError
from artifacts.formats import dataset_file, dataset_rows


@pytest.fixture
def whole(tmp_path, forge):
    path = forge.write_dataset(tmp_path / "d.parquet", 3)
    return path, path.read_bytes()


@pytest.fixture
def refused(forge):
    return functools.partial(forge.refused, read=dataset_file.read)


def test_a_flipped_bit_is_found_at_every_byte_though_only_the_footer_is_read(refused, whole, forge):
    path, data = whole
    for position in range(len(data)):
        refused(path, forge.flip(data, position, position % 8), read=dataset_file.read_metadata)


def test_a_flipped_bit_is_found_in_any_page_of_a_larger_file(refused, tmp_path, forge):
    path = forge.write_dataset(tmp_path / "d.parquet", 2500)
    data = path.read_bytes()
    rng = random.Random(3)
    for _ in range(100):
        assert "seal" in refused(path, forge.flip(data, rng.randrange(len(data) - 3000), rng.randrange(8)))


def test_a_damaged_footer_never_reaches_the_parser_of_arrow(refused, whole, forge, monkeypatch):
    path, data = whole

    def parser(*_, **__):
        raise AssertionError("Arrow was given a damaged file")

    monkeypatch.setattr(dataset_rows.pq, "ParquetFile", parser)
    start, end = forge.footer_bounds(data)
    for position in range(start, end):
        refused(path, forge.flip(data, position, position % 8))


@pytest.mark.parametrize("read", [dataset_file.read, dataset_file.read_metadata])
def test_a_safetensors_file_is_not_a_dataset(tmp_path, forge, read):
    path = forge.write_tensors(tmp_path / "m.safetensors")
    with pytest.raises(InputError, match="does not end as a Parquet file does"):
        read(path)
