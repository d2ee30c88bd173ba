"""Reading a file starts nothing: no code is compiled, run or imported, no other file opened, no process started."""

import json
import os
import sys

import pytest

from artifacts.errors import InputError
from artifacts.formats import dataset_file, tensors_file


def events_while_reading(reads):
    """The audit events of a child process, by name, and the files that it opened."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        seen = []
        sys.addaudithook(lambda event, arguments: seen.append((event, str(arguments[0]) if arguments else "")))
        for read, path in reads:
            try:
                read(path)
            except InputError:
                seen.append(("refused", str(path)))
        os.write(send, json.dumps(seen).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        events = [tuple(event) for event in json.loads(pipe.read())]
    os.waitpid(child, 0)
    return events


@pytest.fixture
def reads(tmp_path, forge):
    """A good and a hostile file of each format."""
    model = forge.write_tensors(tmp_path / "m.safetensors")
    dataset = forge.write_dataset(tmp_path / "d.parquet")
    bad_model, bad_dataset = tmp_path / "bad.safetensors", tmp_path / "bad.parquet"
    code = "__import__('os').system('touch executed')"
    bad_model.write_bytes(forge.forge_tensors(model.read_bytes(), fields=lambda about: about.update(method=code)))
    bad_dataset.write_bytes(forge.forge_parquet(forge.image_table([b"x"], [0]), text=lambda t: t | {"code": code}))
    pairs = [(tensors_file.read, model), (tensors_file.read_header, model), (tensors_file.read, bad_model)]
    pairs += [(dataset_file.read, dataset), (dataset_file.read_metadata, dataset), (dataset_file.read, bad_dataset)]
    for read, path in pairs:  # whatever is imported late is imported now
        try:
            read(path)
        except InputError:
            assert "bad" in path.name
    return pairs


def test_reading_raises_no_event_but_opening_the_file(reads):
    events = events_while_reading(reads)
    assert [path for event, path in events if event == "refused"] == [str(p) for _, p in reads if "bad" in p.name]
    assert {event for event, _ in events} == {"refused", "open"}
    assert {path for event, path in events if event == "open"} <= {str(path) for _, path in reads}
