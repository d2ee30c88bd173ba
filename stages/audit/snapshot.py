"""What is with one participant, read while somebody may be at work there.

Honest work goes one way: private files first, then the entry in the ledger, then the file in the outbox, which may be
sent and removed at any time. So an outbox is listed before anything else is read, and its ledger afterwards: what was
listed has by then all that it must have. A file that is another one when it has been read was replaced meanwhile.
"""

from __future__ import annotations

import functools
from pathlib import Path

from artifacts.errors import FedsynthError
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.identity.owner import is_open_to_others
from stages.audit.obstacles import is_gone, obstacle
from stages.audit.outbound import Problem, Seen, look_at
from stages.audit.secrets import Watch
from stages.audit.subjects import Subject
from stages.audit.surrounding_files import Kept, Shelf, State, listed, state_of


class Snapshot:
    """A participant's outbox, listed now; its files, and the secrets to look for in them, are read when asked for."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.place = subject, subject.place
        self.unread: list[tuple[Path, Problem]] = []
        self.obstacles: list[tuple[str, Path, str]] = []  # which check they hinder, where, and why
        self.replaced: set[Path] = set()
        self.gone: set[Path] = set()
        # By name: paths take five times as long to make, and to send to another process.
        self._sent = self._list(subject.outbox)
        self._kept = self._list(self.place.private) if self.has_records else {}

    def _list(self, folder: Path) -> dict[str, State]:
        try:
            return listed(folder)
        except OSError as error:
            self.obstacles.append(("outbox", folder, str(obstacle(error))))
            return {}

    @property
    def has_records(self) -> bool:
        """Whether ledger, key and private files belong to what is audited."""
        return self.subject.role == "own"

    @property
    def num_files(self) -> int:
        return len(self._sent) + len(self._kept)

    @functools.cached_property
    def files(self) -> dict[Path, State]:
        """What is in the outbox."""
        return {self.subject.outbox / name: state for name, state in self._sent.items()}

    @functools.cached_property
    def shelf(self) -> Shelf:
        if not self.has_records:
            return Shelf()
        shelf = Shelf.read(self.place.private)
        self.obstacles += [("lineage", path, why) for path, why in shelf.obstacles]
        return shelf

    @functools.cached_property
    def key(self) -> Key | FedsynthError | None:
        try:
            return keys.read(self.place.key) if self.has_records and self.place.key.exists() else None
        except (FedsynthError, OSError) as error:
            if (why := obstacle(error)) is not None:
                self.obstacles.append(("lineage", self.place.key, why))
                return None
            assert isinstance(error, FedsynthError)  # all others are obstacles
            return error

    @functools.cached_property
    def seen(self) -> list[Seen]:
        secret = self.key if isinstance(self.key, Key) else None
        watch = Watch(secret, {kept.metadata.seed or 0 for kept in self.shelf.files.values()})
        found = []
        for path, state in self.files.items():
            try:
                one = look_at(path, watch) if state.regular else ("outbox", "not a regular file")
            except Exception as error:
                if is_gone(error):
                    self.gone.add(path)
                else:
                    self.obstacles.append(("digest", path, str(obstacle(error))))
                continue
            if state_of(path) != state:
                self.replaced.add(path)
            if isinstance(one, Seen):
                found.append(one)
            else:
                self.unread.append((path, one))
        return found

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those that private files state."""
        return tuple(kept.metadata.seed for kept in self.shelf.files.values() if kept.metadata.seed is not None)

    def was_there(self, kept: Kept) -> bool:
        """Whether a private file is the one that stood there when the outbox was listed, not a newer one."""
        return self._kept.get(kept.path.name) == state_of(kept.path)

    def shared(self) -> list[Path]:
        """What other users of this machine can read of the private folder."""
        if not self._kept or not is_open_to_others(self.place.private.stat()):
            return []
        return [self.place.private / name for name, state in self._kept.items() if state.shared]
