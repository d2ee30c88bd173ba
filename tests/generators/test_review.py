"""A reviewed copy: made with plain pyarrow, it says which images may leave, and brings none of its own."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artifacts.formats import dataset_file
from artifacts.ledgers import egress
from stages.data.dataset_images import load_dataset
from stages.data.png import encode_png


@pytest.fixture
def drawn(trained, tmp_path, fedsynth_json):
    """A client with a private file of ten synthetic images; returns its folder."""
    private = tmp_path / "00" / "private"
    shutil.copytree(trained, private)
    (tmp_path / "00" / "outbox").mkdir()
    fedsynth_json("synthesize", private / "vae.safetensors", "--count", 10, "-o", private / "all.parquet")
    return tmp_path / "00"


def approve(fedsynth, drawn, table, *options):
    copy = drawn / "private" / "reviewed.parquet"
    pq.write_table(table, copy)
    generator, out = drawn / "private" / "vae.safetensors", drawn / "outbox" / "synthetic.parquet"
    code, _, err = fedsynth("synthesize", generator, "--count", 10, "--reviewed", copy, "-o", out, *options)
    return code, err


def whole(drawn):
    return pq.read_table(drawn / "private" / "all.parquet")


def test_what_the_copy_still_holds_leaves_in_the_order_drawn(fedsynth, drawn):
    table = whole(drawn).take([8, 1, 4])
    assert approve(fedsynth, drawn, table)[0] == 0
    sent = load_dataset(drawn / "outbox" / "synthetic.parquet").content
    before = load_dataset(drawn / "private" / "all.parquet").content
    assert (sent.images == before.images[[1, 4, 8]]).all() and (sent.labels == before.labels[[1, 4, 8]]).all()


@pytest.mark.parametrize("rows", [[0, 2], list(range(10))], ids=["some", "all"])
def test_the_file_and_the_ledger_say_that_it_was_picked_over(fedsynth, fedsynth_json, drawn, rows):
    assert approve(fedsynth, drawn, whole(drawn).take(rows))[0] == 0
    assert dataset_file.read_metadata(drawn / "outbox" / "synthetic.parquet").params["picked"] is True
    (entry,) = egress.read(drawn / "egress.jsonl").entries
    assert entry.picked is True
    assert fedsynth_json("audit", drawn)["passed"]


def test_without_a_review_nothing_says_so(fedsynth_json, drawn):
    fedsynth_json(
        "synthesize", drawn / "private" / "vae.safetensors", "--count", 5, "-o", drawn / "outbox" / "s.parquet"
    )
    assert [entry.picked for entry in egress.read(drawn / "egress.jsonl").entries] == [False]


def changed_pixel(table, drawn):
    image = load_dataset(drawn / "private" / "all.parquet").content.images[0].copy()
    image[0, 0, 0] ^= 1
    rows = table.to_pylist()
    rows[0]["image"]["bytes"] = encode_png(image.transpose(1, 2, 0))
    return pa.Table.from_pylist(rows, schema=table.schema)


def changed_label(table, drawn):
    rows = table.to_pylist()
    rows[0]["label"] = (rows[0]["label"] + 1) % 10
    return pa.Table.from_pylist(rows, schema=table.schema)


def twice(table, drawn):
    return pa.concat_tables([table, table.slice(0, 1)])


@pytest.mark.parametrize("change", [changed_pixel, changed_label, twice])
def test_a_copy_with_something_of_its_own_is_refused_and_nothing_leaves(fedsynth, drawn, change):
    code, err = approve(fedsynth, drawn, change(whole(drawn), drawn))
    assert code == 3 and "may leave images out" in err
    assert list((drawn / "outbox").iterdir()) == [] and not (drawn / "egress.jsonl").exists()


def test_a_copy_with_a_row_that_is_no_image_is_refused(fedsynth, drawn):
    code, err = approve(fedsynth, drawn, pa.table({"image": [b"no image"], "label": np.array([1])}))
    assert code == 3 and err
    assert list((drawn / "outbox").iterdir()) == []


def test_two_ways_to_pick_exclude_each_other(fedsynth, drawn):
    code, err = approve(fedsynth, drawn, whole(drawn), "--drop", "1")
    assert code == 2 and "exclude each other" in err


def test_an_empty_copy_lets_nothing_leave(fedsynth, drawn):
    code, err = approve(fedsynth, drawn, whole(drawn).slice(0, 0))
    assert code == 3, err
    assert list((drawn / "outbox").iterdir()) == []
