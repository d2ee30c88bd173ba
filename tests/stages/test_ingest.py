"""`ingest`: whoever brings data of their own trains on the federation's classes, whatever numbers they had for them."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from stages.data.dataset_images import load_dataset


def parquet(path, labels, names, size=8, shade=20):
    """A Hugging Face dataset in which each image's grey level tells its class by name."""

    def png(name):
        buffer = io.BytesIO()
        Image.fromarray(np.full((size, size), shade * (1 + ord(name[0]) - ord("a")), np.uint8)).save(buffer, "PNG")
        return {"bytes": buffer.getvalue(), "path": None}

    features = {"label": {"names": names, "_type": "ClassLabel"}}
    table = pa.table({"image": [png(names[label]) for label in labels], "label": labels})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path)
    return path


@pytest.fixture
def test_set(tmp_path, fedsynth):
    source = parquet(tmp_path / "test-source.parquet", [0, 1, 2], ["a", "b", "c"])
    out = tmp_path / "public/test.parquet"
    assert fedsynth("ingest", source, "-o", out)[0] == 0
    return out


def test_classes_are_matched_by_name(tmp_path, fedsynth, test_set):
    source = parquet(tmp_path / "mine.parquet", [0, 1, 1], ["c", "a"])
    out = tmp_path / "clients/hospital-a/private/data.parquet"
    code, _, err = fedsynth("ingest", source, "--like", test_set, "-o", out)
    assert code == 0, err
    found = load_dataset(out)
    assert (found.metadata.custody, found.metadata.client) == ("private", "hospital-a")
    assert found.content.class_names == ("a", "b", "c")
    assert found.content.labels.tolist() == [2, 0, 0]
    assert found.content.images[:, 0, 0, 0].tolist() == [60, 20, 20]


def test_the_public_test_set_is_nobodys(test_set):
    metadata = load_dataset(test_set).metadata
    assert (metadata.custody, metadata.client, metadata.simulation) == ("public", None, False)


def test_it_can_be_trained_on_with_a_real_key(tmp_path, fedsynth, test_set):
    """And what comes of it does not say «simulation»."""
    home = tmp_path / "clients/hospital-a/private"
    source = parquet(tmp_path / "mine.parquet", [0, 1, 2, 0], ["a", "b", "c"])
    model, update = tmp_path / "public/model-0000.safetensors", home / "update-0001.safetensors"
    message = home.parent / "outbox/message-0001.safetensors"
    for words in (
        ("ingest", source, "--like", test_set, "-o", home / "data.parquet"),
        ("keygen", "-o", home / "client.key"),
        ("init-model", "--like", test_set, "--arch", "softmax", "-o", model),
        ("train-client", model, home / "data.parquet", "--local-steps", "1", "-o", update),
        ("encode", model, update, "-o", message),
    ):
        code, _, err = fedsynth(*words)
        assert code == 0, err
    from artifacts.formats import tensors_file

    assert tensors_file.read(message).metadata.simulation is False


