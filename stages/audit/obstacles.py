"""What kept an audit from looking, as opposed to what it found: a full disk or a lack of rights accuses nobody."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from artifacts.errors import FedsynthError

# A folder or a link where a file should be is a fact about what is audited.
_FOUND = {errno.EISDIR, errno.ENOTDIR, errno.ELOOP}


def is_gone(error: BaseException) -> bool:
    """Whether the file was there a moment ago: honest work removes what was sent."""
    return any(isinstance(one, FileNotFoundError) for one in _causes(error))


def obstacle(error: BaseException) -> str | None:
    """Why something could not be looked at, if that is no fault of its own; else None.

    Errors of the operating system have a number. Those that libraries raise about the content of a file have none.
    """
    for one in _causes(error):
        if isinstance(one, MemoryError):
            return "memory was short"
        if isinstance(one, OSError) and one.errno is not None and one.errno not in _FOUND:
            return one.strerror or str(one)
    return None


def in_words(error: Exception) -> str:
    """What is wrong, in the words of our own errors; any other is one that no file of fedsynth's would cause."""
    if isinstance(error, FedsynthError):
        return str(error)
    return f"it is not understood ({type(error).__name__}: {' '.join(str(error).split())[:200]})"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
