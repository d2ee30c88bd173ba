"""Parquet that is not ours meets Arrow in a process of its own: what ends that process is a sentence to the user."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from stages.data import foreign_parquet


@pytest.fixture
def deadly(tmp_path, forge):
    """A size histogram of another length than the column has levels: Arrow ends the process that reads it."""

    def change(footer):
        label = footer["4:list<struct>"][0]["1:list<struct>"][2]["3:struct"]
        label["16:struct"] = {"3:list<i64>": [1, 2, 3, 4, 5]}

    path = tmp_path / "deadly.parquet"
    path.write_bytes(forge.forge_footer(forge.write_dataset(tmp_path / "d.parquet", 3).read_bytes(), change))
    return path


def ends_a_process(path):
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            with pq.ParquetFile(path) as file:
                about = file.metadata.row_group(0)
                [about.column(number) for number in range(about.num_columns)]
                list(file.iter_batches(use_threads=False))
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_a_file_that_ends_arrow_is_refused_in_a_sentence(tmp_path, deadly, fedsynth):
    assert ends_a_process(deadly)  # else this test says nothing
    out = tmp_path / "a/private/data.parquet"
    for words in (["inspect", deadly], ["ingest", deadly, "-o", out], ["inspect", deadly, deadly]):
        code, _, err = fedsynth(*words)
        assert code == 3 and err.startswith("fedsynth: ") and len(err.splitlines()) == 1
        assert str(deadly) in err and "SIGABRT" in err
    assert not out.exists()


@pytest.mark.parametrize("words", [["inspect"], ["ingest", "-o", "a/private/data.parquet"]], ids=lambda words: words[0])
def test_a_column_whose_name_is_no_text(tmp_path, fedsynth, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    image = {"bytes": b"x", "path": None}
    table = pa.table({"image": [image], "label": [0], "zzzzzz": [1]})
    pq.write_table(table, tmp_path / "plain.parquet", store_schema=False)
    data = (tmp_path / "plain.parquet").read_bytes()
    (tmp_path / "bytes.parquet").write_bytes(data.replace(b"zzzzzz", b"\xff\xfe\xfd\xff\xfe\xfd"))
    code, out, err = fedsynth(words[0], "bytes.parquet", *words[1:])
    assert code == 3 and len(err.splitlines()) == 1 and "Traceback" not in err + out


def test_whoever_has_heard_enough_ends_the_process(tmp_path):
    rows = 3_000_000
    images = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([b"x"], pa.binary()))
    column = pa.StructArray.from_arrays([images, pa.nulls(rows, pa.string())], ["bytes", "path"])
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({"image": column, "label": np.zeros(rows, np.int64)}), path, store_schema=False)
    frames = foreign_parquet.frames(
        "rows", [path], {"image": "image", "label": "label", "id": None, "unit": None, "by": []}
    )
    assert next(frames)[1]["row"] == 0
    used = os.times().children_user
    frames.close()
    assert os.times().children_user - used < 5  # to the end it takes a minute


def test_what_is_printed_of_a_foreign_file_is_text(tmp_path, fedsynth):
    hostile = "\x1b[2J\x1b]0;title\x07\u202e[/nope][bold]\nPASS"
    pq.write_table(pa.table({hostile: ["a"]}).replace_schema_metadata({hostile: hostile}), tmp_path / "a.parquet")
    save_file({hostile: np.zeros(2, "f4")}, tmp_path / "a.safetensors", {hostile: hostile})
    for name in ("a.parquet", "a.safetensors"):
        for words in ([], ["--json"]):
            code, out, err = fedsynth("inspect", tmp_path / name, *words)
            assert code == 0, err
            assert all(c.isprintable() or c == "\n" for c in out)
            assert "\nPASS" not in out and "[/nope][bold]" in out.replace("\n", "").replace(" ", "")


def test_an_error_names_a_file_as_text(tmp_path, fedsynth):
    for name in ("\x1b[31mred.parquet", "\u202egnp.safetensors", os.fsdecode(b"\xff\xfe.parquet"), "two\nlines"):
        code, _, err = fedsynth("inspect", tmp_path / name)
        assert code == 3 and len(err.splitlines()) == 1
        assert all(c.isprintable() for c in err.rstrip("\n"))


def test_a_note_names_a_file_as_text(tmp_path, fedsynth):
    """That a file is there already is said on another way than an error."""
    path = tmp_path / "\x1b[31mred" / "private" / "client.key"
    assert fedsynth("keygen", "-o", path)[0] == 0
    code, _, err = fedsynth("keygen", "-o", path)
    assert code == 0 and "is there already" in err and all(c.isprintable() for c in err.rstrip("\n"))


def test_what_to_try_is_a_line_of_its_own(fedsynth):
    code, _, err = fedsynth("train-client", "--\x1b[31mx")
    assert code == 2 and err.splitlines()[1:] == ["Try: fedsynth train-client --help"] and "\x1b" not in err
