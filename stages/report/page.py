"""The page itself: facts about a run, section by section, laid into one HTML file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from artifacts.disclosures import DISCLOSURES
from artifacts.errors import IncompleteError, InputError, UsageError
from artifacts.kinds import Custody
from artifacts.places import SERVER, RunFolder
from artifacts.publish import prepare
from artifacts.writing import atomic
from stages.account import check_delta
from stages.audit import AuditReport, audit
from stages.execution.progress import Report, Summary, silent
from stages.pictures.palette import style
from stages.report import curves, exposure, lineage_picture, private_side, verdict
from stages.report.layout import laid_out
from stages.report.lineage_graph import LineageReader
from stages.report.sent_files import SentFile, metadata_of, read_sent, table, totals_by_round
from stages.report.sheets import MOST_SHEETS, sheets
from stages.run_folder.metrics import read_metrics, read_recipe, samples_secretly
from stages.words import counted, human_bytes, percent

_FOLDER = Path(__file__).parent
# Lines in light and in dark: the dark blue and the red of the palette are hardly seen on black.
_LIGHT, _DARK = (0, 1, 2), (5, 4, 3)


def report(
    folder: Path,
    out: Path,
    *,
    received: Sequence[Path] = (),
    trust: str | None = None,
    delta: float | None = None,
    round: int | None = None,
    private: bool = False,
    force: bool = False,
    progress: Report = silent,
) -> Summary:
    """Write the page of whatever `audit` audits. `received` and `trust`: as there.

    What is private stays out of it unless `private` asks for it; then the page is private too.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: give a run folder, a home, a participant's folder or an outbox.")
    check_delta(delta)
    custody: Custody = "private" if private else "public"
    prepare(out, custody)
    audited = audit(folder, received=received, trust=trust, report=progress)
    with laid_out(folder, received) as run:
        context = _context(run, audited, [folder, *received], delta=delta, round=round, private=private)
    html = _environment().get_template("page.html").render(context)
    page = html.encode(errors="backslashreplace")  # a file's name need not be text
    atomic.write(out, [page], force=force, custody=custody)
    return {
        "out": str(out),
        "custody": custody,
        "passed": audited.passed,
        "incomplete": isinstance(audited.error, IncompleteError),
        "verdict": context["verdict"]["line"],
        "bytes": len(page),
        "left_out": context["left_out"],
    }


def _context(
    run: RunFolder,
    audited: AuditReport,
    given: Sequence[Path],
    *,
    delta: float | None,
    round: int | None,
    private: bool,
) -> dict[str, Any]:
    recipe, metrics = read_recipe(run), read_metrics(run)
    secret = samples_secretly(run, recipe) and not private
    names = [name for name in run.client_names() if (run.clients / name / "outbox").is_dir()]
    recorded = {one.name for one in audited.sent if one.role == "own"}
    sent = {} if secret else {name: read_sent(run.client(name), has_ledger=name in recorded) for name in names}
    server = read_sent(run.server, has_ledger=SERVER in recorded)
    left_out = []
    if secret:
        left_out.append("who took part, how many did, and what each sent: the ε holds only while that is secret")
    accuracy: Mapping[int, float] = metrics.accuracy
    if metrics.custody == "private" and not private:
        left_out.append("accuracy, which was measured on private data")
        accuracy = {}
    left = [file for files in sent.values() for file in files]
    found = verdict.stated(audited, given, secret=secret)
    privacy = curves.epsilon(run, accuracy, [*left, *server], delta, by_client=not secret)
    disclosed, measured = _disclosures(left), private_side.read(run) if private else None
    attacked = measured["attacks"] if measured is not None else None
    pictures, every = sheets(run, sent | {"server": server})
    return {
        "title": recipe.get("name") or given[0].resolve().name,
        "about": recipe.get("about", ""),
        "private": private,
        "secret": secret,
        "left_out": left_out,
        "facts": _facts(run, accuracy, left, privacy, secret=secret),
        "verdict": found,
        "records": exposure.records(audited),
        "exposure": exposure.exposure(privacy, disclosed, secret=secret, attacked=attacked),
        "accuracy": curves.accuracy(run, accuracy, by_bytes=not secret),
        "epsilon": privacy,
        "by_round": list(totals_by_round(left)),
        "clients": [_client(name, files, delta) for name, files in sent.items()],
        "open_clients": len(sent) <= 1,
        "server": _client("server", server, delta),
        "disclosures": disclosed,
        "sheets": pictures,
        "more_sheets": every - len(pictures),
        "most_sheets": MOST_SHEETS,
        "lineage": [] if secret else _lineage(run, sent | {"server": server}, round, private=private),
        "made": _made(run, recipe, audited, secret=secret),
        "private_side": measured,
        "palette": [(style(light).colour, style(dark).colour) for light, dark in zip(_LIGHT, _DARK, strict=True)],
        "css": (_FOLDER / "page.css").read_text(),
    }


