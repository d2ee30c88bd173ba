"""Between keys and copies: a budget that another key got round, one reservation for many releases, records twice."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest

from artifacts.errors import BudgetError, InputError, UsageError
from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.ledgers import spend
from artifacts.places import Place
from stages.audit.budget import SpendBook
from stages.data.dataset_images import joined, joined_once, load_dataset, save_dataset
from stages.encode import encode
from stages.keygen import settle
from stages.methods import private_local_training
from stages.registry import ENCODERS

BUDGET = "epsilon: 0.3\ndelta: 1e-5\nunit: record\n"


# 7: the ledger and the budget are the data's.


@pytest.fixture
def other_key(tmp_path):
    path = tmp_path / "k2/client.key"
    settle(path, keys.generate(), force=False)
    return path


def test_another_key_does_not_get_round_the_budget(client, other_key):
    """The attack: 30.7 left under a budget of 0.3."""
    client.private("budget.yaml").write_text(BUDGET)
    with pytest.raises(BudgetError):
        client.train()
    with pytest.raises(InputError, match="spend ledger of another key"):
        client.train(key=other_key)
    assert not client.private("update-0001.safetensors").exists()
    assert spend.read_charged(spend.beside(other_key)) == []


def test_another_key_charges_nothing_elsewhere_without_a_budget_either(client, other_key):
    with pytest.raises(InputError, match="spend ledger of another key"):
        client.train(key=other_key)


def test_a_link_to_the_data_leads_to_its_ledger(client, other_key, tmp_path):
    link = tmp_path / "k2/data.parquet"
    link.symlink_to(client.data)
    with pytest.raises(UsageError, match="two ledgers"):
        client.train(data=[link], key=other_key)


@pytest.mark.parametrize("charged", [True, False])
@pytest.mark.parametrize("way", [shutil.copy, os.link])
def test_a_copy_of_the_data_beside_another_key_belongs_to_its_ledger(client, other_key, charged, way):
    """The attack: a copy, or a hard link, had a ledger of its own beside it, and no budget."""
    settle(client.private("client.key"), keys.generate(), force=True)
    if charged:
        client.train()
    client.private("budget.yaml").write_text(BUDGET)
    with pytest.raises(BudgetError):
        client.train(seed=4)
    copy = other_key.with_name("data.parquet")
    way(client.data, copy)
    with pytest.raises(UsageError, match="belong to the spend ledger"):
        client.train(data=[copy], key=other_key)
    assert spend.read_charged(spend.beside(other_key)) == []


def test_a_moved_folder_has_its_own_ledger(client, tmp_path):
    settle(client.private("client.key"), keys.generate(), force=True)
    client.train()
    private = client.base.rename(tmp_path / "moved") / "private"
    client.train(data=[private / "data.parquet"], key=private / "client.key", seed=4)
    assert len(spend.read_charged(private / "spend.jsonl")) == 2


def test_what_was_dealt_out_to_several_belongs_to_nobody(client, other_key):
    settle(client.private("client.key"), keys.generate(), force=True)
    dealt = client.base.parent.parent / "server/outbox/dealt.parquet"
    found = load_dataset(client.data)
    save_dataset(dealt, found.content, dataclasses.replace(found.metadata, custody="downlink", client=None))
    client.train(data=[client.data, dealt])
    copy = other_key.with_name("own.parquet")
    save_dataset(copy, found.content.take(np.arange(20)), found.metadata)
    client.train(data=[copy, dealt], key=other_key)


@pytest.mark.parametrize("method", ["delta", "quantised", "topk", "lowrank", "public-images", "tofu"])
def test_what_leaves_without_noise_is_held_to_the_datas_budget_too(client, other_key, method):
    update = client.train()
    found = tensors_file.read(update)
    bare = dataclasses.replace(found.metadata, privacy=(), counts={"local_steps": 3, "num_examples": 40})
    tensors_file.write(update, found.tensors, bare, force=True)
    client.private("budget.yaml").write_text(BUDGET)
    out = client.base / "outbox/message.safetensors"
    with pytest.raises(BudgetError):
        encode(client.model, update, out, params=ENCODERS.from_mapping({"method": method}), key=other_key)
    assert not out.exists()


def test_a_key_made_anew_goes_on_with_what_was_spent(client):
    client.train()
    settle(client.private("client.key"), keys.generate(), force=True)
    client.train(number=2)
    assert len(client.charges()) == 2
    client.private("budget.yaml").write_text(BUDGET)
    with pytest.raises(BudgetError):
        client.train(number=3, seed=9)


def test_one_reservation_covers_one_release(client):
    """The attack: a reservation matched any number of equal events, since their ids were not looked at."""
    about = tensors_file.read(client.send(client.train())).metadata
    book = SpendBook.read(Place(client.base))
    assert list(book.check(about)) == []
    twin = dataclasses.replace(about, privacy=({**about.privacy[0], "id": "ab" * 32},))
    assert [what for what, _ in book.check(twin)] == ["events"]


def test_a_ledger_that_was_cut_no_longer_covers_what_it_lost(client):
    first = tensors_file.read(client.send(client.train())).metadata
    path = spend.beside(client.private("client.key"))
    lines = path.read_text().splitlines(keepends=True)
    second = tensors_file.read(client.send(client.train(number=2, seed=9))).metadata
    path.write_text("".join(lines))
    book = SpendBook.read(Place(client.base))
    assert list(book.check(first)) == []
    assert [why for _, why in book.check(second)] == ["it claims noise that was never reserved in the spend ledger"]


def test_the_ledger_names_the_events_that_it_gave_out(client):
    (event,) = client.events(client.train())
    entries = [json.loads(line) for line in spend.beside(client.private("client.key")).read_text().splitlines()]
    assert [entry["event"] for entry in entries if entry["entry"] == "released"] == [event["id"]]


# 8: the same records twice.


@pytest.fixture
def shuffled(client):
    """The client's own rows again, in another order: another file, the same records."""
    return client.write(client.private("again.parquet"), client.digits.take(np.arange(40)[::-1].copy()))


def test_rows_in_another_order_count_once(client, shuffled, monkeypatch):
    """The attack: the files' digests differ, each record moved the sum by 2C at the price of C."""
    seen = []
    real = private_local_training.private_gradients

    def watched(module, images, labels, **options):
        seen.append(len(labels))
        return real(module, images, labels, **options)

    monkeypatch.setattr(private_local_training, "private_gradients", watched)
    client.train(data=[client.data, shuffled])
    assert seen == [40]


def test_one_record_more_in_any_number_of_files_is_one_row_more(client, tmp_path):
    rng = np.random.default_rng(0)
    for _ in range(20):
        parts = [rng.integers(0, 12, size=rng.integers(1, 15)) for _ in range(3)]
        extra = int(rng.integers(0, 12))
        where = rng.random(3) < 0.5  # also in the first file and the third, without the second
        sizes = []
        for more in (False, True):
            files = []
            for number, part in enumerate(parts):
                rows = np.append(part, extra) if more and where[number] else part
                path = client.write(tmp_path / f"{number}/private/d.parquet", client.digits.take(rng.permutation(rows)))
                files.append(load_dataset(path))
            images, labels = joined_once(files)
            assert len(images) == len(labels)
            sizes.append(len(labels))
        assert sizes[1] - sizes[0] in (0, 1)


def test_equal_rows_of_one_file_are_records_of_their_own(client, tmp_path):
    path = client.write(tmp_path / "x/private/d.parquet", client.digits.take(np.array([3, 3, 5])))
    files = [load_dataset(path)]
    assert len(joined_once(files)[1]) == len(joined(files)[1]) == 3
