"""Nothing but the images themselves could tell where a row came from."""

import itertools
import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import chi2, chisquare

from artifacts.digests import sha256_file
from artifacts.formats import dataset_file
from artifacts.kinds import DATASET_PARAMS
from stages.shuffle import shuffle


def test_the_parts_say_the_same_of_themselves_and_nothing_of_the_clients(federation):
    for name in ("hospital-a", "hospital-b", "hospital-c"):
        federation.send(name, 1000, simulation=name == "hospital-b", round=4)
    shuffle(federation.sent, federation.outbox, parts=2, seed=123456789012)
    texts = [pq.read_metadata(path).metadata for path in federation.parts()]
    assert texts[0][b"huggingface"] == texts[1][b"huggingface"]
    fields = [json.loads(text[b"fedsynth"]) for text in texts]
    own = [{name: one.pop(name) for name in ("payload_sha256", "seal_sha256")} for one in fields]
    assert fields[0] == fields[1] and own[0] != own[1]
    assert {"client", "seed", "counts", "method"}.isdisjoint(fields[0]) and fields[0]["inputs"] == []
    assert fields[0]["params"].keys() == DATASET_PARAMS
    assert (fields[0]["stage"], fields[0]["custody"], fields[0]["round"]) == ("shuffle", "downlink", 4)
    assert fields[0]["simulation"] is True, "one of the inputs is of a simulation"
    for path in federation.parts():
        raw = path.read_bytes()
        private = [b"hospital", b"123456789012", *(sha256_file(sent).encode() for sent in federation.sent)]
        assert not [word for word in private if word in raw]


def test_row_groups_are_of_one_size_and_carry_no_statistics(federation):
    federation.send_all(1234, 777, 1500)
    shuffle(federation.sent, federation.outbox, parts=2, seed=0)
    for path, size in zip(federation.parts(), (1756, 1755), strict=True):
        footer = pq.read_metadata(path)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        assert [group.num_rows for group in groups] == [1000, size - 1000]
        columns = [group.column(number) for group in groups for number in range(3)]
        assert not any(column.is_stats_set or column.has_dictionary_page for column in columns)


@pytest.mark.parametrize(
    ("sizes", "stated", "still"),
    [
        ((9,), ("class_counts", "derived_images", "num_examples"), ("class_counts", "derived_images", "num_examples")),
        ((9, 9), ("class_counts", "derived_images"), ("class_counts", "derived_images")),
        ((9, 9, 9), ("class_counts", "derived_images", "num_examples"), ("class_set", "derived_images")),
        ((9, 9, 9), ("derived_images", "real_image_init"), ("derived_images", "real_image_init")),
        ((9, 9, 9), ("class_set",), ("class_set",)),
        ((9, 9, 9), (), ()),
    ],
)
def test_what_the_mixture_no_longer_tells_about_one_client_is_not_declared(federation, sizes, stated, still):
    """One contributor is not hidden at all; of two, each knows the other's by subtracting its own."""
    federation.send_all(*sizes, disclosures=stated)
    shuffle(federation.sent, federation.outbox, parts=2, seed=0)
    assert dataset_file.read_metadata(federation.parts()[1]).disclosures == still


def test_what_one_client_discloses_all_parts_declare(federation):
    federation.send("00", 5, disclosures=("real_image_init",))
    federation.send("01", 5, disclosures=("derived_images",))
    shuffle(federation.sent, federation.outbox, parts=2, seed=0)
    assert dataset_file.read_metadata(federation.parts()[0]).disclosures == ("derived_images", "real_image_init")


def p_value(counts):
    """Pearson's test that a table of counts with fixed margins is uniform."""
    expected = counts.sum() / counts.size
    freedom = (counts.shape[0] - 1) * (counts.shape[1] - 1)
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), freedom)


def within_files(bounds, rng):
    """A shuffle that is none: each client's rows stay together."""
    return np.concatenate([a + rng.permutation(b - a) for a, b in itertools.pairwise(bounds)])


def test_each_order_is_equally_likely(new_federation, unsynced):
    """Four rows have 24 orders. The same tests reject a shuffle within files, which has six."""
    made = new_federation().send_all(1, 3)
    right, wrong = [], []
    for seed in range(192):
        shuffle(made.sent, made.outbox, parts=2, seed=seed, force=True)
        right.append(tuple(itertools.chain(*made.numbers())))
        wrong.append(tuple(within_files([0, 1, 4], np.random.default_rng(seed)).tolist()))
        shutil.rmtree(made.private)  # a ledger of hundreds of entries takes long to read

    def places(orders):
        counts = np.zeros((4, 4))
        for order in orders:
            counts[order, range(4)] += 1
        return p_value(counts)

    def whole(orders):
        return chisquare([orders.count(order) for order in itertools.permutations(range(4))]).pvalue

    assert places(right) > 1e-4 and whole(right) > 1e-4
    assert places(wrong) < 1e-12 and whole(wrong) < 1e-12


def test_rows_of_each_stretch_of_the_inputs_are_spread_evenly_over_all_parts(federation):
    """One large shuffle, through several row groups; the same test rejects a shuffle within files."""
    federation.send_all(1500, 3000, 1500)
    shuffle(federation.sent, federation.outbox, parts=2, seed=11)
    order = np.array(list(itertools.chain(*federation.numbers())))

    def spread(order):
        counts = np.zeros((8, 8))
        np.add.at(counts, (order // 750, np.arange(6000) // 750), 1)
        return p_value(counts)

    assert spread(order) > 1e-4
    assert spread(within_files([0, 1500, 4500, 6000], np.random.default_rng(0))) < 1e-12
    # Two rows in 6,000 are expected to follow the row that they followed before.
    assert np.count_nonzero(np.abs(np.diff(order)) == 1) < 12
