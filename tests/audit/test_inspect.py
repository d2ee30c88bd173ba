"""`inspect`: ranges, plain files, pictures, and how two files differ."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from safetensors.numpy import save_file
from tampering.run import Run

from stages.inspect.pictures import half_blocks


def test_ranges_of_an_artifact(every_kind, fedsynth_json):
    about = fedsynth_json("inspect", every_kind / "clients/01/outbox/surrogate-0001.safetensors")
    labels = next(t for t in about["tensors"] if t["name"] == "labels")
    assert (labels["min"], labels["max"], labels["not_finite"]) == (0, 9, 0)
    assert set(about["disclosures"]) >= {"radius", "derived_images"}


def test_a_proxy_is_said_to_be_no_guarantee(every_kind, fedsynth):
    code, out, _ = fedsynth("inspect", every_kind / "clients/01/outbox/proxy-0001.safetensors")
    assert code == 0
    assert "no guarantee" in out
    assert "each layer" in out


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint16", "bool"])
def test_a_plain_safetensors_file_of_any_type(tmp_path, fedsynth_json, dtype):
    values = np.array([[1, 0], [1, 1]]).astype(dtype)
    save_file({"w": values}, tmp_path / "plain.safetensors", {"by": "someone"})
    about = fedsynth_json("inspect", tmp_path / "plain.safetensors")
    assert not about["artifact"]
    assert about["metadata"] == {"by": "someone"}
    assert (about["tensors"][0]["min"], about["tensors"][0]["max"]) == (0, 1)


def test_numbers_that_are_not_finite_are_counted(tmp_path, fedsynth_json, fedsynth):
    path = tmp_path / "plain.safetensors"
    save_file({"w": np.array([1.5, np.nan, -2, np.inf], np.float32)}, path)
    tensor = fedsynth_json("inspect", path)["tensors"][0]
    assert (tensor["min"], tensor["max"], tensor["not_finite"]) == (-2.0, 1.5, 2)
    assert "2 not finite" in fedsynth("inspect", path)[1]


def test_a_plain_parquet_file(tmp_path, fedsynth_json):
    table = pa.table({"age": [31, 70, None], "name": ["Li", "Mueller", "x"], "when": pa.array([1, 2, 3], pa.date32())})
    pq.write_table(table, tmp_path / "plain.parquet")
    about = fedsynth_json("inspect", tmp_path / "plain.parquet")
    columns = {column["name"]: column for column in about["columns"]}
    assert (columns["age"]["min"], columns["age"]["max"], columns["age"]["nulls"]) == (31, 70, 1)
    assert (columns["name"]["min"], columns["name"]["max"], columns["name"]["range_of"]) == (1, 7, "length")
    assert columns["when"]["min"] == "1970-01-02"


def test_two_files(every_kind, fedsynth_json, fedsynth):
    one, two = (every_kind / f"clients/01/outbox/message-000{n}.safetensors" for n in (1, 2))
    apart = fedsynth_json("inspect", one, two)
    assert not apart["identical"]
    fields = {row["field"]: (row["first"], row["second"]) for row in apart["fields"]}
    assert fields["round"] == (1, 2)
    for row in apart["tensors"]:
        from artifacts.formats import tensors_file

        a, b = (tensors_file.read(p).tensors[row["name"]].astype(np.float64).reshape(-1) for p in (one, two))
        assert math.isclose(row["max_difference"], np.abs(a - b).max())
        assert math.isclose(row["cosine"], a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert fedsynth("inspect", one, one)[1].strip() == "The two files are identical, byte for byte."


@pytest.mark.parametrize("name", ["synthetic.parquet", "surrogate-0001.safetensors", "proxy-0001.safetensors"])
def test_a_contact_sheet(every_kind, tmp_path, fedsynth_json, name):
    path = every_kind / "clients/01/outbox" / name
    about = fedsynth_json("inspect", path, "--images", tmp_path / "sheet.png")
    assert about["sheets"] == [str(tmp_path / "sheet.png")]
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert min(sheet.size) > 100


def test_labels_that_are_no_classes_are_refused(tampered, tmp_path, forge, fedsynth):
    run = Run(tampered, forge)
    labels = run.tensors("surrogate")["labels"].copy()
    labels[0] = 4711_1968_02_29  # as many names would fill the memory
    run.rewrite("surrogate", {"labels": labels})
    code, _, err = fedsynth("inspect", run.path("surrogate"), "--images", tmp_path / "sheet.png")
    assert (code, "471119680229" in err) == (3, True)


def test_pictures_only_where_there_are_some(every_kind, tmp_path, fedsynth):
    message = every_kind / "clients/01/outbox/message-0001.safetensors"
    code, _, err = fedsynth("inspect", message, "--images", tmp_path / "sheet.png")
    assert (code, "holds no images" in err) == (2, True)
    code, _, err = fedsynth("inspect", every_kind / "clients/01/outbox/synthetic.parquet", "--show")
    assert (code, "terminal" in err) == (2, True)


def test_half_blocks_hold_every_pixel():
    image = np.arange(6, dtype=np.uint8).reshape(1, 1, 3, 2)
    lines = half_blocks(image, columns=10)
    assert lines[0].count("▀") == lines[1].count("▀") == 2
    assert "38;2;0;0;0m\x1b[48;2;2;2;2m" in lines[0]  # the first pixel, above the third
    assert "38;2;4;4;4m\x1b[48;2;0;0;0m" in lines[1]  # below the last row there is nothing
