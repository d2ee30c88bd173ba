"""Every row comes out once, anywhere; the parts are of one size; the same inputs and seed give the same bytes."""

import itertools
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifacts.digests import sha256_file
from artifacts.formats import dataset_file
from artifacts.ledgers import egress, lineage
from artifacts.places import Place
from stages.shuffle import shuffle


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5), data=st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_row_comes_out_once_with_its_label(new_federation, unsynced, sizes, data):
    if not sum(sizes):
        sizes[0] = 1
    parts = data.draw(st.integers(1, min(12, sum(sizes))))
    made = new_federation().send_all(*sizes)
    shuffle(made.sent, made.outbox, parts=parts, seed=data.draw(st.integers(0, 2**40)))
    found = made.numbers()
    assert sorted(itertools.chain(*found)) == list(range(sum(sizes)))
    assert len(found) == parts and max(map(len, found)) - min(map(len, found)) <= 1


def test_rows_come_out_once_where_there_are_several_row_groups(federation):
    federation.send_all(1700, 900, 0, 2501)
    shuffle(federation.sent, federation.outbox, parts=2, seed=5)
    found = federation.numbers()
    assert sorted(found[0] + found[1]) == list(range(5101)) and [len(part) for part in found] == [2551, 2550]


def test_the_summary_and_the_names_of_the_parts(federation, fedsynth_json):
    federation.send_all(10, 13)
    stated = fedsynth_json("shuffle", *federation.sent, "--parts", 11, "-o", federation.outbox)
    assert [path.name for path in federation.parts()] == [f"synthetic-{n:02}.parquet" for n in range(11)]
    assert (stated["parts"], stated["datasets"], stated["rows"], stated["rows_per_part"]) == (11, 2, 23, "2 or 3")
    assert stated["bytes_out"] == sum(path.stat().st_size for path in federation.parts())
    assert stated["bytes_in"] == sum(path.stat().st_size for path in federation.sent)


def test_the_same_inputs_and_seed_give_the_same_bytes_in_any_order(new_federation, forge):
    folders = [new_federation().send_all(30, 20, 10) for _ in range(3)]
    for made, order in zip(folders, ([0, 1, 2], [2, 0, 1], [1, 2, 0]), strict=True):
        shuffle([made.sent[i] for i in order], made.outbox, parts=4, seed=3)
    first, *others = (forge.snapshot(made.outbox.parent) for made in folders)
    assert first and all(other == first for other in others)


def test_another_seed_gives_another_order(federation):
    federation.send_all(30, 30)
    orders = []
    for seed in (1, 2, 1):
        shuffle(federation.sent, federation.outbox, parts=2, seed=seed, force=True)
        orders.append(federation.numbers())
    assert orders[0] != orders[1] and orders[0] == orders[2]


def test_the_seed_alone_does_not_give_the_order(new_federation):
    """A client knows the seed (0, by default) and the sizes; if that were all, it could tell where each row is from."""
    orders = []
    for version in ("1", "2"):
        made = new_federation().send_all(40)
        made.send("01", 40, versions={"fedsynth": version})
        shuffle(made.sent, made.outbox, parts=2, seed=0)
        orders.append(made.numbers())
    assert orders[0] != orders[1]


def test_each_part_is_recorded_and_the_audit_finds_nothing_wrong(federation, fedsynth):
    federation.send_all(20, 20, 20)
    shuffle(federation.sent, federation.outbox, parts=3, seed=0)
    entries = egress.read(Place.of(federation.parts()[0]).ledger).entries
    assert [(e.file, e.sha256, e.bytes, e.kind) for e in entries] == [
        (path.name, sha256_file(path), path.stat().st_size, "dataset") for path in federation.parts()
    ]
    code, _, err = fedsynth("audit", federation.root)
    assert code == 6, "there are no keys"
    assert "nothing that was looked at is wrong" in err
    assert all(path.stat().st_nlink == 1 for path in federation.parts())


def test_who_contributed_stands_in_the_server_s_private_folder_only(federation):
    federation.send_all(20, 20, 20)
    shuffle(federation.sent, federation.outbox, parts=2, seed=0)
    digests = [sha256_file(path) for path in federation.sent]
    for path in federation.parts():
        record = federation.private / f"{path.stem}.lineage.json"
        assert [reference.sha256 for reference in lineage.read_record(record)] == digests
        assert dataset_file.read_metadata(path).inputs == ()
    kept = sorted(path.name for path in federation.private.iterdir())
    assert kept == ["egress.jsonl", "synthetic-00.lineage.json", "synthetic-01.lineage.json"]


def test_the_record_is_there_before_the_part(federation, monkeypatch):
    federation.send_all(20, 20)

    def refuse(_temporary, _sha256, path, *_, **__):
        assert (federation.private / f"{path.stem}.lineage.json").exists()
        raise RuntimeError

    monkeypatch.setattr("stages.shuffle.publish_staged", refuse)
    with pytest.raises(RuntimeError):
        shuffle(federation.sent, federation.outbox, parts=2, seed=0)
    assert federation.parts() == []


def test_again_with_force_adds_no_entry_for_the_same_bytes(federation):
    federation.send_all(20, 20)
    for _ in range(2):
        shuffle(federation.sent, federation.outbox, parts=3, seed=0, force=True)
    assert len(egress.read(federation.private / "egress.jsonl").entries) == 3


def test_plain_pyarrow_opens_a_part(federation):
    federation.send_all(20, 20)
    shuffle(federation.sent, federation.outbox, parts=2, seed=0)
    table = pq.read_table(federation.parts()[0], page_checksum_verification=True)
    assert table.schema.names == ["image", "label"] and table.schema.field("label").type == pa.int64()
    assert table["image"].combine_chunks().field("path").null_count == len(table) == 20
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["label"] == {"_type": "ClassLabel", "names": ["cat", "dog", "owl"]}
