"""Synthetic and surrogate sets, and models, as catalogues describe them; for several documents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.digests import canonical_json, sha256_file
from artifacts.disclosures import DISCLOSURES
from artifacts.errors import InputError
from artifacts.ledgers import egress
from artifacts.metadata import Metadata
from artifacts.places import OUTBOX
from stages.report.sent_files import SentFile, cost
from stages.words import counted

if TYPE_CHECKING:
    from stages.export.facts import Facts

SETS = ("dataset", "surrogate")


@dataclass(frozen=True)
class CatalogueEntry:
    """A file with its name as seen from PATH, and what a catalogue says of it."""

    who: str
    where: str
    path: Path
    size: int
    sha256: str
    metadata: Metadata

    @property
    def made(self) -> str:
        """How it was made, in a sentence."""
        about = self.metadata
        by = f"`fedsynth {about.stage}`" + (f" ({about.method})" if about.method else "")
        inputs = ", ".join(f"{reference.role} ({reference.kind})" for reference in about.inputs) or "nothing named"
        return f"Made by {by} in round {about.round or 0} from: {inputs}."

    @property
    def parameters(self) -> str:
        return canonical_json(dict(self.metadata.params))

    def privacy(self, delta: float | None) -> list[str]:
        """What it costs and discloses, a sentence each."""
        about = self.metadata
        stated = about.disclosures, about.privacy, egress.was_picked(about)
        word = cost(SentFile(self.who, self.path.name, about.kind, about.round, self.size, *stated, self.sha256), delta)
        at = f" at δ = {delta:g}" if delta is not None else ""
        words = {
            "∞": "No limit is shown on what it discloses about one person: ε = ∞.",
            "0": "No private record can change it: ε = 0.",
            "–": "It is made from what clients sent, and costs what they paid.",
            "finite": f"Noise was added ({counted(len(about.privacy), 'privacy event')}); ε depends on δ.",
        }
        said = [words.get(word, f"Noise was added: ε = {word}{at} for this file alone.")]
        if about.custody == "public" and not about.privacy and not about.disclosures:
            said = ["It was declared public: nothing is claimed about the people in it."]
        said += [f"{name}: {DISCLOSURES[name]}" for name in about.disclosures]
        if about.simulation:
            said.append("Made in a simulation: keys were derived from a seed.")
        return said


def described(facts: Facts, kinds: tuple[str, ...]) -> list[CatalogueEntry]:
    """The files of these kinds, in order; one at least."""
    found = []
    for who, path, metadata in facts.metadata():
        if metadata.kind in kinds:
            found.append(
                CatalogueEntry(who, _seen_from(facts, path), path, path.stat().st_size, sha256_file(path), metadata)
            )
    if not found:
        what = f"a {facts.file.metadata.kind}" if facts.run is None else "a folder without one"
        raise InputError(f"{facts.path} is {what}: this format describes a {' or a '.join(kinds)}.")
    return found


def _seen_from(facts: Facts, path: Path) -> str:
    if facts.run is None:
        return path.name
    if facts.run.root == facts.path:
        return path.relative_to(facts.run.root).as_posix()
    return f"{OUTBOX}/{path.name}" if (facts.path / OUTBOX).is_dir() else path.name
