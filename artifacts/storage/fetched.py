"""A source of data by URL: a copy for as long as it is read, and what may be recorded of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from artifacts.errors import FedsynthError
from artifacts.storage.remote import Remote
from artifacts.storage.url import is_url, local_path
from artifacts.writing.scratch import cache_folder, scratch


@contextlib.contextmanager
def fetched(text: str) -> Iterator[Path]:
    """A copy of what a URL names, an object or a folder, until the block ends. Errors name the URL."""
    path = local_path(text)
    if path is not None:
        yield path
        return
    remote = Remote.parse(text)
    with scratch(cache_folder(), "url") as folder:
        path = remote.under(folder)
        try:
            if remote.find() is None and remote.is_folder():
                remote.fetch_folder(path)
            else:
                remote.fetch(path)
            yield path
        except FedsynthError as error:
            raise type(error)(str(error).replace(str(path), str(remote))) from error


def without_options(text: str) -> str:
    """What may be recorded of a source: of a URL, what precedes its options."""
    return str(Remote.parse(text)) if is_url(text) and local_path(text) is None else text
