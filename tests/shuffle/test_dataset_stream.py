"""The streamed file is the very file that `dataset_file` writes, and is believed no more than that one."""

import random

import numpy as np
import pyarrow as pa
import pytest

from artifacts.digests import sha256_file
from artifacts.errors import InputError
from artifacts.formats import dataset_file, dataset_rows, dataset_stream, dataset_writing


def images_of(rows):
    return [bytes([row % 256]) * (5 + row % 7) for row in range(rows)]


@pytest.mark.parametrize("rows", [0, 1, 999, 1000, 1001, 3500])
def test_the_streamed_file_has_the_bytes_of_the_one_written_at_once(tmp_path, forge, rows):
    pngs, labels = images_of(rows), np.arange(rows) % 2
    at_once, streamed = tmp_path / "a.parquet", tmp_path / "b.parquet"
    dataset_file.write(at_once, pngs, labels, forge.metadata("dataset"))
    lengths = np.array([len(png) for png in pngs], np.uint32)
    groups = (pa.array(pngs[i : i + 1000], pa.binary()) for i in range(0, rows, 1000))
    digest = dataset_writing.stage(streamed, labels.astype(np.uint16), lengths, groups, forge.metadata("dataset"))
    assert streamed.read_bytes() == at_once.read_bytes()
    assert digest == sha256_file(streamed)


def test_large_images_are_streamed_to_the_same_bytes(tmp_path, forge):
    pngs, labels = [bytes([row]) * 400_000 for row in range(8)], np.zeros(8, np.int64)
    dataset_file.write(tmp_path / "a.parquet", pngs, labels, forge.metadata("dataset"))
    lengths = np.full(8, 400_000)
    dataset_writing.stage(tmp_path / "b.parquet", labels, lengths, [pa.array(pngs)], forge.metadata("dataset"))
    assert (tmp_path / "b.parquet").read_bytes() == (tmp_path / "a.parquet").read_bytes()


def test_fewer_images_than_labels_are_not_staged(tmp_path, forge):
    with pytest.raises(ValueError, match="1 images for 2 labels"):
        dataset_writing.stage(
            tmp_path / "d", np.zeros(2, int), np.ones(2, int), [pa.array([b"x"])], forge.metadata("dataset")
        )


@pytest.mark.parametrize("rows", [0, 1, 1000, 2500])
def test_a_scan_finds_what_a_read_finds(tmp_path, forge, rows):
    path = forge.write_dataset(tmp_path / "d.parquet", rows)
    read, scanned = dataset_file.read(path), dataset_stream.scan(path)
    assert scanned.metadata == read.metadata and scanned.payload_sha256 == read.payload_sha256
    assert scanned.sha256 == read.sha256 == sha256_file(path) and scanned.size == len(read.data)
    assert scanned.labels.tolist() == read.labels.tolist() and len(scanned) == rows
    batches = list(scanned.images())
    assert [png for batch in batches for png in batch.to_pylist()] == read.pngs.to_pylist()
    assert scanned.lengths.tolist() == [len(png.as_py()) for png in read.pngs]


def test_a_row_group_of_all_rows_is_refused(tmp_path, forge):
    """Row groups have one size: a stranger's choice could say something, and would be loaded whole."""
    path = tmp_path / "d.parquet"
    path.write_bytes(forge.forge_parquet(forge.image_table(images_of(1001), [0] * 1001)))
    with pytest.raises(InputError, match="more than 1000 rows"):
        dataset_stream.scan(path)


def verdict(read, path):
    try:
        read(path)
    except InputError as error:
        return str(error)
    return "accepted"


def test_a_scan_refuses_whatever_a_read_refuses(tmp_path, forge):
    """Random bytes under a valid seal: the verdict is that of `dataset_file.read`, and names the file."""
    data = forge.write_dataset(tmp_path / "whole.parquet", 3).read_bytes()
    _, end = forge.footer_bounds(data)
    rng, path = random.Random(5), tmp_path / "d.parquet"
    refused = 0
    for _ in range(400):
        hurt = bytearray(data)
        for _ in range(rng.choice([1, 1, 2])):
            hurt[rng.randrange(4, end)] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        path.write_bytes(forge.reseal(bytes(hurt)) if rng.random() < 0.9 else bytes(hurt))
        wanted = verdict(dataset_file.read, path)
        found = verdict(dataset_stream.scan, path)
        assert (found == "accepted") == (wanted == "accepted"), (found, wanted)
        refused += found.startswith(f"{path} is not a whole fedsynth artifact")
    assert refused > 300


def test_a_page_that_says_in_other_words_that_no_row_is_missing_is_refused(tmp_path, forge):
    """All values there, as groups of eight bits instead of one run: Arrow reads it, and bits could hide in it."""
    data = forge.write_dataset(tmp_path / "whole.parquet", 3).read_bytes()
    path = tmp_path / "d.parquet"
    run, packed = bytes([2, 0, 0, 0, 3 << 1, 1]), bytes([2, 0, 0, 0, 1 << 1 | 1, 0b111])
    for levels, expected in ((run, "accepted"), (packed, "its page more than labels")):
        path.write_bytes(forge.forge_page(data, change_payload=lambda page, levels=levels: levels + page[6:]))
        assert dataset_rows.pq.ParquetFile(path).read()["label"].null_count == 0
        for read in (dataset_stream.scan, dataset_file.read):
            assert expected in verdict(read, path)


def test_lengths_that_are_cut_by_the_pieces_of_a_file_are_found(tmp_path, forge, monkeypatch):
    path = forge.write_dataset(tmp_path / "d.parquet", 2500)
    wanted = dataset_stream.scan(path)
    for size in (1, 3, 5, 64):
        monkeypatch.setattr("artifacts.formats.seal._CHUNK", size)
        found = dataset_stream.begin(path)
        assert found.lengths.tolist() == wanted.lengths.tolist() and found.sha256 == wanted.sha256


@pytest.mark.parametrize("change", [-1, 1, 2**32 - 1 - 5])
def test_an_image_that_claims_another_length_than_it_has_is_refused(tmp_path, forge, change):
    data = forge.write_dataset(tmp_path / "whole.parquet", 3).read_bytes()
    (count, first, _), *_ = dataset_stream.parquet_layout.image_pages(data, *forge.footer_bounds(data))
    length = int.from_bytes(data[first : first + 4], "little")
    assert count == 3 and length == 5
    path = tmp_path / "d.parquet"
    changed = (length + change).to_bytes(4, "little")
    path.write_bytes(forge.reseal(data[:first] + changed + data[first + 4 :]))
    for read in (dataset_stream.scan, dataset_file.read):
        assert "is not a whole fedsynth artifact" in verdict(read, path)


def test_rows_under_another_digest_and_pages_under_another_checksum_are_refused(tmp_path, forge):
    data = forge.write_dataset(tmp_path / "whole.parquet", 3).read_bytes()
    path = tmp_path / "d.parquet"
    path.write_bytes(forge.forge_page(data, change_payload=lambda page: page[:-8] + bytes([1, *[0] * 7])))
    assert "the rows do not match their digest" in verdict(dataset_stream.scan, path)
    path.write_bytes(forge.forge_page(data, lambda header: header.update({"4:i32": 5})))
    assert "CRC" in verdict(dataset_stream.scan, path)


def test_a_missing_file_and_a_folder_say_so(tmp_path):
    assert "no such file" in verdict(dataset_stream.scan, tmp_path / "none.parquet")
    assert "Is a directory" in verdict(dataset_stream.scan, tmp_path)
