"""A forger knows the format and recomputes every digest: what is wrong with the file is found all the same."""

import json
import pickle
import random
import struct
import time

import numpy as np
import pytest

from artifacts import limits
from artifacts.errors import InputError
from artifacts.formats import tensors_file


@pytest.fixture
def data(tmp_path, forge):
    tensors = {"a": np.ones((2, 3), "f4"), "b": np.ones(4, "f4")}
    return forge.write_tensors(tmp_path / "model.safetensors", tensors).read_bytes()


def refused(folder, data):
    path = folder / "hostile.safetensors"
    path.write_bytes(data)
    messages = []
    for read in (tensors_file.read, tensors_file.read_header):
        started = time.perf_counter()
        with pytest.raises(InputError) as caught:
            read(path)
        assert time.perf_counter() - started < 5
        messages.append(str(caught.value))
    assert all(len(m) < 500 + len(str(path)) and "\n" not in m and str(path) in m for m in messages)
    return messages[0]


def set_entry(name, **changes):
    return lambda table: table[name].update(changes)


def test_a_forger_who_changes_nothing_gets_the_same_file(data, forge):
    """The other tests of this file depend on it: nothing but their change is wrong."""
    assert forge.forge_tensors(data) == data


TABLES = {
    "overlapping tensors": (set_entry("b", data_offsets=[8, 24]), "a gap or an overlap"),
    "a gap between tensors": (set_entry("b", data_offsets=[32, 48]), "a gap or an overlap"),
    "a negative offset": (set_entry("a", data_offsets=[-24, 0]), "claims the bytes -24 to 0"),
    "offsets that run backwards": (set_entry("a", data_offsets=[24, 0]), "claims the bytes 24 to 0"),
    "an offset far behind the end": (set_entry("b", data_offsets=[2**62, 2**62 + 16]), "a gap or an overlap"),
    "three offsets": (set_entry("a", data_offsets=[0, 24, 24]), "malformed offsets"),
    "offsets that are no numbers": (set_entry("a", data_offsets=["0", "24"]), "malformed offsets"),
    "offsets with a fraction": (set_entry("a", data_offsets=[0.0, 24.0]), "malformed offsets"),
    "a shape that overflows 64 bits": (set_entry("a", shape=[2**62, 4, 4], data_offsets=[0, 0]), "malformed shape"),
    "a shape whose product overflows": (set_entry("a", shape=[2**47] * 4, data_offsets=[0, 24]), "of 15692"),
    "a shape of a petabyte": (set_entry("a", shape=[2**40, 256], data_offsets=[0, 2**50]), "a gap or an overlap"),
    "a negative shape": (set_entry("a", shape=[-2, -3]), "malformed shape"),
    "a shape of booleans": (set_entry("a", shape=[True, 6]), "malformed shape"),
    "a shape with a fraction": (set_entry("a", shape=[2.0, 3]), "malformed shape"),
    "a shape that is no list": (set_entry("a", shape=6), "malformed shape"),
    "a shape of a million dimensions": (set_entry("a", shape=[2**47] * 400_000), "malformed shape"),
    "another shape of the same size": (set_entry("a", shape=[3, 2, 2]), "of 48 bytes claims"),
    "an unknown dtype": (set_entry("a", dtype="F33"), "has the dtype 'F33'"),
    "a dtype that is no string": (set_entry("a", dtype=["F32"]), "has the dtype"),
    "a dtype that kinds never hold": (set_entry("a", dtype="F64", shape=[3]), "must be F32 or I64"),
    "a field too many": (set_entry("a", note="hidden"), "is not described by"),
    "a tensor that is no object": (lambda t: t.update(a=[1]), "is not described by"),
    "a tensor too many": (
        lambda t: t.update(c={"dtype": "F32", "shape": [1], "data_offsets": [40, 44]}),
        "its tensors need",
    ),
    "tensors laid out in another order": (
        lambda t: t.update(b=t.pop("b") | {"data_offsets": [0, 16]}, a=t.pop("a") | {"data_offsets": [16, 40]}),
        "not in canonical form",
    ),
    "a hidden empty tensor between two": (
        lambda t: t.update(a0={"dtype": "F32", "shape": [0], "data_offsets": [24, 24]}),
        "not in canonical form",
    ),
    "a second metadata key": (lambda t: t["__metadata__"].update(note="hidden"), "the one key 'fedsynth'"),
    "metadata that are no strings": (lambda t: t["__metadata__"].update(n=5), "are not strings"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_lying_table_is_refused(tmp_path, data, forge, name):
    change, message = TABLES[name]
    assert message in refused(tmp_path, forge.forge_tensors(data, table=change))


MANGLES = {
    "a space after a comma": (lambda h: h.replace(',"b"', ', "b"'), "not in canonical form"),
    "more padding than needed": (lambda h: h + " " * 8, "not in canonical form"),
    "a tensor named twice": (
        lambda h: h[:-1] + ',"b":{"dtype":"F32","shape":[4],"data_offsets":[24,40]}}',
        "a key occurs twice",
    ),
    "tensors in another order": (
        lambda h: json.dumps(dict(reversed(json.loads(h).items())), separators=(",", ":")),
        "not in canonical form",
    ),
    "an escape that need not be": (lambda h: h.replace('"b":', '"\\u0062":'), "not in canonical form"),
    "a number with an exponent": (lambda h: h.replace("[24,40]", "[24,4e1]"), "malformed offsets"),
    "a number of ten thousand digits": (lambda h: h.replace("[24,40]", "[24," + "4" * 10_000 + "]"), "not JSON"),
    "brackets nested a million deep": (lambda h: h.replace("[24,40]", "[" * 10**6 + "]" * 10**6), "not JSON"),
    "JSON that never ends": (lambda h: h[:-1], "not JSON"),
    "a list for a header": (lambda h: f"[{h}]", "not a JSON object"),
    "a header that is no UTF-8": (lambda h: h.encode().replace(b'"b"', b'"\xff"'), "not JSON"),
    "NaN for an offset": (lambda h: h.replace("[24,40]", "[24,NaN]"), "malformed offsets"),
    "a tensor's name of a megabyte": (lambda h: h.replace('"b":', f'"{"b" * 10**6}":'), "is not plain text"),
    "a tensor's name that clears the screen": (lambda h: h.replace('"b":', '"\\u001b[2J":'), r"'\x1b[2J'"),
}


@pytest.mark.parametrize("name", MANGLES)
def test_a_header_in_any_other_spelling_is_refused(tmp_path, data, forge, name):
    change, message = MANGLES[name]
    assert message in refused(tmp_path, forge.forge_tensors(data, mangle=change))


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40, limits.HEADER.base + 1, 10_000])
def test_a_header_that_claims_more_than_the_file_has_is_refused(tmp_path, data, length):
    message = refused(tmp_path, struct.pack("<Q", length) + data[8:])
    assert f"its header claims {length} bytes" in message


