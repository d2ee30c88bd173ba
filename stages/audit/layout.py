"""What may be where: a closed list of names, links, modes and attributes, in an outbox and around it.

Whatever is copied with a file leaves with it: its name, its mode, extended attributes. A name that follows from what
the file is says nothing; one that a person chose can say anything, and is pointed out.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from artifacts.formats import Format, format_named
from artifacts.kinds import KINDS
from artifacts.metadata import Metadata
from artifacts.places import OUTBOX, PENDING, PRIVATE, Place
from stages.audit.outbound import Problem, Seen

# Beside the kinds: what recipes call files of one kind, by what they are for.
_STEMS = {*KINDS, "synthetic", "receipts", "secagg-confirmed"}
_DERIVED = re.compile(r"(?P<stem>[a-z-]+?)(-(?P<number>[0-9]{2,9}))?(\.safetensors|\.parquet|\.intoto\.jsonl)")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]{0,199}", re.ASCII)
_SPECIAL = 0o7111  # set-user-id and its like, and the right to be run
_KNOWN = {OUTBOX, PENDING, PRIVATE, "egress.jsonl"}


def is_derived(name: str, metadata: Metadata) -> bool:
    """Whether a name follows from what the file is: its kind, and its round or the number of a part."""
    if metadata.kind == "envelope":
        return format_named(Path(name)) is Format.ENVELOPES  # the name of its file, which `envelopes` checks
    if metadata.kind == "secagg-shares" and len(readers := metadata.params["receivers"]) == 1:
        name = name.replace(f"-for-{readers[0]}-", "-", 1)  # the one reader, whom the file names too
    found = _DERIVED.fullmatch(name)
    if found is None or found["stem"] not in _STEMS:
        return False
    number = found["number"]
    return number is None or metadata.round is None or number == f"{metadata.round:04}"


def check_file(path: Path) -> Iterator[Problem]:
    """What a file in an outbox carries beside its bytes."""
    if not _PLAIN.fullmatch(path.name):
        yield "outbox", "its name holds more than letters, digits and the signs of a file name"
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) and mode & _SPECIAL:
            yield "outbox", f"its mode {stat.S_IMODE(mode):o} is none that fedsynth gives. Run: chmod 600"
        if extra := sorted(name for name in _attributes(path) if name.startswith("user.")):
            yield "outbox", f"it carries the extended attribute {extra[0]!r}"


def _attributes(path: Path) -> list[str]:
    """None where the system or the disk has no such thing."""
    try:
        return os.listxattr(path, follow_symlinks=False)
    except (OSError, AttributeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        return []


def check_place(place: Place, outbox: Path) -> Iterator[tuple[str, Path, str]]:
    """Links in place of what is looked at, and files that are where nobody would look for them."""
    for check, path in (("outbox", outbox), ("chain", place.ledger)):
        if path.is_symlink():
            yield check, path, "a link is in its place: what is behind it can be another thing tomorrow"
    for path in _others(place.base):
        if format_named(path) is not None or path.is_dir():
            yield "outbox", path, "it is beside the outbox, neither sent nor private"
    for folder, folders, _ in os.walk(place.private):
        if OUTBOX in folders:
            yield "outbox", Path(folder) / OUTBOX, "an outbox inside the private folder: nobody looks there"


def _others(base: Path) -> Sequence[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(path for path in base.iterdir() if path.name not in _KNOWN and not path.name.startswith("."))
    return []


def chosen_names(seen: Sequence[Seen]) -> list[str]:
    """Names that do not follow from what the files are."""
    return [one.path.name for one in seen if not is_derived(one.path.name, one.metadata)]
