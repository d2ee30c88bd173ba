"""A client's name is never a path, wherever it comes from: the command line, a folder, a column or a file."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages.data.png import encode_png

NAMES = ["../x", "a/b", "/etc", "", "..", ".hidden", "a b", "x" * 65, "-x", "é", "a\nb", "server"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_on_the_command_line(run_copy, refused, commands, name):
    for command in ("encode-update", "train-data"):
        arguments, _ = commands(run_copy)[command]
        text = refused(run_copy, *arguments, f"--client={name}", code=2)
        assert "is not allowed" in text


@pytest.mark.parametrize("name", ["a b", ".hidden", "x" * 65, "é"])
def test_a_name_from_the_folder(run_copy, refused, commands, name):
    arguments, _ = commands(run_copy)["encode-update"]
    out = run_copy / name / "outbox" / "m.safetensors"
    refused(run_copy, *arguments[:3], "-o", out, code=2)


def test_the_folder_of_the_server_names_no_client(run_copy, refused, commands):
    arguments, _ = commands(run_copy)["encode-update"]
    text = refused(run_copy, *arguments[:3], "-o", run_copy / "server/outbox/m.safetensors", code=2)
    assert "--client" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_a_column_of_ids(tmp_path, refused, name):
    """Two bad ids, because one id may be held out for the test set."""
    image = {"bytes": encode_png(np.zeros((2, 2, 1), np.uint8)), "path": None}
    hospitals = [name, f"{name}/", *(f"ok{number}" for number in range(8))]
    rows = [{"image": image, "label": i % 2, "hospital": hospitals[i % 10]} for i in range(40)]
    source, run = tmp_path / "source.parquet", tmp_path / "run"
    pq.write_table(pa.Table.from_pylist(rows), source)
    command = ["partition", source, "--scheme", "natural", "--id-column", "hospital", "--test-fraction", "0.1"]
    refused(tmp_path, *command, "-o", run, code=3, said=["--id-column hospital", "is not allowed"])


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_a_message(run_copy, refused, commands, forge, name):
    arguments, path = commands(run_copy)["aggregate-message"]
    path.write_bytes(forge.forge_tensors(path.read_bytes(), fields=lambda about: about.update(client=name)))
    refused(run_copy, *arguments, said=[path, "is not allowed"])


@pytest.mark.parametrize("out", ["update.safetensors", "x/update.safetensors"])
def test_a_place_that_tells_no_client_needs_the_option(run_copy, refused, commands, out):
    arguments, _ = commands(run_copy)["train-data"]
    text = refused(run_copy, *arguments[:3], "-o", run_copy / out, code=2)
    assert "--client" in text


def test_what_leaves_is_written_into_an_outbox_only_and_what_stays_never(run_copy, refused, commands):
    everything = commands(run_copy)
    client = run_copy / "clients/00"
    wrong = {
        "encode-update": client / "m.safetensors",
        "train-data": client / "outbox/u.safetensors",
        "decode-message": client / "outbox/u.safetensors",
        "init-like": run_copy / "server/outbox/m.safetensors",
    }
    for command, out in wrong.items():
        arguments, _ = everything[command]
        refused(run_copy, *arguments[: arguments.index("-o")], "-o", out, code=2, said=[out])
    refused(run_copy, "keygen", "-o", client / "outbox/client.key", code=2)
