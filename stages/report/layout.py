"""A run folder to draw from: the run folder or home that was given, or one laid out around participants."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from artifacts.places import RunFolder
from artifacts.writing.scratch import cache_folder, scratch
from stages.audit.subjects import Subject, find_subjects
from stages.report.sent_files import metadata_of


@contextlib.contextmanager
def laid_out(folder: Path, received: Sequence[Path]) -> Iterator[RunFolder]:
    """Files that were received are public or the server's; the participant's own folder is behind a link."""
    run = RunFolder(folder)
    if run.clients.is_dir():
        yield run
        return
    subjects = find_subjects(folder, received)
    with scratch(cache_folder(), "report") as root:
        run = RunFolder(root / "run")
        for part in (run.clients, run.public, run.server.base):
            part.mkdir(parents=True)
        for subject in subjects.all:
            _link(subject, run)
        received_here = not run.server.outbox.exists()
        run.server.outbox.mkdir(exist_ok=True)
        for path in (path for given in subjects.folders for path in sorted(given.iterdir())):
            metadata = metadata_of(path)
            if metadata is None or (metadata.custody == "downlink" and not received_here):
                continue
            _copy(path, (run.server.outbox if metadata.custody == "downlink" else run.public) / path.name)
        yield run


def _link(subject: Subject, run: RunFolder) -> None:
    place = run.server if subject.is_server else run.client(subject.name)
    if subject.role == "alone":
        place.base.mkdir(exist_ok=True)
        place.outbox.symlink_to(subject.outbox.absolute())
        return
    if subject.is_server:
        place.base.rmdir()
    place.base.symlink_to(subject.place.base.absolute())


def _copy(path: Path, to: Path) -> None:
    """Without a second copy of the bytes where the disk is the same."""
    if to.exists():
        return
    try:
        os.link(path, to)
    except OSError:
        shutil.copyfile(path, to)
