"""Memory follows the files that are there: not the number of clients, and not what a header claims."""

import gc
import json
import struct
import tracemalloc

import numpy as np
import pytest

from artifacts.formats import tensors_file
from artifacts.metadata import InputRef
from stages.aggregate import aggregate
from stages.methods.params.aggregation import MeanRule

MODEL_BYTES = 4_000_000
CLIENTS = 40


@pytest.fixture(scope="module")
def federation(tmp_path_factory, forge):
    """A model of 4 MB and the messages of forty clients, made without training."""
    folder = tmp_path_factory.mktemp("federation")
    model = folder / "model.safetensors"
    values = np.linspace(-1, 1, MODEL_BYTES // 4, dtype="f4").reshape(1000, -1)
    forge.write_tensors(model, {"w": values}, round=0)
    start = InputRef(role="model", kind="model", sha256=tensors_file.read(model).sha256)
    messages = []
    for number in range(CLIENTS):
        path = folder / f"{number:02}" / "outbox" / "message.safetensors"
        forge.write_tensors(path, {"w": values}, "message", client=f"{number:02}", round=1, inputs=(start,))
        messages.append(path)
    return folder, model, messages


def peak_of(work):
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_forty_clients_take_no_more_memory_than_four(federation):
    folder, model, messages = federation
    peaks = {}
    for count in (4, CLIENTS):
        out = folder / f"next-{count}.safetensors"
        peaks[count] = peak_of(lambda n=count, o=out: aggregate(model, messages[:n], o, params=MeanRule()))
    assert abs(peaks[CLIENTS] - peaks[4]) < MODEL_BYTES / 4, peaks
    assert peaks[CLIENTS] < 10 * MODEL_BYTES, peaks


def test_the_measure_sees_a_server_that_keeps_all_messages(federation):
    """The test above could not fail otherwise."""
    _, _, messages = federation
    assert peak_of(lambda: [tensors_file.read(path) for path in messages[:10]]) > 10 * MODEL_BYTES


HEADERS = {
    "a header of 8 exabytes": struct.pack("<Q", 2**63),
    "a header of 4 GB": struct.pack("<Q", 2**32),
    "a tensor of a petabyte": json.dumps({"w": {"dtype": "F32", "shape": [2**48 - 1], "data_offsets": [0, 2**50 - 4]}}),
    "a billion tensors of nothing": json.dumps({"w": {"dtype": "F32", "shape": [0, 2**40], "data_offsets": [0, 0]}}),
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("command", ["aggregate-message", "decode-message", "inspect-message", "encode-update"])
def test_a_lying_header_allocates_nothing(run_copy, commands, fedsynth, forge, command, name):
    arguments, path = commands(run_copy)[command]
    lie = HEADERS[name]
    path.write_bytes(lie + b"{}" * 100 if isinstance(lie, bytes) else forge.frame(lie))
    codes = []
    peak = peak_of(lambda: codes.append(fedsynth(*arguments)[0]))
    described = command == "inspect-message" and name == "a billion tensors of nothing"
    assert codes == [0 if described else 3]
    assert peak < 12_000_000, f"{peak:,} bytes"
