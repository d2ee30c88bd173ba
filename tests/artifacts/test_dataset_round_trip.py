"""Labelled images come back as they went in, and any tool that reads Parquet opens the file."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError
from artifacts.formats import dataset_file


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("datasets")


@given(rows=st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 1)), max_size=30))
@settings(max_examples=60)
def test_what_is_written_is_read_back(scratch, forge, rows):
    path = scratch / "round_trip.parquet"
    pngs, labels = [png for png, _ in rows], np.array([label for _, label in rows], np.int64)
    digest = dataset_file.write(path, pngs, labels, forge.metadata("dataset"), force=True)
    found = dataset_file.read(path)
    assert [png.as_py() for png in found.pngs] == pngs
    assert found.labels.tolist() == labels.tolist() and found.labels.dtype == np.int64 and len(found) == len(rows)
    assert found.metadata == dataset_file.read_metadata(path) == forge.metadata("dataset")
    assert found.sha256 == digest == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("rows", [0, 1, 999, 1000, 1001, 2500])
def test_any_number_of_rows_is_read_back(tmp_path, forge, rows):
    path = forge.write_dataset(tmp_path / "d.parquet", rows)
    found = dataset_file.read(path)
    assert found.labels.tolist() == [row % 2 for row in range(rows)]
    assert [len(png.as_py()) for png in found.pngs] == [5 + row % 3 for row in range(rows)]


def test_images_larger_than_a_page_are_read_back(tmp_path, forge):
    pngs = [bytes([row]) * 400_000 for row in range(8)]
    path = tmp_path / "d.parquet"
    dataset_file.write(path, pngs, np.zeros(8, np.int64), forge.metadata("dataset"))
    assert [png.as_py() for png in dataset_file.read(path).pngs] == pngs


def test_equal_content_gives_equal_bytes(tmp_path, forge):
    first, second = (forge.write_dataset(tmp_path / f"{n}.parquet", 5).read_bytes() for n in (1, 2))
    assert first == second


def test_plain_pyarrow_opens_it_as_hugging_face_lays_it_out(tmp_path, forge):
    table = pq.read_table(forge.write_dataset(tmp_path / "d.parquet", 4), page_checksum_verification=True)
    assert table.schema.names == ["image", "label"]
    assert table.schema.field("image").type == forge.IMAGE and table.schema.field("label").type == pa.int64()
    assert table["image"].to_pylist()[2] == {"bytes": b"\x02" * 7, "path": None}
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == {"_type": "Image"}
    assert features["label"] == {"_type": "ClassLabel", "names": ["cat", "dog"]}


def test_nothing_about_the_rows_stands_outside_the_rows(tmp_path, forge):
    """No statistics, dictionary, index or second copy of the schema; pages are plain, with checksums."""
    path = forge.write_dataset(tmp_path / "d.parquet", 2500)
    footer = pq.read_metadata(path)
    assert set(footer.metadata) == {b"huggingface", b"fedsynth"}
    for group in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            column = footer.row_group(group).column(index)
            assert column.compression == "UNCOMPRESSED" and set(column.encodings) == {"PLAIN", "RLE"}
            assert not column.is_stats_set and not column.has_dictionary_page
            assert not column.has_column_index and not column.has_offset_index


def test_page_checksums_let_a_stranger_s_reader_find_a_flipped_bit(tmp_path, forge):
    path = forge.write_dataset(tmp_path / "d.parquet", 4)
    data = path.read_bytes()
    path.write_bytes(forge.flip(data, data.find(b"\x02" * 7), 0))
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)


def test_the_payload_digest_is_of_the_column_bytes(tmp_path, forge):
    found = dataset_file.read(forge.write_dataset(tmp_path / "d.parquet", 3))
    labels, lengths = np.array([0, 1, 0], "<i8").tobytes(), np.array([5, 6, 7], "<i8").tobytes()
    images = b"\0" * 5 + b"\1" * 6 + b"\2" * 7
    assert found.payload_sha256 == hashlib.sha256(labels + lengths + images).hexdigest()


@pytest.mark.parametrize("label", [-1, 2, 2**62])
def test_a_label_out_of_range_is_not_written(tmp_path, forge, label):
    path = tmp_path / "d.parquet"
    with pytest.raises(InputError, match=rf"d\.parquet: label {label} is out of range: there are 2 classes"):
        dataset_file.write(path, [b"x", b"y"], np.array([0, label]), forge.metadata("dataset"))
    assert not path.exists()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"num_classes": 3},
        {"num_classes": 0, "class_names": []},
        {"class_names": "ab"},
        {"class_names": [1, 2]},
        {"height": 0},
        {"height": True},
        {"width": 4097},
        {"height": 2**40},
        {"channels": 5},
        {"channels": "1"},
    ],
)
def test_params_that_do_not_describe_the_images_are_not_written(tmp_path, forge, params):
    about = forge.metadata("dataset", params=forge.DATASET_PARAMS | params if params else {})
    with pytest.raises(InputError, match=r"params must state|do not fit|not a list of names"):
        dataset_file.write(tmp_path / "d.parquet", [], np.array([], np.int64), about)
