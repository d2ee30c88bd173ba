"""Each kind promises tensors by name, dtype and shape: broken promises are neither written nor read."""

import numpy as np
import pytest

from artifacts.errors import InputError
from artifacts.formats import tensors_file


def proxy(**changes):
    tensors = {
        "images": np.zeros((2, 1, 4, 4), "f4"),
        "residuals": np.zeros((2, 3), "f4"),
        "scales": np.zeros(5, "f4"),
    }
    return {name: array for name, array in (tensors | changes).items() if array is not None}


def surrogate(**changes):
    tensors = {"images": np.zeros((2, 1, 4, 4), "f4"), "labels": np.zeros(2, "i8")}
    return {name: array for name, array in (tensors | changes).items() if array is not None}


BROKEN = [
    ("proxy", proxy(images=None), "must hold the tensor 'images'"),
    ("proxy", proxy(extra=np.zeros(1, "f4")), "has no tensor 'extra'"),
    ("proxy", proxy(images=np.zeros((2, 1, 4, 4), "i8")), "'images' must be F32 or F16 or U8"),
    ("proxy", proxy(images=np.zeros((2, 4, 4), "f4")), r"found F32 \[2, 4, 4\]"),
    ("proxy", proxy(residuals=np.zeros((3, 3), "f4")), "'residuals' has 3 for n, another tensor 2"),
    ("proxy", proxy(residuals=np.zeros((2, 3), "f2")), "'residuals' must be F32"),
    ("proxy", proxy(labels=np.zeros((2, 3), "f4")), "has no tensor 'labels'"),
    ("surrogate", surrogate(labels=np.zeros(2, "f4")), "'labels' must be I64"),
    ("surrogate", surrogate(labels=np.zeros(1, "i8")), "'labels' has 1 for n"),
    ("surrogate", surrogate(radius=np.zeros(1, "f4")), "'radius' must be F32"),
    ("message", {"w": np.zeros(2, "i8")}, "must be F32, found I64"),
    ("message", {}, "a message holds no tensors"),
    ("update", {"w": np.zeros(2, "f2")}, "must be F32, found F16"),
    ("model", {"w": np.zeros(2, "f8")}, "must be F32 or I64, found F64"),
    ("model", {"": np.zeros(2, "f4")}, "is not plain text"),
    ("model", {"w\n": np.zeros(2, "f4")}, "is not plain text"),
    ("model", {"w" * 201: np.zeros(2, "f4")}, "is not plain text"),
    ("model", {"gewicht_é": np.zeros(2, "f4")}, "is not plain text"),
]
IDS = [f"{kind}-{number}" for number, (kind, _, _) in enumerate(BROKEN)]


def target(folder, forge, kind):
    leaves = forge.metadata(kind).custody == "outbound"
    return folder / ("outbox" if leaves else "private") / "f.safetensors"


@pytest.mark.parametrize(("kind", "tensors", "message"), BROKEN, ids=IDS)
def test_a_broken_promise_is_not_written(tmp_path, forge, kind, tensors, message):
    with pytest.raises(ValueError, match=message):
        tensors_file.write(target(tmp_path, forge, kind), tensors, forge.metadata(kind))
    assert forge.snapshot(tmp_path) == {}


@pytest.mark.parametrize(("kind", "tensors", "message"), BROKEN, ids=IDS)
def test_a_broken_promise_is_not_read(tmp_path, forge, monkeypatch, kind, tensors, message):
    """The same files, written by someone who does not check."""
    path = target(tmp_path, forge, kind)
    with monkeypatch.context() as careless:
        careless.setattr(tensors_file, "_check_promises", forge.no_check)
        tensors_file.write(path, tensors, forge.metadata(kind))
    for read in (tensors_file.read, tensors_file.read_header):
        with pytest.raises(InputError, match=message):
            read(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("kind", "dtype"), [("model", "f4"), ("update", "f4"), ("message", "f4")])
def test_nan_and_infinity_are_not_read(tmp_path, forge, monkeypatch, bad, kind, dtype):
    path = target(tmp_path, forge, kind)
    array = np.zeros((2, 5), dtype)
    array[1, 3] = bad
    with monkeypatch.context() as careless:
        careless.setattr(tensors_file, "check_finite", forge.no_check)
        tensors_file.write(path, {"ok": np.zeros(1, dtype), "w": array}, forge.metadata(kind))
    with pytest.raises(InputError, match="'w' holds NaN or infinity"):
        tensors_file.read(path)


def test_kept_promises_are_written_and_read(tmp_path, forge):
    for kind, tensors in [("proxy", proxy()), ("surrogate", surrogate(radius=np.array(0.5, "f4")))]:
        path = tmp_path / kind / "outbox" / "f.safetensors"
        tensors_file.write(path, tensors, forge.metadata(kind))
        assert tensors_file.read(path, kind=kind).tensors.keys() == tensors.keys()
