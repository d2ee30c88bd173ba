"""Who made what from what, for one round: files as nodes, from their metadata and the server's own records.

A private input of a file that left is named by a commitment. It is drawn as such; with the client's key, which only a
private report uses, it is opened, and the graph goes on inside the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from artifacts.errors import FedsynthError
from artifacts.formats import CONTENT, format_named
from artifacts.identity import keys
from artifacts.identity.commitments import opens
from artifacts.identity.keys import Key
from artifacts.kinds import KINDS
from artifacts.ledgers import lineage
from artifacts.metadata import InputRef
from artifacts.places import Place, RunFolder
from stages.report.sent_files import REPLACED, SentFile, digest_of, metadata_of

Side = Literal["private", "left", "server", "given"]


@dataclass(frozen=True)
class Node:
    """`side`: stays with a client, left a client, the server's, or given to the round."""

    key: str
    label: str
    who: str
    kind: str
    side: Side


@dataclass
class Graph:
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)

    def layers(self) -> dict[str, int]:
        """How many steps a file is away from what the round began with: the longest way."""
        sources: dict[str, list[str]] = {}
        for start, end in self.edges:
            sources.setdefault(end, []).append(start)
        found: dict[str, int] = {}

        def layer(key: str) -> int:
            if key not in found:
                found[key] = 0  # a cycle cannot be made of digests; a forged one ends here
                found[key] = max((layer(source) + 1 for source in sources.get(key, [])), default=0)
            return found[key]

        for key in self.nodes:
            layer(key)
        return found


class LineageReader:
    """Reads the graphs of a run; `sent` is what each participant sent, `private` whether commitments are opened."""

    def __init__(self, run: RunFolder, sent: Mapping[str, Sequence[SentFile]], *, private: bool) -> None:
        sent = {who: [file for file in files if file.status != REPLACED] for who, files in sent.items()}
        self._run, self._sent, self._private = run, sent, private
        self._files: dict[str, tuple[Path, str, Side]] = {}
        for path in sorted(run.public.iterdir()) if run.public.is_dir() else ():
            if path.is_file():
                self._files[digest_of(path)] = (path, "public", "given")
        for who, files in sent.items():
            place = self._place(who)
            side: Side = "server" if place.is_server else "left"
            self._files |= {file.sha256: (place.outbox / file.file, who, side) for file in files if file.sha256}
        self._digest_of = {path: digest for digest, (path, _, _) in self._files.items()}
        self._opened: dict[str, tuple[Key | None, dict[str, Path]]] = {}

    def rounds(self) -> list[int]:
        """The rounds in which something was sent; 0 is what was sent once, before the first."""
        return sorted({file.round or 0 for files in self._sent.values() for file in files})

    def graph(self, round: int) -> Graph:
        result = Graph()
        for who, files in self._sent.items():
            for file in files:
                if (file.round or 0) == round and file.sha256 and not _is_signed(file.kind):
                    self._add(self._place(who).outbox / file.file, round, result)
        return result

    def _place(self, who: str) -> Place:
        return self._run.server if who == "server" else self._run.client(who)

    def _add(self, path: Path, round: int, graph: Graph) -> str:
        """The node of a file, and before it the nodes of all that it was made from."""
        digest = self._digest_of.get(path)
        who, side = self._kept(path) if digest is None else self._files[digest][1:]
        key = path.relative_to(self._run.root).as_posix()
        if key in graph.nodes:
            return key
        metadata = metadata_of(path)
        kind = metadata.kind if metadata is not None else path.suffix.lstrip(".")
        earlier = metadata is not None and (metadata.round or 0) < round and KINDS[metadata.kind].handed_on
        graph.nodes[key] = Node(key, path.stem, who, kind, "given" if earlier else side)
        if metadata is None or earlier:
            return key
        for number, reference in enumerate((*metadata.inputs, *self._recorded(path))):
            source = self._source(reference, number, key, who, round, graph)
            graph.edges[source, key] = None
        return key

    def _kept(self, path: Path) -> tuple[str, Side]:
        who = path.parent.parent.name
        return who, "server" if who == "server" else "private"

    def _recorded(self, path: Path) -> Iterator[InputRef]:
        """What the server made a file of its outbox from, which the file itself does not say."""
        record = self._run.server.private / f"{path.stem}.lineage.json"
        if path.parent.parent == self._run.server.base and record.exists():
            try:
                yield from lineage.read_record(record)
            except FedsynthError:
                return  # the audit says so

    def _source(self, reference: InputRef, number: int, of: str, who: str, round: int, graph: Graph) -> str:
        if reference.sha256 in self._files:
            return self._add(self._files[reference.sha256][0], round, graph)
        # What all participants made alike, TOFU's models, is shown where the server has it.
        at_home = self._at_home(who, reference) or self._at_home("server", reference)
        if at_home is not None:
            return self._add(at_home, round, graph)
        committed = reference.commitment is not None
        key = f"{of}#{number}" if committed else f"{reference.sha256}"
        side: Side = "private" if committed else "given"
        label = f"private {reference.kind}" if committed else f"{reference.kind} (not here)"
        graph.nodes.setdefault(key, Node(key, label, who if committed else "", reference.kind, side))
        return key

    def _at_home(self, who: str, reference: InputRef) -> Path | None:
        """The participant's own private file: a client's for a private report only, the server's by its digest."""
        if who == "public" or not (self._private or (who == "server" and reference.sha256 is not None)):
            return None
        if who not in self._opened:
            place = self._place(who)
            files = sorted(place.private.iterdir()) if place.private.is_dir() else []
            mine = {digest_of(p): p for p in files if format_named(p) in CONTENT}
            try:
                key = keys.read(place.key) if place.key.exists() else None
            except FedsynthError:
                key = None
            self._opened[who] = (key, mine)
        key, mine = self._opened[who]
        if reference.sha256 is not None:
            return mine.get(reference.sha256)
        return next((path for digest, path in mine.items() if key is not None and opens(key, reference, digest)), None)


def _is_signed(kind: str) -> bool:
    """Signed statements are on files; nothing is made from them. An unreadable file has no kind."""
    return kind in KINDS and KINDS[kind].is_signed
