"""Tensor files read piece by piece: what `tensors_file.read` finds, in constant memory."""

import base64
import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from artifacts.errors import InputError
from artifacts.formats import tensors_file, tensors_stream
from artifacts.formats.safetensors_layout import _unescaped
from artifacts.identity.keys import Key
from stages.audit.secrets import Watch

KEY = Key(bytes(range(1, 33)))


@pytest.fixture
def large(forge, tmp_path):
    """Three megabytes in tensors that end anywhere, of three types."""
    rng = np.random.default_rng(0)
    tensors = {
        "counter": np.arange(3, dtype="i8"),
        "odd": rng.standard_normal(7, np.float32),
        "wide": rng.standard_normal((801, 1000), np.float32),
    }
    return forge.write_tensors(tmp_path / "large.safetensors", tensors)


def test_it_finds_what_reading_finds(large):
    whole, seen = tensors_file.read(large), []
    found = tensors_stream.scan(large, lambda piece: seen.append(bytes(piece)))
    assert (found.sha256, found.metadata, found.specs) == (whole.sha256, whole.metadata, whole.specs)
    assert b"".join(seen) == whole.data
    assert len(seen) > 3
    assert (found.tensor("odd") == whole.tensors["odd"]).all()
    assert tensors_stream.survey(large) == (whole.sha256, whole.metadata, whole.specs)


@pytest.mark.parametrize("place", [-1, 70_000, 1_500_000])
def test_a_flipped_bit_anywhere(large, forge, place):
    data = large.read_bytes()
    large.write_bytes(forge.flip(data, place % len(data), 0))
    with pytest.raises(InputError, match="do not match their digest"):
        tensors_stream.scan(large)


@pytest.mark.parametrize("change", [lambda data: data[:-8], lambda data: data + b"12345678"])
def test_another_length(large, change):
    large.write_bytes(change(large.read_bytes()))
    with pytest.raises(InputError, match="bytes, but the file has"):
        tensors_stream.scan(large)


def test_infinity_in_the_last_piece(large, forge):
    data = large.read_bytes()
    _, _, payload = forge.take_apart(data)
    large.write_bytes(forge.forge_tensors(data, payload=payload[:-4] + np.float32(np.inf).tobytes()))
    with pytest.raises(InputError, match="NaN or infinity"):
        tensors_stream.scan(large)


@pytest.mark.parametrize("cut", [0, 1, 16, 31, 32])
def test_a_key_is_found_across_two_pieces(cut):
    watch = Watch(KEY)
    noise = np.random.default_rng(0).bytes(5000)
    for piece in (noise + KEY.secret[:cut], KEY.secret[cut:] + noise):
        watch.see(piece)
    assert watch.found == ["the secret key"]
    watch.begin()
    watch.see(noise)
    assert watch.found == []


@pytest.mark.parametrize("offset", range(9))
def test_a_key_is_found_wherever_it_begins_and_however_it_is_spelt(offset):
    noise, secret = np.random.default_rng(offset).bytes(3000), KEY.secret
    spelt = [secret, secret.hex().encode(), secret.hex().upper().encode()]
    spelt += [encode(bytes(9)[:shift] + secret + b"!") for shift in range(3)
              for encode in (base64.b64encode, base64.urlsafe_b64encode)]  # fmt: skip
    for text in spelt:
        watch = Watch(KEY)
        watch.see(noise[:offset] + text + noise)
        assert watch.found == ["the secret key"], text
        watch.begin()
        watch.see(noise[:offset] + text[: len(text) // 2] + noise)
        assert watch.found == (["a part of the secret key"] if text is secret else [])


def test_a_seed_is_found_and_a_small_one_is_not_looked_for():
    watch = Watch(None, [7, 2**40 + 12345])
    watch.see(b"7" * 99 + (2**40 + 12345).to_bytes(8, "little"))
    assert watch.found == ["a seed"]
    assert not Watch(None, [7])._seeds


@given(st.text())
@example('{"a":"b"}')
@example('\\"')
@example("\x7f\n\u00e9")
def test_a_text_is_read_as_json_spells_it(text):
    assert _unescaped(json.dumps(text).encode()) == text


@given(st.text(alphabet='"\\ab\n\x7fé').map(str.encode))
@example(b'"')
@example(b'"a"b"')
@example(b'"a\\"')
@example(b'"\\\\""')
def test_no_other_spelling_is_read(spelt):
    text = _unescaped(spelt)
    assert text is None or json.dumps(text).encode() == spelt