@pytest.mark.parametrize(
    ("source", "place", "code", "because"),
    [
        ({"labels": [0], "names": ["d"]}, "clients/x/private", 3, "has the class 'd'"),
        ({"labels": [0], "names": ["a"]}, "clients/x/outbox", 2, "into its private/"),
        ({"labels": [0], "names": ["a"]}, "elsewhere", 2, "into its private/"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, fedsynth, test_set, source, place, code, because):
    path = parquet(tmp_path / "mine.parquet", **source)
    out = tmp_path / place / "data.parquet"
    found, _, err = fedsynth("ingest", path, "--like", test_set, "-o", out)
    assert (found, because in err) == (code, True), err
    assert not out.exists()


def test_like_resizes_and_makes_grey(tmp_path, fedsynth, test_set):
    """As its help promises: the size and the channels are the federation's."""
    (tmp_path / "photos/a").mkdir(parents=True)
    Image.new("RGB", (20, 10), (9, 9, 9)).save(tmp_path / "photos/a/1.jpg", quality=95)
    out = tmp_path / "clients/x/private/data.parquet"
    code, _, err = fedsynth("ingest", tmp_path / "photos", "--like", test_set, "-o", out)
    assert code == 0 and "1 of 1 images had other proportions and were stretched" in err
    assert load_dataset(out).content.images.tolist() == np.full((1, 1, 8, 8), 9).tolist()


def test_rows_that_cannot_be_used_are_named_at_once_or_left_out(tmp_path, fedsynth, test_set):
    source = parquet(tmp_path / "mine.parquet", [0, 0, 0, 0], ["a"])
    table = pq.read_table(source).to_pylist()
    table[1]["image"]["bytes"] = None
    table[3]["image"]["bytes"] = b"<svg/>"
    pq.write_table(pa.Table.from_pylist(table, schema=pq.read_schema(source)), source)
    out = tmp_path / "clients/x/private/data.parquet"
    line = ["ingest", source, "--like", test_set, "-o", out]
    code, _, err = fedsynth(*line)
    assert code == 3 and "2 rows cannot be used" in err
    assert "row 1  no image bytes" in err and "row 3  not an image" in err and "--skip-bad" in err
    code, said, err = fedsynth(*line, "--skip-bad", "--json")
    assert code == 0, err
    assert json.loads(said)["left_out"] == ["mine.parquet, row 1", "mine.parquet, row 3"]
    assert len(load_dataset(out).content) == 2


def test_frames_of_a_gif_are_said(tmp_path, fedsynth, test_set):
    (tmp_path / "photos/a").mkdir(parents=True)
    frames = [Image.new("L", (8, 8), value) for value in (0, 255)]
    frames[0].save(tmp_path / "photos/a/1.gif", save_all=True, append_images=frames[1:])
    out = tmp_path / "clients/x/private/data.parquet"
    code, _, err = fedsynth("ingest", tmp_path / "photos", "--like", test_set, "--channels", 1, "-o", out)
    assert code == 0 and "1 of 1 files have several frames, of which the first is taken: 1.gif" in err
    assert int(load_dataset(out).content.images.max()) == 0


def test_classes_without_images_need_no_name_in_the_federation(tmp_path, fedsynth, test_set):
    source = parquet(tmp_path / "mine.parquet", [0], ["a", "never seen"])
    out = tmp_path / "clients/x/private/data.parquet"
    assert fedsynth("ingest", source, "--like", test_set, "-o", out)[0] == 0


def test_images_of_any_size_and_up_to_sixteen_bits(tmp_path, fedsynth, test_set):
    """The middle of 8×16 pixels, because the test set has 8×8; 12 bits become 8."""
    (tmp_path / "scans/a").mkdir(parents=True)
    Image.fromarray(np.repeat([[0, 2048, 2048, 0]], 8, axis=0).repeat(4, axis=1).astype(np.uint16)).save(
        tmp_path / "scans/a/1.png"
    )
    out = tmp_path / "clients/x/private/data.parquet"
    line = ["ingest", tmp_path / "scans", "--like", test_set, "-o", out]
    for given, code, said in (
        ([], 3, "say by --bits"),
        (["--bits", 17, "--fit", "crop"], 2, "from 1 to 16, found 17"),
        (["--bits", 11, "--fit", "crop"], 3, "a pixel of 2048"),
    ):
        found, _, err = fedsynth(*line, *given)
        assert found == code and said in err, err
        assert not out.exists()
    assert fedsynth(*line, "--bits", 12, "--fit", "crop")[0] == 0
    assert load_dataset(out).content.images.tolist() == np.full((1, 1, 8, 8), 128).tolist()
    code, _, err = fedsynth("ingest", tmp_path / "scans", "--fit", "pad", "--bits", 12, "-o", out, "--force")
    assert code == 2 and "give --image-size, or --like or --schema" in err
    code, _, err = fedsynth("ingest", "digits", "--bits", 12, "-o", tmp_path / "public/d.parquet")
    assert code == 2 and "--bits does not apply" in err


def test_a_partition_takes_them_too(tmp_path, fedsynth):
    for name, value in (("a", 1000), ("b", 4000)):
        (tmp_path / f"scans/{name}").mkdir(parents=True)
        for number in range(4):
            Image.fromarray(np.full((4, 8), value, np.uint16)).save(tmp_path / f"scans/{name}/{number}.png")
    line = ["partition", tmp_path / "scans", "--clients", 1, "--image-size", 4, "--fit", "pad", "--bits", 12]
    assert fedsynth(*line, "-o", tmp_path / "run")[0] == 0
    content = load_dataset(tmp_path / "run/clients/00/private/data.parquet").content
    assert content.images.shape[1:] == (1, 4, 4)
    assert np.unique(content.images).tolist() == [0, 62, 249]  # black beside 1000 and 4000 · 255/4095
    code, _, err = fedsynth("partition", "digits", "--clients", 1, "--fit", "pad", "-o", tmp_path / "other")
    assert code == 2 and "--fit goes with --image-size" in err
