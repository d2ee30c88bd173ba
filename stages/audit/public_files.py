"""What is neither a participant's nor sent: the public folder, and whatever else is in a run folder or home."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from artifacts.digests import sha256_file
from artifacts.errors import FedsynthError
from artifacts.formats import describe, format_named
from artifacts.identity.roster import is_identity_in, read_roster
from artifacts.metadata import MetadataError
from artifacts.places import METRICS, PUBLIC, ROSTER, SERVER, SIMULATION, TERMS
from stages.audit.findings import Level
from stages.words import counted

_KEPT = ("private", "server", "outbound")  # custodies of what belongs into a participant's folder
_ELSEWHERE = {"clients", SERVER, SIMULATION}  # which have checks of their own
_FOLDERS = {*_ELSEWHERE, PUBLIC, METRICS}
_OF_ROOT = {*_FOLDERS, TERMS}
_IDENTITY = "identity.json"
_AT_WORK = ".part"  # how names end while something is written
_LOCK, _MOST_LOCK = ".lock.part", 200  # bytes: who holds it


def roots_of(target: Path) -> list[Path]:
    """The run folder or home that is audited, or the homes."""
    if (target / "clients").is_dir():
        return [target]
    return [path.parent for path in sorted(target.glob(f"*/{TERMS}"))]


def check_elsewhere(roots: Iterable[Path], folders: Iterable[Path]) -> Iterator[tuple[Level, Path, str]]:
    """Files of a participant outside its folder, at any depth; and what in a public folder is no artifact at all."""
    roots = list(roots)
    public = [folder for folder in folders if folder.name == PUBLIC]
    known: set[Path] = set()
    for folder in [*public, *(path for root in roots for path in _others(root))]:
        for path in _files(folder):
            if path in known or format_named(path) is None:
                continue
            known.add(path)
            try:
                found = describe(path).metadata
            except (FedsynthError, MetadataError, OSError):
                continue  # damaged or somebody's own: nothing was made from it
            if found.custody in _KEPT:
                where = "among the public files" if PUBLIC in path.parts else "neither in private/ nor in an outbox"
                yield "failure", path, f"a {found.custody} {found.kind} is {where}"
    for folder, strange in [*((one, _strange(one)) for one in public), *((root, _around(root)) for root in roots)]:
        if strange:
            names = strange[0].relative_to(folder)
            what = (
                f"{counted(len(strange), 'file')} that fedsynth cannot read, so that nobody looked into them: {names}"
            )
            yield "note", folder, what


def _strange(folder: Path) -> list[Path]:
    """What is in a public folder and no artifact; a folder with nothing in it has a name all the same."""
    empty = [Path(place) for place, folders, names in os.walk(folder) if not folders and not names]
    files = [path for path in _files(folder) if format_named(path) is None and path.name != Path(ROSTER).name]
    return [*files, *(path for path in empty if path != folder)]


def _around(root: Path) -> list[Path]:
    """What is in a run folder or home beside its own folders, and beside those of the participants."""
    found = [path for path in sorted(root.iterdir()) if path.name not in _OF_ROOT and not _is_lock(path)]
    files = [path for path in found if not path.is_dir() and not _is_identity(root, path)]
    for folder in (path for path in found if path.is_dir()):
        files += _strange(folder) if any(folder.iterdir()) else [folder]
    return files + [path for path in sorted((root / "clients").glob("*")) if not path.is_dir()]


def _is_identity(root: Path, path: Path) -> bool:
    """What `federate join` leaves beside the terms, once it is in the roster: it says nothing more."""
    try:
        return path.name == _IDENTITY and not path.is_symlink() and is_identity_in(read_roster(root / ROSTER), path)
    except (FedsynthError, OSError):
        return False


def _is_lock(path: Path) -> bool:
    return path.name == _LOCK and path.stat().st_size <= _MOST_LOCK


def different_public(roots: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Public files are the same for everybody: one that another home has otherwise under this name."""
    first: dict[Path, tuple[Path, str]] = {}
    for root in roots:
        for path in (path for path in _files(root / PUBLIC) if not path.name.endswith(_AT_WORK)):
            digest = sha256_file(path)
            other, theirs = first.setdefault(path.relative_to(root), (root, digest))
            if theirs != digest:
                yield path, f"a public file is the same for everybody, and {other.name} has another one of this name"


def _others(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and path.name not in _ELSEWHERE)


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place) / name for name in sorted(names))
