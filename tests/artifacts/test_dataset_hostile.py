"""A forger writes Parquet with seal, digest and checksums as they should be: what is wrong is found all the same."""

import os
import random
import resource
import signal
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from artifacts.errors import InputError
from artifacts.formats import dataset_file, parquet_layout


@pytest.fixture
def data(tmp_path, forge):
    return forge.write_dataset(tmp_path / "d.parquet", 3).read_bytes()


def refused(folder, data):
    path = folder / "hostile.parquet"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        dataset_file.read(path)
    text = str(caught.value)
    assert str(path) in text and "\n" not in text and len(text) < 500 + len(str(path))
    return text


def read_in_a_child(*paths):
    """What a child process that may grow by 60 MB says to each file; fewer answers than files if it dies."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(60)
        limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + 60_000_000
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for path in paths:
            try:
                dataset_file.read(path)
                answer = "accepted"
            except InputError as error:
                answer = str(error)
            except BaseException as error:
                answer = f"{type(error).__name__} {error}".replace("\n", " ")
            os.write(send, answer.encode() + b"\n")
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        answers = pipe.read().decode().splitlines()
    os.waitpid(child, 0)
    return answers


def refused_at_once(answer):
    return "is not a whole fedsynth artifact" in answer and "alloc" not in answer


ROWS = [b"aa", b"bb", b"aa"], [0, 1, 0]


def test_a_forger_who_changes_nothing_gets_the_same_file(data, forge):
    """The other tests of this file depend on it: nothing but their change is wrong."""
    assert forge.forge_footer(data, dict.copy) == data
    assert forge.forge_page(data) == data


def test_a_stranger_s_file_in_our_layout_is_read(tmp_path, forge):
    path = tmp_path / "d.parquet"
    path.write_bytes(forge.forge_parquet(forge.image_table(*ROWS)))
    assert dataset_file.read(path).labels.tolist() == ROWS[1]


OPTIONS = {
    "compressed pages": {"compression": "gzip"},
    "a dictionary": {"use_dictionary": True},
    "statistics": {"write_statistics": True},
    "no page checksums": {"write_page_checksum": False},
    "pages of the second version": {"data_page_version": "2.0"},
    "an index": {"write_page_index": True, "write_statistics": True},
    "a second copy of the schema": {"store_schema": True},
    "another encoding": {"column_encoding": {"label": "DELTA_BINARY_PACKED"}},
    "an old version": {"version": "1.0"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_another_way_of_storing_is_refused(tmp_path, forge, name):
    refused(tmp_path, forge.forge_parquet(forge.image_table(*ROWS), **OPTIONS[name]))


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"use_dictionary": True}], ids=["zip", "dictionary"])
def test_a_bomb_is_refused_before_it_unfolds(tmp_path, forge, options):
    """A hundred megabytes of equal images in a file of two or less."""
    image, count = b"\0" * 1_000_000, 100
    images = pa.StructArray.from_arrays(
        [pa.array([image] * count, pa.binary()), pa.nulls(count, pa.string())], fields=list(forge.IMAGE)
    )
    bomb = forge.forge_parquet(pa.table({"image": images, "label": np.zeros(count, np.int64)}), **options)
    assert len(bomb) < 2_000_000
    path = tmp_path / "bomb.parquet"
    path.write_bytes(bomb)
    del images
    assert [refused_at_once(answer) for answer in read_in_a_child(path)] == [True]


def table_with(forge, **changes):
    table = forge.image_table(*ROWS)
    for name, column in changes.items():
        table = table.append_column(name, column)
    return table


def test_a_column_too_many_is_refused(tmp_path, forge):
    hidden = table_with(forge, note=pa.array(["a", "b", "c"]))
    assert "its columns must be" in refused(tmp_path, forge.forge_parquet(hidden))


@pytest.mark.parametrize("kind", [pa.int32(), pa.float64(), pa.string()])
def test_labels_of_another_type_are_refused(tmp_path, forge, kind):
    table = forge.image_table(*ROWS)
    table = table.set_column(1, "label", table["label"].cast(kind))
    forged = forge.forge_parquet(table, labels=np.array(ROWS[1]))
    assert "its columns must be" in refused(tmp_path, forged)


def test_columns_in_another_order_are_refused(tmp_path, forge):
    table = forge.image_table(*ROWS).select(["label", "image"])
    assert "its columns must be" in refused(tmp_path, forge.forge_parquet(table))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (([b"a", b"b"], [0, 1], ["/home/ann/scan.png", None]), "path"),
        (([b"a", b"b"], [0, 1], ["", ""]), "path"),
        (([b"a", None], [0, 1]), "bytes"),
        (([b"a", b"b"], [0, None]), "label"),
        (([b"a", b"b"], [0, 2]), "label 2 is out of range"),
        (([b"a", b"b"], [0, -1]), "label -1 is out of range"),
    ],
)
@pytest.mark.parametrize("counted", [True, False], ids=["with size statistics", "without"])
def test_rows_that_no_dataset_holds_are_refused(tmp_path, forge, table, message, counted):
    labels = np.array([0 if label is None else label for label in table[1]])
    forged = forge.forge_parquet(forge.image_table(*table), labels=labels)

    def without(footer):
        for column in footer["4:list<struct>"][0]["1:list<struct>"]:
            column["3:struct"].pop("16:struct", None)

    text = refused(tmp_path, forged if counted else forge.forge_footer(forged, without))
    assert message in text or "size statistics" in text or "a row " in text


TEXTS = {
    "a third key": lambda t: t | {"note": "hidden"},
    "no key of ours": lambda t: {"huggingface": t["huggingface"]},
    "other class names for Hugging Face": lambda t: t | {"huggingface": t["huggingface"].replace("cat", "cow")},
    "another order of the keys": lambda t: dict(reversed(t.items())),
    "another kind": lambda t: t | {"fedsynth": t["fedsynth"].replace('"dataset"', '"generator"')},
    "an unknown field": lambda t: t | {"fedsynth": t["fedsynth"].replace('{"custody"', '{"camera":1,"custody"')},
    "fewer classes than labels": lambda t: t | {"fedsynth": t["fedsynth"].replace('["cat","dog"]', '["cat"]')},
}


@pytest.mark.parametrize("name", TEXTS)
def test_metadata_that_are_not_ours_are_refused(tmp_path, forge, name):
    forged = forge.forge_parquet(forge.image_table(*ROWS), text=TEXTS[name])
    refused(tmp_path, forged)
    with pytest.raises(InputError):
        dataset_file.read_metadata(tmp_path / "hostile.parquet")


def group(footer):
    return footer["4:list<struct>"][0]


def column(footer, number=2):
    return group(footer)["1:list<struct>"][number]["3:struct"]


FOOTERS = {
    "a terabyte of rows": lambda f: f.update({"3:i64": 2**40}),
    "a terabyte of rows in a row group": lambda f: group(f).update({"3:i64": 2**40}),
    "a terabyte of rows in both": lambda f: (f.update({"3:i64": 2**40}), group(f).update({"3:i64": 2**40})),
    "a negative number of rows": lambda f: (f.update({"3:i64": -1}), group(f).update({"3:i64": -1})),
    "fewer rows than there are": lambda f: f.update({"3:i64": 1}),
    "values without end": lambda f: column(f).update({"5:i64": 2**40}),
    "an unknown codec": lambda f: column(f).update({"4:i32": 16}),
    "a codec of minus one": lambda f: column(f).update({"4:i32": -1}),
    "a compressed column": lambda f: column(f).update({"4:i32": 2}),
    "a column of a terabyte": lambda f: column(f).update({"6:i64": 2**40, "7:i64": 2**40}),
    "a column of a terabyte when unpacked": lambda f: column(f).update({"6:i64": 2**40}),
    "a column of a negative size": lambda f: column(f).update({"7:i64": -5}),
    "a column that begins in another": lambda f: column(f).update({"9:i64": 4}),
    "a column in another file": lambda f: group(f)["1:list<struct>"][0].update({"1:binary": b"/etc/passwd"}),
    "histograms of another length": lambda f: column(f).update({"16:struct": {"3:list<i64>": [1] * 5}}),
    "a dictionary page": lambda f: column(f).update({"11:i64": 4}),
    "a bloom filter": lambda f: column(f).update({"14:i64": 4}),
    "statistics": lambda f: column(f).update({"12:struct": {"5:binary": b"max", "6:binary": b"min"}}),
    "metadata in a column": lambda f: column(f).update({"8:list<struct>": [{"1:binary": b"k", "2:binary": b"v"}]}),
    "a row group twice": lambda f: f["4:list<struct>"].append(group(f)),
    "no row group": lambda f: f.update({"4:list<struct>": []}),
    "a row group of two columns": lambda f: group(f)["1:list<struct>"].pop(),
    "an unknown writer": lambda f: f.update({"6:binary": b"hidden words"}),
    "an unknown field": lambda f: f.update({"20:binary": b"hidden words"}),
    "a schema without end": lambda f: f.update({"2:list<struct>": f["2:list<struct>"] * 100}),
    "a number of another type": lambda f: f.update({"3:i32": f.pop("3:i64")}),
}


@pytest.mark.parametrize("name", FOOTERS)
def test_a_lying_footer_is_refused_without_allocating_or_ending_the_process(tmp_path, data, forge, name):
    path = tmp_path / "hostile.parquet"
    path.write_bytes(forge.forge_footer(data, FOOTERS[name]))
    assert [refused_at_once(answer) for answer in read_in_a_child(path)] == [True]
    refused(tmp_path, path.read_bytes())


@pytest.mark.parametrize("length", [0, 5, 10**6, 2**31, 2**32 - 1])
def test_a_lying_length_of_the_footer_is_refused(tmp_path, data, length):
    refused(tmp_path, data[:-8] + struct.pack("<I", length) + data[-4:])


def test_a_list_that_claims_more_entries_than_bytes_is_refused(tmp_path, data, forge):
    start, _ = forge.footer_bounds(data)
    lie = b"\x15\x04\x19\xfc" + b"\xff\xff\xff\x07"  # version 2, then a schema of sixteen million elements
    assert "claims" in refused(tmp_path, forge.with_footer(data[:start], lie + data[start:-8]))


PAGES = {
    "values without end": ({"5:struct": {"1:i32": 2**31 - 1, "2:i32": 0, "3:i32": 3, "4:i32": 3}}, "values for 3 rows"),
    "no values": ({"5:struct": {"1:i32": 0, "2:i32": 0, "3:i32": 3, "4:i32": 3}}, "claims"),
    "two gigabytes": ({"2:i32": 2**31 - 1, "3:i32": 2**31 - 1}, "claims"),
    "two gigabytes when unpacked": ({"2:i32": 2**31 - 1}, "not stored plain"),
    "a negative size": ({"2:i32": -1, "3:i32": -1}, "claims"),
    "another encoding": ({"5:struct": {"1:i32": 3, "2:i32": 8, "3:i32": 3, "4:i32": 3}}, "not stored plain"),
    "a dictionary page": ({"1:i32": 2}, "not stored plain"),
    "a wrong checksum": ({"4:i32": 5}, "CRC"),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_lying_page_is_refused(tmp_path, data, forge, name):
    change, message = PAGES[name]
    assert message in refused(tmp_path, forge.forge_page(data, lambda header: header.update(change)))


def test_bytes_between_pages_and_footer_are_refused(tmp_path, data, forge):
    start, end = forge.footer_bounds(data)
    assert "its pages end at" in refused(tmp_path, forge.with_footer(data[:start] + b"hidden", data[start:end]))


def test_other_labels_under_the_old_digest_are_refused(tmp_path, data, forge):
    forged = forge.forge_page(data, change_payload=lambda page: page[:-8] + struct.pack("<q", 1))
    assert "the rows do not match their digest" in refused(tmp_path, forged)


def test_random_changes_under_a_valid_seal_never_end_the_process(tmp_path, data, forge):
    """Arrow alone dies of one in five hundred of these files, and asks for gigabytes for others."""
    rng = random.Random(17)
    _, end = forge.footer_bounds(data)
    words = {i for m in (b'{"custody', b'{"info') for i in range(data.find(m), data.find(b"}}", data.find(m)))}
    spots = [i for i in range(4, end) if i not in words]
    paths = [tmp_path / f"{number}.parquet" for number in range(1000)]
    for path in paths:
        hurt = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 3])):
            hurt[rng.choice(spots)] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        path.write_bytes(forge.reseal(bytes(hurt)))
    answers = read_in_a_child(*paths)
    assert len(answers) == len(paths), "the process died"
    assert all(refused_at_once(a) or a == "accepted" for a in answers), set(answers)
    assert sum(answer != "accepted" for answer in answers) > 900


def test_the_layout_module_knows_every_field_that_is_written(data, forge):
    """Decoding and encoding again gives the footer's own bytes: no bit of it is skipped."""
    start, end = forge.footer_bounds(data)
    assert forge.encode_thrift(parquet_layout._footer(data[start:end])) == data[start:end]
