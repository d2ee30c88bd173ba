"""What travels: files as their very bytes, each with a label, and the checks before a byte of them is parsed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from artifacts.digests import sha256_file, sha256_hex
from artifacts.errors import FedsynthError, InputError, VerificationError
from artifacts.formats import CONTENT, Format, any_file, envelope_file, format_named
from artifacts.identity.roster import read_roster
from artifacts.kinds import KINDS
from artifacts.ledgers import egress
from artifacts.places import OUTBOX, Place, RunFolder
from artifacts.writing import atomic
from artifacts.writing.atomic import explained
from artifacts.writing.scratch import scratch
from stages.run_folder.files import ROSTER
from stages.verify import require_signed

PROTOCOL = 1
_MOST_LETTERS = 500  # of an error that others may have written
# By the beginning of a file's name, what it must be. Whatever is called otherwise never travels.
_KINDS = {
    **{name: name for name, kind in KINDS.items() if kind.travels and kind.format is Format.TENSORS},
    "synthetic": "dataset", "secagg-confirmed": "secagg-survivors", "head": "head", "receipts": "receipt",
}  # fmt: skip


@dataclass(frozen=True)
class Parcel:
    """A file on its way. `name` is its place in the run folder; the rest is claimed by its sender."""

    name: str
    kind: str
    round: int | None
    size: int
    sha256: str
    data: bytes


@dataclass(frozen=True)
class Task:
    """The server asks a client for files, its targets, and sends what it takes to make them.

    `switches` are rounds that the server has found by a plateau, where the recipe leaves them open. `left_out` are
    rounds that went on without the client, whatever it did in them.
    """

    terms: str
    versions: Mapping[str, str]
    client: str
    round: int
    targets: tuple[str, ...]
    switches: tuple[int | None, int | None]
    left_out: tuple[int, ...]
    parcels: tuple[Parcel, ...]


@dataclass(frozen=True)
class Reply:
    """A client's answer, from a fixed vocabulary: an error's text could tell of private data, so it stays at home.

    `names` are the files that it lacks, or that wait to be released.
    """

    status: str
    client: str
    round: int
    names: tuple[str, ...] = ()
    parcels: tuple[Parcel, ...] = ()


STATUSES = {
    "done": "sent",
    "held": "waits to be released: fedsynth release",
    "lacks": "lacks files that the server has",
    "terms": f"refused: its {'federation.yaml'} is another one than the server's",
    "versions": "refused: its fedsynth or torch is of another version than the terms name",
    "name": "refused: the task is for another client",
    "target": "refused: it was asked for a file that is not its own by the terms",
    "parcel": "refused: what the server sent is not what it claims to be",
    "budget": "refused: its privacy budget does not allow it",
    "failed": "failed; its own log says why",
}


def kind_of(name: str) -> str | None:
    """What a file of this name must be."""
    stem = name.rpartition("/")[2].removesuffix(Format.ENVELOPES)
    if format_named(name) is Format.ENVELOPES and format_named(stem) in CONTENT:
        return "envelope"
    # The longest first: `secagg-…` has a dash of its own.
    return next((kind for start, kind in sorted(_KINDS.items(), reverse=True) if _begins(stem, start)), None)


def _begins(stem: str, start: str) -> bool:
    return stem == f"{start}{Format.DATASET}" or stem.startswith(f"{start}-")


def round_in(name: str) -> int | None:
    """The round that a file of this name must be of. Synthetic sets are of none; their parts are numbered."""
    found = re.fullmatch(r"(?!synthetic)[a-z-]+(?:-for-.+)?-(\d+)\..+", name.rpartition("/")[2])
    return int(found[1]) if found else None


class ParcelError(VerificationError):
    """What came is not what was agreed: the sender's fault. A disk that is full is another matter.

    Its text may hold words of the sender's: it stays on one line, and writes nothing but letters.
    """

    def __init__(self, text: str) -> None:
        super().__init__("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:_MOST_LETTERS]))


@contextlib.contextmanager
def _blamed() -> Iterator[None]:
    try:
        yield
    except FedsynthError as error:
        raise ParcelError(str(error)) from error


def pack(root: Path, names: Iterable[str]) -> tuple[Parcel, ...]:
    """The files, as they are. What is in an outbox is in its ledger with this very digest, or it does not travel."""
    return tuple(_packed(root, name) for name in names)


def _packed(root: Path, name: str) -> Parcel:
    path = root / name
    whole = any_file.scan(path)
    with explained(path):
        data = path.read_bytes()
    digest = sha256_hex(data)
    place = Place.of(path)
    if whole.sha256 != digest:
        raise VerificationError(f"{path} changed while it was read. Run again.")
    if path.parent.name == OUTBOX and place is not None:
        entry = egress.read(place.ledger).latest(path.name)
        if entry is None or entry.sha256 != digest:
            raise VerificationError(f"{path} is not in {place.ledger} with these bytes: it does not leave.")
    return Parcel(name, whole.metadata.kind, whole.metadata.round, len(data), digest, data)


def check_label(parcel: Parcel, expected: Sequence[str], most_bytes: int) -> None:
    """By the label and the bytes alone: asked for, not too large, what it says it is. Nothing is parsed."""
    if parcel.name not in expected:
        raise InputError(f"{parcel.name!r} came, which was not asked for.")
    if parcel.size > most_bytes or len(parcel.data) > most_bytes:
        found = max(parcel.size, len(parcel.data))
        raise InputError(f"{parcel.name} has {found:,} bytes, agreed were at most {most_bytes:,}.")
    if len(parcel.data) != parcel.size or sha256_hex(parcel.data) != parcel.sha256:
        raise VerificationError(f"{parcel.name} arrived with other bytes than its label says.")
    wanted = kind_of(parcel.name)
    if parcel.kind != wanted:
        raise InputError(f"{parcel.name} is labelled as a {parcel.kind}, a {wanted} is needed.")
    if parcel.round != round_in(parcel.name):
        raise InputError(f"{parcel.name} is labelled as of round {parcel.round}, not of its own.")


def unpack(
    parcels: Sequence[Parcel], root: Path, *, expected: Sequence[str], most_bytes: int, client: str | None = None,
    signed: bool = False,
) -> list[str]:  # fmt: skip
    """Check all of them, then put them in place; nothing is put anywhere if one is refused. Returns the new names.

    `client`: whose files they must be. `signed`: each with its envelope, by a client of the roster, checked before the
    file itself is opened.
    """
    with _blamed():
        for parcel in parcels:
            check_label(parcel, expected, most_bytes)
    parcels = [parcel for parcel in parcels if signed or not _is_there(parcel, root)]
    # Envelopes first: where a signed file is, its signature is, whenever the process is killed.
    parcels = sorted(parcels, key=lambda parcel: kind_of(parcel.name) != "envelope")
    if not parcels:
        return []
    with scratch(root, "received") as folder:
        staged = {parcel.name: folder / parcel.name for parcel in parcels}
        for parcel in parcels:
            atomic.write(staged[parcel.name], [parcel.data], force=True)
        with _blamed():
            if signed:
                _check_signatures(staged, root, client)
            for parcel in parcels:
                _check_inside(parcel, staged[parcel.name], client)
        if client is not None:
            # Who took part, and what they sent, is the server's business alone.
            with explained(root):
                RunFolder(root).clients.mkdir(mode=0o700, exist_ok=True)
        return [parcel.name for parcel in parcels if _placed(parcel, staged[parcel.name], root)]


def _check_signatures(staged: Mapping[str, Path], root: Path, client: str | None) -> None:
    """Each envelope is by the client's key and on the bytes that came; only then is the file read, and held to it."""
    files = {name: path for name, path in staged.items() if kind_of(name) not in ("envelope", "head")}
    known = read_roster(root / ROSTER).of(client or "", "envelopes")
    for name, path in files.items():
        beside = staged.get(envelope_file.beside(Path(name)).as_posix())
        if beside is None:
            raise VerificationError(f"{name} is not signed: no envelope came with it.")
        envelopes = envelope_file.read(beside, kind="envelope").envelopes
        subjects = {line.statement["subject"][0]["digest"]["sha256"] for line in envelopes}
        if known is None or not all(line.is_signed_by(known) for line in envelopes) or subjects != {sha256_file(path)}:
            raise VerificationError(f"{name} is not signed by the key of {client!r} in {root / ROSTER}.")
    require_signed(list(files.values()), root / ROSTER)


