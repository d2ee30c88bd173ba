"""Asking the worker of this party over its socket: a line of JSON, then bytes, in both directions."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from io import BufferedRWPair
from pathlib import Path
from typing import Any

VARIABLE = "FEDSYNTH_WORKER"  # the path of its socket
MOST_LINE = 2**20
MOST_BYTES = 2**27  # of a piece of a parcel
_TURNS = 2
_BETWEEN = 0.2


class Away(Exception):
    """There is no worker, or it ended while it was asked."""


def write(stream: BufferedRWPair, said: Mapping[str, Any], data: bytes | memoryview = b"") -> None:
    line = json.dumps({**said, "bytes": len(data)}, ensure_ascii=False).encode() + b"\n"
    stream.write(line)
    stream.write(data)
    stream.flush()


def read(stream: BufferedRWPair) -> tuple[dict[str, Any], bytes]:
    """`Away` if the other end is gone, or says what nobody would say."""
    line = stream.readline(MOST_LINE)
    try:
        said: dict[str, Any] = json.loads(line if line.endswith(b"\n") else b"")
        length = said.pop("bytes")
        if type(length) is not int or not 0 <= length <= MOST_BYTES:
            raise ValueError("no length")
        data = stream.read(length)
    except (ValueError, AttributeError, KeyError, TypeError):
        raise Away from None
    if len(data) != length:
        raise Away
    return said, data


def ask(said: Mapping[str, Any], data: bytes | memoryview = b"", *, patience: float) -> tuple[dict[str, Any], bytes]:
    """What the worker answers. One that is being started, or dies once over the question, is asked again."""
    until = time.monotonic() + patience
    turns = 0
    while True:
        try:
            with _connected(os.environ.get(VARIABLE, "")) as line, line.makefile("rwb") as stream:
                turns += 1
                write(stream, said, data)
                return read(stream)
        except (OSError, Away):
            if time.monotonic() >= until or turns >= _TURNS:
                raise Away from None
        time.sleep(_BETWEEN)


def _connected(path: str) -> socket.socket:
    """By its folder: the name of a socket may have no more than a hundred letters, and homes may be deep."""
    folder = os.open(Path(path).parent, os.O_PATH | os.O_DIRECTORY)
    try:
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(f"/proc/self/fd/{folder}/{Path(path).name}")
        except OSError:
            line.close()
            raise
        return line
    finally:
        os.close(folder)
