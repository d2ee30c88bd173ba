"""What the documents are made from: the audit, the account, what left, who decided. Each is read when it is asked for.

Nothing private is among it: no path of this machine, no time, no private metric, and, where the ε holds only while it
is secret who took part, no client's file and no count of them (privacy contract, rules 4 and 17).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from artifacts.disclosures import DISCLOSURES
from artifacts.errors import InputError
from artifacts.formats import any_file
from artifacts.formats.any_file import Whole
from artifacts.ledgers import egress
from artifacts.metadata import Metadata
from artifacts.places import SERVER, Place, RunFolder
from stages.account import account
from stages.audit import AuditReport
from stages.execution.progress import Summary
from stages.export.document import Said
from stages.report import exposure, verdict
from stages.report.sent_files import SentFile, metadata_of, read_sent
from stages.run_folder.charges import read_charges
from stages.run_folder.metrics import read_recipe, samples_secretly


class Facts:
    """`run` and `audited` are of a folder; of a single file there are none.

    `ending` is that of OUT, where a document can be written in several ways.
    """

    def __init__(
        self,
        path: Path,
        said: Said,
        ending: str,
        *,
        received: Sequence[Path] = (),
        run: RunFolder | None = None,
        audited: AuditReport | None = None,
    ) -> None:
        self.path, self.said, self.ending = path, said, ending
        self.run, self.audited = run, audited
        self._received = received

    @property
    def name(self) -> str:
        """Of the folder or file, without where it is."""
        return self.path.resolve().name

    @cached_property
    def file(self) -> Whole:
        """The one file, found whole. What stays with a participant is not exported."""
        found = any_file.scan(self.path)
        if found.metadata.custody in ("private", "server"):
            raise InputError(f"{self.path} is {found.metadata.custody}: it stays where it is, and is not exported.")
        return found

    @cached_property
    def secret(self) -> bool:
        return self.run is not None and samples_secretly(self.run, read_recipe(self.run))

    @cached_property
    def cost(self) -> Summary:
        """What `account` says, without what is secret, and with every ε rounded up at the sixth decimal."""
        assert self.said.delta is not None  # a document that asks for it needs it
        found = account([self.run.root if self.run is not None else self.path], delta=self.said.delta)
        rows, totals = found["clients"], found["across_clients"]
        if self.run is not None and SERVER not in self.recorded:
            # Of the models, which are what others than the server see, a client has some.
            totals = [{k: v for k, v in total.items() if k != "trusting_the_server"} for total in totals]
        if self.secret:
            # The others depend on how often a client took part.
            rows = [row for row in rows if row["client"] == "server"]
            totals = [{k: v for k, v in total.items() if k in ("unit", "trusting_the_server")} for total in totals]
        return {"clients": rounded_up(rows), "across_clients": rounded_up(totals)}

    def relative(self, text: str) -> str:
        """Paths in a sentence as seen from PATH."""
        if self.run is None:
            return text.replace(str(self.path), self.name)
        return verdict.relative(text, [self.run.root, self.path])

    @cached_property
    def places(self) -> dict[str, Place]:
        """Whose files may be spoken of, by name: the clients, then the server."""
        if self.run is None:
            return {}
        clients = {} if self.secret else {name: self.run.client(name) for name in self.run.client_names()}
        return {who: place for who, place in (clients | {"server": self.run.server}).items() if place.outbox.is_dir()}

    @cached_property
    def recorded(self) -> set[str]:
        """Whose ledger, gate, policy and budget are here: what others sent to the owner of a home is without theirs."""
        return {one.name for one in self.audited.sent if one.role == "own"} if self.audited is not None else set()

    @cached_property
    def sent(self) -> dict[str, list[SentFile]]:
        """What left each of them; of a single file, that one."""
        if self.run is None:
            metadata = self.file.metadata
            who = metadata.client or "server"
            stated = metadata.disclosures, metadata.privacy, egress.was_picked(metadata)
            one = SentFile(
                who, self.path.name, metadata.kind, metadata.round, self.file.size, *stated, self.file.sha256
            )
            return {who: [one]}
        return {who: read_sent(place, has_ledger=who in self.recorded) for who, place in self.places.items()}

    @property
    def files(self) -> list[SentFile]:
        return [file for files in self.sent.values() for file in files]

    def metadata(self) -> Iterator[tuple[str, Path, Metadata]]:
        """Whose it is, and what it says of itself, of every file that is still there."""
        if self.run is None:
            yield self.file.metadata.client or "server", self.path, self.file.metadata
            return
        for who, place in self.places.items():
            for path in sorted(place.outbox.iterdir()):
                if (metadata := metadata_of(path)) is not None:
                    yield who, path, metadata

    @cached_property
    def versions(self) -> dict[str, list[str]]:
        """Which versions of which libraries made the files."""
        found: dict[str, set[str]] = {}
        for _, _, metadata in self.metadata():
            for library, version in metadata.versions.items():
                found.setdefault(library, set()).add(version)
        return {name: sorted(versions) for name, versions in sorted(found.items())}

    @cached_property
    def simulation(self) -> bool:
        return any(metadata.simulation for _, _, metadata in self.metadata())

    @property
    def mechanisms(self) -> list[dict[str, Any]]:
        """Each kind of noise that was added, once, and how many releases had it; without the ids."""
        counted: dict[tuple[tuple[str, Any], ...], set[str]] = {}
        charged = read_charges([self.run.root if self.run is not None else self.path]).charged
        # What the server made of the clients' files has their events; its own noise is one more release.
        own = {file.who for file in charged} == {"server"}
        for file in charged:
            if self.secret and file.who != "server":
                continue
            for event in file.events:
                if file.who == "server" and event.trust != "server" and not own:
                    continue
                about = {k: v for k, v in event.to_json().items() if k not in ("id", "draw")}
                counted.setdefault(tuple(about.items()), set()).add(event.id)
        return sorted((dict(about) | {"releases": len(ids)} for about, ids in counted.items()), key=repr)

    @property
    def disclosed(self) -> list[dict[str, Any]]:
        """What left without noise, with the sentence for a layman."""
        found = []
        for name, sentence in DISCLOSURES.items():
            number = sum(name in file.disclosures for file in self.files)
            if number:
                found.append({"name": name, "sentence": sentence, "files": number})
        return found

    @cached_property
    def audit(self) -> dict[str, Any]:
        """The verdict on the records with each check, without a path of this machine."""
        if self.audited is None:
            return {"verdict": "not audited: this is about a single file", "records": None, "checks": []}
        found = verdict.stated(self.audited, [self.path, *self._received], secret=self.secret)
        return {"verdict": found["line"], "records": exposure.records(self.audited), "checks": found["checks"]}


def rounded_up(value: Any) -> Any:
    """Numbers with six decimals, never smaller than they are: the last bits differ between machines."""
    if isinstance(value, float) and math.isfinite(value):
        return math.ceil(value * 10**6) / 10**6
    if isinstance(value, Mapping):
        return {name: rounded_up(part) for name, part in value.items()}
    return [rounded_up(part) for part in value] if isinstance(value, list) else value
