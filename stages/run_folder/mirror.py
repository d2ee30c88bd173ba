"""A run folder in an object store: worked on in a private folder, and copied up file by file.

The store alone counts: what is not there was never done, and is done again, to the same bytes. Files go up in the order
in which they were written, ledgers before everything else, so that no file is in an outbox there without its entry.
Keys stay: those of a simulation come again from its seed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from artifacts.errors import InputError
from artifacts.formats.plain_data import read_json
from artifacts.identity import keys
from artifacts.ledgers import chain
from artifacts.metadata import MetadataError
from artifacts.places import OUTBOX, RunFolder
from artifacts.storage.folder_state import is_ledger, states
from artifacts.storage.remote import Remote, StoredFile
from artifacts.writing.scratch import cache_folder, scratch
from stages.execution.progress import Report
from stages.run_folder.files import CONFUSION_PICTURE, CURVE, CURVE_PICTURE

# Every round adds to these. A step is done when its own file is there, and must have added to them by then.
_REWRITTEN = (CURVE, CURVE_PICTURE, CONFUSION_PICTURE)


@contextlib.contextmanager
def mirrored(place: Remote) -> Iterator[Mirror]:
    """The run folder at `place` as a folder of this machine; empty if there is none yet."""
    place.check_bucket()
    if place.find() is not None:
        raise InputError(f"{place} is an object, and a run is a folder. Choose another name.")
    with scratch(cache_folder(), "run") as folder:
        yield Mirror(place, place.under(folder))


class Mirror:
    """A local folder and its copy in a store."""

    def __init__(self, place: Remote, root: Path) -> None:
        self.place, self.root = place, root
        root.mkdir(mode=0o700, parents=True)
        self._ledgers = {name: found for name, found in fetch_run(place, root).items() if is_ledger(name)}
        self._known = states(self.root)

    def pushing(self, report: Report) -> Report:
        """`report`, which a run calls whenever a step is done, with what is new copied up before."""

        def pushed(done: int, total: int, text: str) -> None:
            self.push()
            report(done, total, text)

        return pushed

    def push(self) -> None:
        """Copy up what is new or changed, and remove there what was removed here."""
        now = states(self.root)
        new = [name for name, state in now.items() if self._known.get(name) != state]
        for name in sorted(new, key=lambda name: (not is_ledger(name), not name.endswith(_REWRITTEN), now[name])):
            self._put(name)
            self._known[name] = now[name]
        for name in self._known.keys() - now.keys():
            if f"/{OUTBOX}/" not in f"/{name}":
                self.place.below(name).delete()
            del self._known[name]

    def _put(self, name: str) -> None:
        remote = self.place.below(name)
        if not is_ledger(name):
            # A checkpoint may be gone by now: then it is not needed.
            with contextlib.suppress(FileNotFoundError):
                remote.put(self.root / name)
            return
        found = remote.find()
        if found != self._ledgers.get(name):
            raise InputError(
                f"{remote} was changed by somebody else. A run has one place where it is worked on at a time: end the "
                "other one, then run again to go on from what is there."
            )
        self._ledgers[name] = remote.put(chain.snapshot(self.root / name))


def fetch_run(place: Remote, root: Path) -> dict[str, StoredFile]:
    """Fetch a folder, and write the keys of a simulation anew where there are none."""
    files = place.fetch_folder(root)
    for record in root.rglob("simulation/partition.json"):
        with contextlib.suppress(ValueError, KeyError, TypeError, MetadataError):  # no record of ours: no keys
            run, seed = RunFolder(record.parent.parent), int(read_json(record)["seed"])
            owners = {"server": run.server} | {f"client {name}": run.client(name) for name in run.client_names()}
            for owner, there in owners.items():
                if not there.key.exists():
                    keys.write(there.key, keys.simulated(seed, owner))
    return files
