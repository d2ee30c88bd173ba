"""A safetensors artifact that was hurt on its way is found, wherever it was hurt."""

import functools
import random
import struct

import numpy as np
import pytest

from artifacts.errors import InputError
from artifacts.formats import tensors_file


@pytest.fixture
def whole(tmp_path, forge):
    path = forge.write_tensors(tmp_path / "m.safetensors", {"a": np.ones(2, "f4"), "n": np.array(3)})
    return path, path.read_bytes()


@pytest.fixture
def refused(forge):
    return functools.partial(forge.refused, read=tensors_file.read)


def test_a_flipped_bit_is_found_at_every_bit_of_the_header_without_reading_the_payload(refused, whole, forge):
    path, data = whole
    header = 8 + struct.unpack("<Q", data[:8])[0]
    for position in range(header):
        for bit in range(8):
            refused(path, forge.flip(data, position, bit), read=tensors_file.read_header)


def test_a_flipped_bit_in_a_large_payload_is_found(refused, tmp_path, forge):
    path = forge.write_tensors(tmp_path / "large.safetensors", {"w": np.zeros(250_000, "f4")})
    data = path.read_bytes()
    rng = random.Random(5)
    for _ in range(20):
        position = rng.randrange(len(data) - 1_000_000, len(data))
        assert "tensors do not match their digest" in refused(path, forge.flip(data, position, rng.randrange(8)))


def test_two_bytes_swapped_are_found(refused, whole):
    path, data = whole
    for position in range(len(data) - 1):
        if data[position] != data[position + 1]:
            pair = data[position : position + 2][::-1]
            refused(path, data[:position] + pair + data[position + 2 :])


@pytest.mark.parametrize("needed", ["update", "message", "generator"])
def test_the_kind_must_be_the_one_that_is_needed(whole, needed):
    path, _ = whole
    for read in (tensors_file.read, tensors_file.read_header):
        with pytest.raises(InputError, match=f"it is a model, but a {needed} is needed"):
            read(path, kind=needed)
