"""Which format a file has, and what it says of itself: decided in one place."""

import re
from pathlib import Path

import pytest

import artifacts
from artifacts.errors import InputError
from artifacts.formats import Format, describe, format_named, format_of, survey
from artifacts.kinds import KINDS


def test_names_say_the_format_where_they_end_as_artifacts_do():
    assert format_named("a/b/update-0001.safetensors") is Format.TENSORS
    assert format_named(Path("data.parquet")) is Format.DATASET
    assert format_named("data.parquet.intoto.jsonl") is Format.ENVELOPES
    assert format_named("egress.jsonl") is None and format_named("notes.txt") is None


def test_every_kind_has_one_of_the_formats():
    assert {kind.format for kind in KINDS.values()} == set(Format)


def test_parquet_is_known_by_its_bytes_and_everything_else_by_its_name(tmp_path):
    named = tmp_path / "data.bin"
    named.write_bytes(b"PAR1 and more")
    assert format_of(named) is Format.DATASET
    named.write_bytes(b"anything")
    assert format_of(named) is Format.TENSORS, "what else it may be, the reader of tensors says"
    empty = tmp_path / "cut.parquet"
    empty.touch()
    assert format_of(empty) is Format.DATASET
    with pytest.raises(InputError, match="no such file"):
        format_of(tmp_path / "none.parquet")


def test_a_file_is_described_without_its_payload(tmp_path, forge):
    paths = {
        Format.TENSORS: forge.write_tensors(tmp_path / "update.safetensors"),
        Format.DATASET: forge.write_dataset(tmp_path / "data.parquet"),
    }
    for format, path in paths.items():
        found = describe(path)
        assert found.format is format and found.metadata == survey(path)[1]
        assert bool(found.specs) == (format is Format.TENSORS) and found.specs == survey(path)[2]


def test_no_other_module_decides_the_format_by_an_ending():
    """A suffix test of an artifact's format anywhere else is a second place to change."""
    root = Path(artifacts.__file__).parent.parent
    suspect = re.compile(r"""(\.suffix (==|in|not in)|\.endswith\()[^\n]*\.(safetensors|parquet|intoto)""")
    # Sources of data, and public weights, are anybody's files.
    mine = {root / "stages" / name for name in ("data/parquet_source.py", "data/sources.py", "models/pretrained.py")}
    files = [path for room in ("artifacts", "stages", "fedsynth_cli") for path in (root / room).rglob("*.py")]
    assert [str(path) for path in files if path not in mine and suspect.search(path.read_text())] == []
