"""What `run.py` exchanges between environments: written and read in this one, by a reader that notices a change."""

import dataclasses

import numpy as np
import pytest


@pytest.fixture(scope="module")
def exchange(helper):
    return helper("versions/exchange.py")


@pytest.fixture(scope="module")
def written(exchange, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exchange") / "files"
    exchange.write(folder)
    return folder


def test_files_are_read_as_they_were_written(exchange, written):
    exchange.read(written)


def test_another_pixel_is_noticed(exchange, written, monkeypatch):
    content = exchange.content()
    images = content.images.copy()
    images[-1, 0, 0, 0] ^= 1
    monkeypatch.setattr(exchange, "content", lambda: dataclasses.replace(content, images=images))
    with pytest.raises(AssertionError, match=r"public/dataset\.parquet, images"):
        exchange.read(written)


def test_another_number_is_noticed(exchange, written, monkeypatch):
    tensors = exchange.tensors() | {"scalar": np.array(0.2, np.float32)}
    monkeypatch.setattr(exchange, "tensors", lambda: tensors)
    with pytest.raises(AssertionError, match=r"public/model\.safetensors, read by safetensors alone, scalar"):
        exchange.read(written)


def test_a_changed_message_is_noticed(exchange, written):
    message = next(written.glob("run/clients/*/outbox/message-*.safetensors"))
    before = message.read_bytes()
    message.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    try:
        with pytest.raises(SystemExit, match="fedsynth verify ended with 5"):
            exchange.read(written)
    finally:
        message.write_bytes(before)
