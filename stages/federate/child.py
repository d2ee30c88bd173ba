"""A program of Flower's as a child process: its lines are passed on as they come, and it ends when we do."""

from __future__ import annotations

import contextlib
import ctypes
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

Echo = Callable[[str], None]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_KEPT = 400  # lines, to look for the reason of a failure
_SECONDS_TO_STOP = 15.0
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: not between fork and exec


def silent(line: str) -> None:
    """For callers who want no lines."""


class Child:
    """Started at once. It leads a group of its own, so that Ctrl-C reaches it through us alone."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str], echo: Echo = silent) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._process = subprocess.Popen(
            [str(word) for word in command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent if _LIBC is not None else None,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, args=(echo,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self, echo: Echo) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                plain = _COLOURS.sub("", line.rstrip("\n"))
                self._lines.append(plain)
                echo(plain)

    def running(self) -> bool:
        return self._process.poll() is None

    def said(self, pattern: str) -> re.Match[str] | None:
        """The last of its lines in which the pattern is found."""
        matches = (re.search(pattern, line) for line in reversed(list(self._lines)))
        return next((match for match in matches if match), None)

    def wait(self) -> int:
        """Until it has ended and all its lines were read."""
        code = self._process.wait()
        self._reader.join(timeout=2.0)  # a grandchild may hold the pipe open
        return code

    def stop(self) -> None:
        """Ask it to end, then make it end."""
        if self.running():
            self._process.terminate()
            try:
                self._process.wait(_SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self.wait()


def _die_with_parent() -> None:
    """In the child, before it becomes the program: if we are killed, it is asked to end."""
    assert _LIBC is not None
    _LIBC.prctl(_DEATH_SIGNAL, signal.SIGTERM)


@contextlib.contextmanager
def started(command: Sequence[str | Path], environment: Mapping[str, str], echo: Echo = silent) -> Iterator[Child]:
    """A child for the length of the block. A request to terminate us ends the block like Ctrl-C does."""
    with _terminating():
        child = Child(command, environment, echo)
        try:
            yield child
        finally:
            child.stop()


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
