"""Hugging Face-style Parquet: what is there is read, and nothing in it is believed."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artifacts.errors import InputError
from stages.data.png import encode_png
from stages.data.sources import load


def image(value: int, size: int = 4) -> bytes:
    return encode_png(np.full((size, size), value, np.uint8))


def images(values) -> list:
    return [None if value is None else {"bytes": value, "path": None} for value in values]


IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
TWO = {"image": pa.array(images([image(1), image(2)]), IMAGE_TYPE), "label": pa.array([0, 1])}


def write(path, columns, names=None, **options) -> str:
    table = pa.table(columns)
    if names is not None:
        features = {"label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return str(path)


def test_one_file_is_one_dataset(tmp_path) -> None:
    source = load(write(tmp_path / "pets.parquet", TWO, ["cat", "dog", "cow"]))
    assert source.test is None
    assert source.train.class_names == ("cat", "dog", "cow")
    assert source.train.labels.tolist() == [0, 1]
    assert source.train.images[:, 0, 0, 0].tolist() == [1, 2]


def test_a_folder_has_train_and_test_and_shards_in_order(tmp_path) -> None:
    def part(value):
        return {"image": pa.array(images([image(value)]), IMAGE_TYPE), "label": pa.array([value % 3], pa.uint8())}

    for name, value in (("train-00001-of-2", 1), ("train-00000-of-2", 0), ("test", 5), ("validation", 7)):
        write(tmp_path / f"{name}.parquet", part(value))
    (tmp_path / ".train-hidden.parquet").write_bytes(b"")
    source = load(str(tmp_path))
    assert source.train.images[:, 0, 0, 0].tolist() == [0, 1]
    assert source.test.images[:, 0, 0, 0].tolist() == [5]
    # Without names the classes are numbers, as many as either split needs.
    assert source.train.class_names == source.test.class_names == ("0", "1", "2")
    (tmp_path / "test.parquet").unlink()
    assert load(str(tmp_path)).test.images[:, 0, 0, 0].tolist() == [7]


def test_a_shard_may_be_empty(tmp_path) -> None:
    write(tmp_path / "train-0.parquet", {name: column.slice(0, 0) for name, column in TWO.items()})
    write(tmp_path / "train-1.parquet", TWO)
    assert len(load(str(tmp_path)).train) == 2


def test_rows_keep_their_order_over_row_groups_and_batches(tmp_path) -> None:
    values = list(range(250)) * 3
    columns = {"image": pa.array(images(map(image, values)), IMAGE_TYPE), "label": pa.array([v % 7 for v in values])}
    source = load(write(tmp_path / "many.parquet", columns, row_group_size=301))
    assert source.train.images[:, 0, 0, 0].tolist() == values
    assert source.train.labels.tolist() == [v % 7 for v in values]


def test_columns_of_other_names(tmp_path) -> None:
    path = write(tmp_path / "cifar.parquet", {"img": TWO["image"], "fine_label": TWO["label"]})
    with pytest.raises(InputError, match="no one column 'image' among img, fine_label; give the right --image-column"):
        load(path)
    with pytest.raises(InputError, match="'label' among img, fine_label; give the right --label-column"):
        load(path, image_column="img")
    assert len(load(path, image_column="img", label_column="fine_label").train) == 2


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["w7", "w3"]), ("w7", "w3")),
        (pa.array(["w7", "w7"]).dictionary_encode(), ("w7", "w7")),
        (pa.array([12, 5], pa.int16()), ("12", "5")),
    ],
)
def test_ids_are_text_or_whole_numbers(tmp_path, column, expected) -> None:
    write(tmp_path / "train.parquet", TWO | {"writer": column})
    write(tmp_path / "test.parquet", TWO)
    source = load(str(tmp_path), id_column="writer")
    assert source.train.ids == expected
    assert source.test.ids is None
    assert load(str(tmp_path)).train.ids is None


NO_BYTES = pa.array([{"bytes": None, "path": "cat.png"}] * 2, IMAGE_TYPE)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"image": pa.array(["cat.png", "dog.png"])}, "must be struct<bytes: binary, …>, found string"),
        ({"image": NO_BYTES}, "row 0: no image bytes|row 0 \\(no image bytes"),
        ({"image": pa.array(images([image(1), None]), IMAGE_TYPE)}, "row 1: no image bytes"),
        ({"image": pa.array([{"bytes": image(1), "path": ""}, None], IMAGE_TYPE)}, "row 1: no image bytes"),
        ({"image": pa.array(images([image(1), b"<svg/>"]), IMAGE_TYPE)}, "row 1: not an image"),
        ({"image": pa.array(images([image(1), image(1)[:45]]), IMAGE_TYPE)}, "row 1: a damaged PNG image"),
        (
            {"image": pa.array(images([image(1), image(1, 5)]), IMAGE_TYPE)},
            r"\(1 of 4×4×1, 1 of 5×5×1\); give --image-size",
        ),
        ({"label": pa.array([0, None])}, "column 'label': 1 rows have no label"),
        ({"label": pa.array([0.0, 1.0])}, "must hold whole numbers, found double"),
        ({"label": pa.array(["cat", "dog"])}, "must hold whole numbers, found string"),
        ({"label": pa.array([0, -1])}, "labels must be 0 to 65535, found -1 to 0"),
        ({"label": pa.array([0, 2**64 - 1], pa.uint64())}, "found 0 to 18446744073709551615"),
        ({"label": pa.array([0, 2**62])}, "found 0 to 4611686018427387904"),
        ({"writer": pa.array(["a", None])}, "column 'writer': 1 rows have no id"),
        ({"writer": pa.array([0.5, 1.5])}, "must hold text or whole numbers, found double"),
        ({"writer": pa.array(["a", "b" * 2000])}, "one id is longer than 1024"),
        ({"writers": pa.array(["a", "b"])}, "no one column 'writer'"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, changes, complaint) -> None:
    path = write(tmp_path / "bad.parquet", TWO | changes)
    id_column = "writer" if changes.keys() & {"writer", "writers"} else None
    with pytest.raises(InputError, match=complaint) as caught:
        load(path, id_column=id_column)
    assert path in str(caught.value)


def test_a_column_that_is_there_twice_is_refused(tmp_path) -> None:
    table = pa.Table.from_arrays([TWO["image"], TWO["label"], TWO["label"]], ["image", "label", "label"])
    pq.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="no one column 'label'"):
        load(str(tmp_path / "twice.parquet"))


def test_an_empty_file_is_refused(tmp_path) -> None:
    path = write(tmp_path / "none.parquet", {name: column.slice(0, 0) for name, column in TWO.items()})
    with pytest.raises(InputError, match="it holds no images"):
        load(path)


def test_a_label_without_a_name_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="labels must be in 0…0, one number for each class name, found 0…1"):
        load(write(tmp_path / "pets.parquet", TWO, ["cat"]))


def test_splits_that_name_different_classes_are_refused(tmp_path) -> None:
    write(tmp_path / "train.parquet", TWO, ["cat", "dog"])
    write(tmp_path / "test.parquet", TWO, ["dog", "cat"])
    with pytest.raises(InputError, match="the training and the test files name different classes"):
        load(str(tmp_path))
    (tmp_path / "test.parquet").rename(tmp_path / "train-2.parquet")
    with pytest.raises(InputError, match=re.escape("train-2.parquet, train.parquet name different classes")):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("metadata", "complaint"),
    [
        ("{not json", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"info": {"features": {"label": {"names": "cat"}}}}', "not a list of names"),
        ('{"info": {"features": {"label": {"names": [1, 2]}}}}', "not a list of names"),
        ('{"info": {"features": {"label": {"names": ["cat", "cat"]}}}}', "same name twice"),
    ],
)
def test_hostile_metadata(tmp_path, metadata, complaint) -> None:
    path = tmp_path / "pets.parquet"
    pq.write_table(pa.table(TWO).replace_schema_metadata({"huggingface": metadata}), path)
    with pytest.raises(InputError, match=complaint):
        load(str(path))


@pytest.mark.parametrize("metadata", ["[]", "null", '{"info": 3}', '{"info": {"features": {"label": {}}}}'])
def test_metadata_without_names_is_no_error(tmp_path, metadata) -> None:
    path = tmp_path / "pets.parquet"
    pq.write_table(pa.table(TWO).replace_schema_metadata({"huggingface": metadata}), path)
    assert load(str(path)).train.class_names == ("0", "1")


def test_a_flipped_byte_is_found_by_the_page_checksum(tmp_path) -> None:
    path = tmp_path / "pets.parquet"
    write(path, TWO, write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    where = data.index(bytes([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]))  # the labels 0 and 1
    data[where] = 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="cannot be read as Parquet, or is damaged"):
        load(str(path))


def test_what_is_no_parquet_is_refused(tmp_path) -> None:
    path = tmp_path / "pets.parquet"
    write(path, TWO)
    whole = path.read_bytes()
    for data in (b"", b"image,label\n", whole[:-10], whole[:50], whole[10:]):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"pets\.parquet: it cannot be read as Parquet, or is damaged"):
            load(str(path))


def test_a_folder_without_training_files_is_refused(tmp_path) -> None:
    write(tmp_path / "pets.parquet", TWO)
    with pytest.raises(InputError, match=r"no file is named train\*\.parquet"):
        load(str(tmp_path))


def test_one_large_value_repeated_in_every_row_does_not_fill_the_memory(tmp_path) -> None:
    num_rows, size = 2000, 3 * 2**20
    large = pa.DictionaryArray.from_arrays(pa.array([0] * num_rows, pa.int32()), pa.array([bytes(size)]))
    column = pa.StructArray.from_arrays([large, pa.nulls(num_rows, pa.string())], ["bytes", "path"])
    path = tmp_path / "bomb.parquet"
    table = pa.table({"image": column, "label": pa.array([0] * num_rows)})
    pq.write_table(table, path, dictionary_pagesize_limit=2**30, compression="zstd", store_schema=False)
    assert path.stat().st_size < 10_000
    # 6 GB if read at once; the usual 256 rows in a batch would be 768 MB, and the process that reads has 256 MiB.
    with pytest.raises(InputError, match="its images unpack to more than"):
        load(str(path))


def test_a_bomb_among_the_images_is_named(tmp_path) -> None:
    lying = bytearray(image(1))
    lying[16:24] = b"\x00\x00\xff\xff" * 2
    path = write(tmp_path / "bomb.parquet", TWO | {"image": pa.array(images([image(1), bytes(lying)]), IMAGE_TYPE)})
    with pytest.raises(InputError, match="row 1: "):
        load(path)


def test_a_table_without_images_says_images_only(tmp_path):
    path = tmp_path / "patients.parquet"
    pq.write_table(pa.table({"age": [30, 40], "label": [0, 1]}), path)
    with pytest.raises(InputError, match=r"no column holds images \(its columns are age, label\).* images only"):
        load(str(path))
