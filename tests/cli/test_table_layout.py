"""Columns of tables: words stay whole at 60 and 80 columns, paths lose their middle."""

import io
import re

import pytest
from rich.console import Console

from fedsynth_cli.console import facts
from fedsynth_cli.table_layout import GAP, laid_out

_ROWS = [
    ["parameter", "value", "unit", "from"],
    ["sweep.train-client.algorithm", "fedavg, fedprox, scaffold, feddyn", "", "fedssyn-algorithms"],
    ["train-client.learning_rate", "0.05", "step size", "follows from the rest of the recipe"],
    ["partition.classes_per_client", "2", "", "default, ours"],
]


def _width(rows):
    columns = zip(*rows, strict=True)
    return sum(max(len(line) for cell in column for line in cell) for column in columns) + GAP * (len(rows[0]) - 1)


@pytest.mark.parametrize("width", [50, 60, 80, 100, 300])
def test_whole_words_within_the_width(width):
    found = laid_out(_ROWS, width)
    assert _width(found) <= width
    for row, lines in zip(_ROWS, found, strict=True):
        for cell, parts in zip(row, lines, strict=True):
            assert "".join(parts).replace(" ", "") == cell.replace(" ", ""), "nothing is lost"
            for part in parts[:-1]:
                following = cell.replace(" ", "")
                assert re.search(r"[.,_-]$", part) or f"{part} " in cell, f"{part!r} of {following!r} ends in a word"


def test_what_fits_is_left_alone():
    assert laid_out(_ROWS, 300) == [[[cell] for cell in row] for row in _ROWS]
    assert laid_out([["a", "b"], ["one\ntwo", "c"]], 80) == [[["a"], ["b"]], [["one", "two"], ["c"]]]


def test_a_long_path_loses_its_middle():
    path = "runs/hospital-of-the-north/2026-11-18/clients/00/outbox/round-003/update.safetensors"
    (_, [name, size]) = laid_out([["file", "bytes"], [path, "1,234"]], 60)
    assert size == ["1,234"] and len(name) == 1
    assert name[0].startswith("runs/hospital") and name[0].endswith("/update.safetensors") and "…" in name[0]
    assert len(name[0]) <= 60 - GAP - len("bytes")


def test_a_word_that_is_too_long_for_any_line_is_cut():
    found = laid_out([["a", "b"], ["x" * 100, "y"]], 40)
    assert _width(found) <= 40 and "".join(found[1][0]) == "x" * 100


def test_names_and_values_wrap_between_words_and_keep_what_is_copied():
    digest = "9b1aad067ff2bbf92ef7a882b78a1f135245b950f873cdde03d430d3b31187d7"
    sentence = "The change that training on private data made to the model (with the running averages of batch norm)."
    written = io.StringIO()
    facts(Console(file=written, width=60), [("discloses update", sentence), ("from model", f"sha256 {digest}")])
    lines = written.getvalue().splitlines()
    assert [line for line in lines if len(line) > 60] == [f"{'':<18}{digest}"], "in one piece, to be copied"
    said = " ".join(line.strip() for line in lines)
    assert re.sub(r"\s+", " ", said) == f"discloses update {sentence} from model sha256 {digest}", "nothing is lost"
    assert all(line.startswith(" " * 18) for line in lines[1:3]), "below the value"