def _facts(
    run: RunFolder, accuracy: Mapping[int, float], left: Sequence[SentFile], privacy: Mapping[str, Any], *, secret: bool
) -> list[tuple[str, str]]:
    facts = [("clients", f"{len(run.client_names()):,}")]
    if accuracy:
        facts += [("rounds", f"{max(accuracy):,}"), ("accuracy", percent(accuracy[max(accuracy)]))]
    if not secret:
        facts.append(("left the clients", human_bytes(sum(file.size for file in left))))
    facts.append(("ε", privacy["short"]))
    return facts


def _client(name: str, files: Sequence[SentFile], delta: float | None) -> dict[str, Any]:
    kinds = sorted({file.kind for file in files})
    size = sum(file.size for file in files)
    words = f"{counted(len(files), 'file')}, {human_bytes(size)}"
    return {"name": name, "words": words, "kinds": ", ".join(kinds), "rows": table(files, delta)}


def _disclosures(left: Sequence[SentFile]) -> list[dict[str, Any]]:
    """What left without noise, with the sentence for a layman; first what most files disclose."""
    found = []
    for name, sentence in DISCLOSURES.items():
        files = [file for file in left if name in file.disclosures]
        if files:
            clients = len({file.who for file in files})
            words = f"in {counted(len(files), 'file')} of {counted(clients, 'client')}"
            found.append({"name": name, "sentence": sentence, "where": words, "files": len(files)})
    return sorted(found, key=lambda row: -int(row["files"]))


def _lineage(
    run: RunFolder, sent: Mapping[str, Sequence[SentFile]], round: int | None, *, private: bool
) -> list[dict[str, Any]]:
    """The graph of what was sent before the first round, if anything was, and that of one round."""
    reader = LineageReader(run, sent, private=private)
    known = reader.rounds()
    if round is not None and round not in known:
        raise UsageError(f"--round {round}: nothing was sent then. Rounds: {', '.join(map(str, known)) or 'none'}.")
    wanted = [number for number in known if number == 0] + [known[-1] if round is None else round] if known else []
    pictures = []
    for number in dict.fromkeys(wanted):
        graph = reader.graph(number)
        if not graph.nodes:
            continue
        title = f"Round {number}" if number else "Before the first round"
        name = f"lineage-{number}"
        pictures.append(
            {
                "title": title,
                "name": name,
                "svg": lineage_picture.svg(graph, name=name, title=f"{title}: who made what from what"),
                "one_by_one": lineage_picture.drawn_one_by_one(graph),
                "legend": lineage_picture.legend(graph),
                "sentences": lineage_picture.sentences(graph),
            }
        )
    return pictures


def _made(run: RunFolder, recipe: Mapping[str, Any], audited: AuditReport, *, secret: bool) -> dict[str, Any]:
    """The recipe section by section, what the files themselves state, and versions of the first and the last model."""
    # Anyone who knows the seed of a simulation can draw its clients again.
    plain = {
        key: value
        for key, value in recipe.items()
        if key not in ("name", "about")
        and value is not None
        and not isinstance(value, Mapping)
        and not (secret and key == "seed")
    }
    sections = {
        key: ", ".join(f"{name} = {value}" for name, value in section.items() if value is not None)
        for key, section in recipe.items()
        if isinstance(section, Mapping) and section
    }
    versions: dict[str, str] = {}
    for path in [*sorted(run.public.glob("*.safetensors")), *sorted(run.server.outbox.glob("*.safetensors"))[-1:]]:
        metadata = metadata_of(path)
        versions |= dict(metadata.versions) if metadata is not None else {}
    files = sorted({made for one in audited.sent if not one.is_server for made in one.made}) if not secret else []
    return {"plain": plain, "sections": sections, "files": files, "versions": versions}


def _environment() -> Environment:
    """Everything that comes from a file is escaped; what is missing is an error, not a blank."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["bytes"] = human_bytes
    environment.filters["options"] = _options
    environment.filters["number"] = lambda value: f"{value:,}"
    return environment


def _options(text: str) -> Markup:
    """A text in which no line breaks inside a `--word`."""
    parts = re.split(r"(--[a-z]+)", text)
    whole = Markup('<span class="whole">{}</span>')
    return Markup("").join(whole.format(part) if number % 2 else part for number, part in enumerate(parts))
