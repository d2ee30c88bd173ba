"""The run folder that `partition` writes: a disjoint cover, private where it must be, the same every time."""

import io
import json
import stat
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from artifacts.errors import InputError, UsageError
from artifacts.identity import keys
from stages.data.dataset_images import load_dataset
from stages.data.params import PartitionParams
from stages.partition import partition
from stages.run_folder.files import numbered_clients


def rows(path):
    content = load_dataset(path).content
    return [(image.tobytes(), int(label)) for image, label in zip(content.images, content.labels, strict=True)]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uneven") / "run"
    partition("digits", folder, params=PartitionParams(clients=4, scheme="dirichlet", alpha=0.1), seed=5)
    return folder


def test_clients_and_test_set_are_a_disjoint_cover_of_the_source(uneven):
    found = rows(uneven / "public/test.parquet")
    for client in ("00", "01", "02", "03"):
        found += rows(uneven / f"clients/{client}/private/data.parquet")
    images, labels = load_digits(return_X_y=True)
    source = [
        (np.rint(image * 255 / 16).astype(np.uint8).tobytes(), int(label))
        for image, label in zip(images, labels, strict=True)
    ]
    assert sorted(found) == sorted(source)


def test_custody_keys_and_outboxes(uneven):
    assert load_dataset(uneven / "public/test.parquet").metadata.custody == "public"
    for place in (uneven / "clients").iterdir():
        about = load_dataset(place / "private/data.parquet").metadata
        assert (about.custody, about.client) == ("private", place.name)
        key = place / "private/client.key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert keys.read(key).simulation
        assert list((place / "outbox").iterdir()) == []
    secrets = [path.read_bytes() for path in uneven.rglob("*.key")]
    assert len(set(secrets)) == 5


def test_the_record_counts_what_the_clients_hold(uneven):
    record = json.loads((uneven / "simulation/partition.json").read_text())
    for client, counts in record["clients"].items():
        labels = load_dataset(uneven / f"clients/{client}/private/data.parquet").content.labels
        assert np.bincount(labels, minlength=10).tolist() == counts
    picture = Image.open(uneven / "simulation/partition.png")
    assert picture.size[0] > 300
    picture.close()


def test_a_finished_folder_is_refused_and_an_unfinished_one_completed(uneven, tmp_path):
    params = PartitionParams(clients=2)
    with pytest.raises(InputError, match="already exists"):
        partition("digits", uneven, params=params, seed=0)
    partition("digits", tmp_path / "a", params=params, seed=0)
    partition("digits", tmp_path / "b", params=params, seed=0)
    (tmp_path / "b/simulation/partition.json").unlink()
    (tmp_path / "b/clients/01/private/data.parquet").unlink()
    partition("digits", tmp_path / "b", params=params, seed=0)
    for path in (tmp_path / "a").rglob("*.*"):
        assert (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes() == path.read_bytes()
    with pytest.raises(InputError, match="client '01' of another partition"):
        partition("digits", tmp_path / "b", params=PartitionParams(clients=1), seed=0, force=True)


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    """As `uneven`, with a tenth of each client held out; clients of four rows and fewer hold nothing out."""
    folder = tmp_path_factory.mktemp("held-out") / "run"
    params = PartitionParams(clients=40, scheme="dirichlet", alpha=0.05, held_out=0.1)
    return folder, partition("digits", folder, params=params, seed=5)


def test_what_is_held_out_is_private_and_no_part_of_the_data(held_out, tmp_path):
    folder, summary = held_out
    params = PartitionParams(clients=40, scheme="dirichlet", alpha=0.05)
    partition("digits", tmp_path / "whole", params=params, seed=5)
    without = set()
    for place in sorted((folder / "clients").iterdir()):
        everything = rows(tmp_path / "whole/clients" / place.name / "private/data.parquet")
        kept, aside = rows(place / "private/data.parquet"), []
        if (place / "private/held-out.parquet").exists():
            aside = rows(place / "private/held-out.parquet")
            about = load_dataset(place / "private/held-out.parquet").metadata
            assert (about.custody, about.client) == ("private", place.name)
        else:
            without.add(place.name)
        assert sorted(kept + aside) == sorted(everything)
        assert len(aside) == int(0.1 * len(everything) + 0.5)
        assert kept
    assert without, "every client was large: the test shows nothing"
    assert summary["held_out_examples"] + summary["train_examples"] + summary["test_examples"] == 1797
    record = json.loads((folder / "simulation/partition.json").read_text())
    assert without.isdisjoint(record["held_out_examples"])
    assert (folder / "public/test.parquet").read_bytes() == (tmp_path / "whole/public/test.parquet").read_bytes()


def test_another_share_leaves_no_old_file_behind(tmp_path):
    partition("digits", tmp_path / "run", params=PartitionParams(clients=2, held_out=0.1), seed=0)
    assert len(list((tmp_path / "run").rglob("held-out.parquet"))) == 2
    partition("digits", tmp_path / "run", params=PartitionParams(clients=2), seed=0, force=True)
    assert list((tmp_path / "run").rglob("held-out.parquet")) == []


def test_nothing_mixed_changes_no_byte_and_mixing_keeps_the_rows(uneven, tmp_path):
    options = {"clients": 4, "scheme": "dirichlet", "alpha": 0.1}
    partition("digits", tmp_path / "zero", params=PartitionParams(**options, mix=0.0), seed=5)
    for path in uneven.rglob("*.*"):
        assert (tmp_path / "zero" / path.relative_to(uneven)).read_bytes() == path.read_bytes()
    partition("digits", tmp_path / "mixed", params=PartitionParams(**options, mix=0.5), seed=5)
    before, after = (
        [rows(folder / f"clients/{client}/private/data.parquet") for client in ("00", "01", "02", "03")]
        for folder in (uneven, tmp_path / "mixed")
    )
    assert [len(part) for part in after] == [len(part) for part in before]
    assert sorted(chain(*after)) == sorted(chain(*before))
    assert before != after
    with pytest.raises(ValueError, match="--mix must be from 0 to 1"):
        PartitionParams(**options, mix=1.5)


def test_mixed_clients_keep_the_names_of_their_ids(tmp_path):
    people(tmp_path / "people.parquet", [f"p{n % 5}" for n in range(50)])
    params = PartitionParams(scheme="natural", id_column="person", mix=1.0)
    partition(str(tmp_path / "people.parquet"), tmp_path / "run", params=params, seed=0)
    assert len(list((tmp_path / "run/clients").iterdir())) == 4


def test_a_central_party_has_a_key_and_no_data(tmp_path):
    partition("digits", tmp_path / "run", params=PartitionParams(clients=2, central=True), seed=0)
    place = tmp_path / "run/clients/central"
    assert (place / "private/client.key").exists()
    assert list(place.rglob("*.parquet")) == []
    assert list(json.loads((tmp_path / "run/simulation/partition.json").read_text())["clients"]) == ["00", "01"]
    partition("digits", tmp_path / "run", params=PartitionParams(clients=2, central=True), seed=0, force=True)
    with pytest.raises(InputError, match="client 'central' of another partition"):
        partition("digits", tmp_path / "run", params=PartitionParams(clients=2), seed=0, force=True)
    people(tmp_path / "people.parquet", [f"{['central', 'north'][n % 2]}" for n in range(20)])
    params = PartitionParams(scheme="natural", id_column="person", central=True, test_fraction=0.5)
    seeds = range(4)  # either id may be the one held out for testing
    facts = []
    for seed in seeds:
        try:
            partition(str(tmp_path / "people.parquet"), tmp_path / f"run {seed}", params=params, seed=seed)
        except InputError as error:
            facts.append(str(error))
    assert facts
    assert "--central makes one of that name" in facts[0]


def people(path, ids):
    """A Hugging Face-style Parquet file with a column that says whose row it is."""
    rng = np.random.default_rng(0)
    images = []
    for _ in ids:
        sink = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (4, 4), np.uint8)).save(sink, "PNG")
        images.append({"bytes": sink.getvalue(), "path": None})
    labels = rng.integers(0, 2, len(ids)).tolist()
    pq.write_table(pa.table({"image": images, "label": labels, "person": ids}), path)


