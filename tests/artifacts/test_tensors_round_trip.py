"""Tensors come back as they went in, and the file is the one that the safetensors library would have written."""

import hashlib
import json

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from artifacts.errors import InputError
from artifacts.formats import tensors_file

DTYPES = ["<f4", "<f2", "<f8", "<i8", "<i4", "|u1"]
NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30).filter(
    lambda name: name != "__metadata__" and "seal_sha256" not in name
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def arrays(dtypes):
    def finite(dtype):
        kind = np.dtype(dtype)
        width = {"allow_nan": False, "allow_infinity": False} if kind.kind == "f" else {}
        return hnp.arrays(kind, SHAPES, elements=hnp.from_dtype(kind, **width))

    return st.sampled_from(dtypes).flatmap(finite)


MODELS = st.dictionaries(NAMES, arrays(["<f4", "<i8"]), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("tensors")


@given(tensors=MODELS)
@settings(max_examples=60)
def test_what_is_written_is_read_back(scratch, forge, tensors):
    path = scratch / "round_trip.safetensors"
    digest = tensors_file.write(path, tensors, forge.metadata(), force=True)
    found = tensors_file.read(path, kind="model")
    assert found.metadata == forge.metadata()
    assert found.sha256 == digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.tensors.keys() == tensors.keys()
    for name, array in tensors.items():
        assert found.tensors[name].dtype == array.dtype and found.tensors[name].shape == array.shape
        assert found.tensors[name].tobytes() == array.tobytes()
    _, specs = tensors_file.read_header(path)
    assert specs == found.specs


@given(tensors=st.dictionaries(NAMES, arrays(DTYPES), min_size=1, max_size=6))
@settings(max_examples=80)
def test_the_bytes_are_those_of_the_safetensors_library(scratch, forge, tensors):
    """Any mixture of types, also those that no kind mixes today."""
    path = scratch / "library.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors_file, "_check_promises", forge.no_check)
        tensors_file.write(path, tensors, forge.metadata(), force=True)
    with safetensors.safe_open(path, "numpy") as plain:
        text = plain.metadata()
    assert set(text) == {"fedsynth"}
    assert path.read_bytes() == safetensors.numpy.save(tensors, metadata=text)
    loaded = safetensors.numpy.load_file(path)
    assert {name: array.tobytes() for name, array in loaded.items()} == {n: a.tobytes() for n, a in tensors.items()}


def test_equal_content_gives_equal_bytes_whatever_the_order_and_memory_layout(scratch, forge):
    square = np.arange(12, dtype="f4").reshape(3, 4)
    first, second = scratch / "first.safetensors", scratch / "second.safetensors"
    tensors_file.write(first, {"a": square, "b": square.T.copy()}, forge.metadata(params={"x": 1, "y": 2}))
    other = {"b": square.T, "a": square.astype(">f4")}
    tensors_file.write(second, other, forge.metadata(params={"y": 2, "x": 1}))
    assert first.read_bytes() == second.read_bytes()


def test_metadata_is_one_key_with_sorted_json_and_no_place_or_time(scratch, forge):
    path = forge.write_tensors(scratch / "one_key.safetensors")
    text = safetensors.safe_open(path, "numpy").metadata()["fedsynth"]
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert str(scratch) not in text


def test_the_arrays_cannot_be_changed_after_they_were_checked(scratch, forge):
    found = tensors_file.read(forge.write_tensors(scratch / "readonly.safetensors"))
    with pytest.raises(ValueError, match="read-only"):
        found.tensors["w"][0, 0] = 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_never_written(tmp_path, forge, bad):
    array = np.zeros((3, 3), "f4")
    array[1, 2] = bad
    path = tmp_path / "outbox" / "m.safetensors"
    with pytest.raises(ValueError, match="'w' holds NaN or infinity"):
        tensors_file.write(path, {"w": array}, forge.metadata("message"))
    assert forge.snapshot(tmp_path) == {}


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(2, "c8"), "which artifacts do not hold"),
        (np.array(["a"]), "which artifacts do not hold"),
        (np.array([object()]), "which artifacts do not hold"),
        (np.zeros((1,) * 9, "f4"), "9 dimensions"),
    ],
)
def test_what_a_file_cannot_hold_is_never_written(tmp_path, forge, array, message):
    with pytest.raises(ValueError, match=message):
        tensors_file.write(tmp_path / "m.safetensors", {"w": array}, forge.metadata())
    assert forge.snapshot(tmp_path) == {}


def test_an_existing_file_is_kept_without_force(tmp_path, forge):
    path = forge.write_tensors(tmp_path / "m.safetensors")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"already exists\. Add --force"):
        forge.write_tensors(path, {"w": np.zeros(2, "f4")})
    assert path.read_bytes() == before