def _check_inside(parcel: Parcel, path: Path, client: str | None) -> None:
    """What the file says of itself, once it has been found whole."""
    whole = any_file.scan(path)
    found = whole.metadata
    if (found.kind, found.round) != (parcel.kind, parcel.round):
        raise InputError(f"{parcel.name} is a {found.kind} of round {found.round}, unlike its label.")
    if client is not None and (found.client != client or found.custody != "outbound"):
        raise InputError(f"{parcel.name} is not what {client!r} may send: {found.custody}, of {found.client!r}.")
    if client is None and found.custody not in ("downlink", "public"):
        raise InputError(f"{parcel.name} is {found.custody}: not for clients.")


def _is_there(parcel: Parcel, root: Path) -> bool:
    """The same bytes once more change nothing; others under a name that is taken are refused."""
    path = root / parcel.name
    if not path.exists():
        return False
    if sha256_file(path) != parcel.sha256:
        raise ParcelError(f"{parcel.name} came with other bytes than {path} has. Keep both, and ask why.")
    return True


def _placed(parcel: Parcel, staged: Path, root: Path) -> bool:
    """Whether it was new."""
    if _is_there(parcel, root):
        return False
    path = root / parcel.name
    with explained(path):
        atomic.make_folder(path.parent)
    atomic.place(staged, path, force=False)
    return True
