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

from artifacts.disclosures import DISCLOSURES
from artifacts.formats import Format, format_named
from artifacts.kinds import KINDS
from artifacts.ledgers.egress import Entry
from artifacts.metadata import Metadata
from artifacts.places import OUTBOX, PENDING, PRIVATE, Place
from stages.audit.outbound import Problem, Seen
from stages.privacy.events import PrivacyEvent

# Beside its own name: what recipes call files of a kind, by what they are for.
_ALSO = {"dataset": "synthetic", "receipt": "receipts", "secagg-survivors": "secagg-confirmed"}
_DERIVED = re.compile(r"(?P<stem>[a-z-]+?)(-(?P<number>[0-9]{2,9}))?(\.safetensors|\.parquet|\.intoto\.jsonl)")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]{0,199}", re.ASCII)
_SPECIAL = 0o7111  # set-user-id and its like, and the right to be run
_KNOWN = {OUTBOX, PENDING, PRIVATE, "egress.jsonl"}
_FOR_ONE = re.compile(r"^secagg-shares-for-.+-(?=[0-9]+\.)")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_ROUNDS = 10**6
# What `artifacts.writing` makes beside an outbox while it writes, and removes: locks, and files on their way into it.
_AT_WORK = re.compile(
    r"\.((outbox|pending|private|lock|egress\.jsonl)|[A-Za-z0-9][A-Za-z0-9._=,+-]{0,199}\.[0-9a-f]{16})\.part", re.ASCII
)
_MOST_PARTS = 4  # digits of the number of a part of a shuffle
# What somebody chose; others, such as a label of SELinux, the system gives to every file.
_CHOSEN_ATTRIBUTES = ("user.", "trusted.", "security.capability")


def is_derived(name: str, metadata: Metadata) -> bool:
    """Whether a name follows from what the file is: its kind, and its round or the number of a part."""
    if metadata.kind == "envelope":
        return format_named(Path(name)) is Format.ENVELOPES  # the name of its file, which `envelopes` checks
    if metadata.kind == "secagg-shares" and len(readers := metadata.params["receivers"]) == 1:
        name = name.replace(f"-for-{readers[0]}-", "-", 1)  # the one reader, whom the file names too
    return _is_usual(name, metadata.kind, metadata.round, is_server=metadata.custody == "downlink")


def _is_usual(name: str, kind: str, round: int | None, *, is_server: bool) -> bool:
    """`message-0002.safetensors`; what goes down in parts has the number of the part, and no other number is usual."""
    found = _DERIVED.fullmatch(name)
    if found is None or found["stem"] not in _stems(kind):
        return False
    number = found["number"]
    if round is None and number is not None:
        return is_server and len(number) <= _MOST_PARTS
    return number is None or number == f"{round:04}"


def _stems(kind: str) -> set[str]:
    """An update in another form is a message all the same."""
    return {kind, _ALSO.get(kind, kind), *(["message"] if KINDS[kind].carries == "update" else [])}


def check_file(path: Path) -> Iterator[Problem]:
    """What a file in an outbox carries beside its bytes."""
    if not _PLAIN.fullmatch(path.name):
        yield "outbox", "its name holds more than letters, digits and the signs of a file name"
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) and mode & _SPECIAL:
            yield "outbox", f"its mode {stat.S_IMODE(mode):o} is none that fedsynth gives. Run: chmod 600"
        yield from _check_attributes(path)


def _check_attributes(path: Path) -> Iterator[Problem]:
    if extra := sorted(name for name in _attributes(path) if name.startswith(_CHOSEN_ATTRIBUTES)):
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
        with contextlib.suppress(FileNotFoundError):
            yield from ((check, path, what) for _, what in _check_attributes(path))
    for path in others(place.base):
        yield "outbox", path, "it is beside the outbox, neither sent nor private. Move it into private/, or elsewhere"
    for folder, folders, _ in os.walk(place.private):
        if OUTBOX in folders:
            yield "outbox", Path(folder) / OUTBOX, "an outbox inside the private folder: nobody looks there"


def left_by_writers(base: Path) -> list[str]:
    """What a writer that is at work, or was killed, has beside an outbox: nobody looks into it."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(path.name for path in base.iterdir() if _AT_WORK.fullmatch(path.name))
    return []


def others(base: Path) -> Sequence[Path]:
    """What is beside an outbox and has no business there."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(path for path in base.iterdir() if path.name not in _KNOWN and not _AT_WORK.fullmatch(path.name))
    return []


def chosen_names(seen: Sequence[Seen], entries: Sequence[Entry], *, is_server: bool = False) -> list[str]:
    """Names that do not follow from what the files are; of files that are gone the ledger has them."""
    here = {one.path.name for one in seen}
    gone = dict.fromkeys(
        entry.file for entry in entries if entry.file not in here and not _is_usual_entry(entry, is_server=is_server)
    )
    return [one.path.name for one in seen if not is_derived(one.path.name, one.metadata)] + list(gone)


def _is_usual_entry(entry: Entry, *, is_server: bool) -> bool:
    """An envelope is called after its file, of whatever kind."""
    name = _FOR_ONE.sub("secagg-shares-", entry.file).removesuffix(Format.ENVELOPES * (entry.kind == "envelope"))
    kinds = KINDS if entry.kind == "envelope" else {entry.kind} & KINDS.keys()
    return any(_is_usual(name, kind, entry.round, is_server=is_server) for kind in kinds)


def strange_entry(entry: Entry) -> str | None:
    """What an entry says that no file of fedsynth says of itself; of a file that is here, the file itself shows it."""
    if not _PLAIN.fullmatch(entry.file) or not _DIGEST.fullmatch(entry.sha256):
        return "its name or its digest is none"
    if entry.kind not in KINDS or not KINDS[entry.kind].travels or not set(entry.disclosures) <= DISCLOSURES.keys():
        return f"no {entry.kind!r} that discloses {', '.join(entry.disclosures) or 'nothing'} is sent by anybody"
    if entry.bytes < 0 or (entry.round is not None and not 0 <= entry.round < _MOST_ROUNDS):
        return "its size or its round is no number of such"
    try:
        spelt = [PrivacyEvent.from_json(event).to_json() for event in entry.privacy]
    except (ValueError, TypeError) as error:
        return f"a privacy event is not understood: {error}"
    return None if spelt == entry.privacy else "a privacy event is not spelt as fedsynth spells it"