def test_a_header_of_more_than_eight_megabytes_is_not_parsed_though_it_is_there(tmp_path, data, forge):
    forged = forge.forge_tensors(data, mangle=lambda header: header + " " * limits.HEADER.base)
    assert f"at most {limits.HEADER.base:,} are read" in refused(tmp_path, forged)


@pytest.mark.parametrize("header", [b"", b"{}", b"null", b"[]", b'"x"', b"{" * 100])
def test_a_safetensors_file_without_our_metadata_is_refused(tmp_path, forge, header):
    refused(tmp_path, forge.frame(header))


def test_text_of_a_megabyte_in_the_metadata_gives_a_short_message(tmp_path, data, forge):
    forged = forge.forge_tensors(data, fields=lambda about: about.update({"x" * 10**6: 1}))
    assert "unknown field" in refused(tmp_path, forged)


@pytest.mark.parametrize("depth", [*range(900, 1010, 2), 100_000])
def test_metadata_nested_to_any_depth_ends_in_a_message(tmp_path, data, forge, depth):
    def nest(line):
        return line.replace('"params":{}', '"params":{"a":' + "[" * depth + "]" * depth + "}")

    path = tmp_path / "hostile.safetensors"
    path.write_bytes(forge.forge_tensors(data, text=nest))
    try:
        tensors_file.read(path)
    except InputError as error:
        assert "nested too deeply" in str(error) or "not JSON" in str(error)
    else:
        assert depth < 1000


class _Touch:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (str(self.marker), "w"))


def test_a_pickle_is_refused_and_never_run(tmp_path):
    marker = tmp_path / "executed"
    poison = pickle.dumps(_Touch(marker))
    pickle.loads(poison).close()
    assert marker.exists(), "the pickle must be one that acts"
    marker.unlink()
    refused(tmp_path, poison)
    refused(tmp_path, struct.pack("<Q", len(poison)) + poison)
    assert not marker.exists()


def test_random_changes_to_the_header_end_in_a_message_or_in_an_equal_file(tmp_path, data, forge):
    """No other exception ever comes out, whatever the header says under a valid seal."""
    rng = random.Random(11)
    path = tmp_path / "hostile.safetensors"
    pieces = ["[", "]", "{", "}", '"', ",", ":", "0", "9", "-", "e", "null", "\\", "\\u0000", "F32", "1e999", "\x00"]
    refusals = 0
    for _ in range(1500):

        def scribble(header):
            for _ in range(rng.choice([1, 1, 2, 4])):
                at = rng.randrange(len(header))
                header = header[:at] + rng.choice(pieces) + header[at + rng.randrange(3) :]
            return header

        path.unlink(missing_ok=True)
        path.write_bytes(forge.forge_tensors(data, mangle=scribble))
        try:
            tensors_file.read(path)
        except InputError:
            refusals += 1
    assert refusals > 1300