def test_natural_ids_name_the_clients_and_nobody_stands_on_both_sides(tmp_path):
    ids = [f"p{n % 10}" for n in range(60)]
    people(tmp_path / "people.parquet", ids)
    params = PartitionParams(scheme="natural", id_column="person", test_fraction=0.3)
    partition(str(tmp_path / "people.parquet"), tmp_path / "run", params=params, seed=0)
    names = {path.name for path in (tmp_path / "run/clients").iterdir()}
    stated = json.loads((tmp_path / "run/simulation/partition.json").read_text())["params"]
    assert (stated["id_column"], stated["image_column"], stated["label_column"]) == ("person", "image", "label")
    assert names < set(ids)
    assert len(names) == 7
    everyone = pq.read_table(tmp_path / "people.parquet").to_pylist()
    assert len(load_dataset(tmp_path / "run/public/test.parquet").content) == 18
    for name in names:
        assert len(load_dataset(tmp_path / f"run/clients/{name}/private/data.parquet").content) == 6
    assert len(everyone) == 60


def test_ids_that_are_no_file_names_are_refused_and_nothing_is_written(tmp_path):
    people(tmp_path / "people.parquet", [f"ward/{n % 5}" for n in range(20)])
    params = PartitionParams(scheme="natural", id_column="person")
    with pytest.raises(InputError, match=r"client name 'ward/\d' is not allowed.*--clients N"):
        partition(str(tmp_path / "people.parquet"), tmp_path / "run", params=params, seed=0)
    assert not (tmp_path / "run").exists()
    dealt = PartitionParams(scheme="natural", id_column="person", clients=2)
    partition(str(tmp_path / "people.parquet"), tmp_path / "run", params=dealt, seed=0)
    assert {path.name for path in (tmp_path / "run/clients").iterdir()} == {"00", "01"}


def test_more_clients_than_rows_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="--scheme iid"):
        partition("digits", tmp_path / "run", params=PartitionParams(clients=5000), seed=0)


def test_client_names_sort_as_numbers_do():
    assert numbered_clients(3) == ["00", "01", "02"]
    assert numbered_clients(101)[-1] == "100"
    assert numbered_clients(101) == sorted(numbered_clients(101))
