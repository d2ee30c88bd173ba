"""Files as if they were too large for memory."""

import pytest

from stages.data import dataset_images


@pytest.fixture
def streamed(monkeypatch):
    """From here on every file is a large one, and to decode one into memory as a whole is an error."""

    def refuse(*_, **__):
        raise AssertionError("a dataset was decoded into memory")

    def begin():
        monkeypatch.setattr(dataset_images, "_STREAMED_BYTES", 0)
        monkeypatch.setattr(dataset_images, "_cache", dataset_images._Cache())
        monkeypatch.setattr(dataset_images, "_decode", refuse)

    return begin
