"""The files of one command by URL: what is read is fetched before, what was written is put after.

Copies are in a private folder under the names that they have in their stores, so that anyone who reads `private/` or a
client's name from a path finds it there.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from pathlib import Path

from artifacts.errors import FedsynthError, InputError, UsageError
from artifacts.formats import CONTENT, Format, describe, envelope_file, format_named
from artifacts.formats.plain_data import read_json
from artifacts.places import OUTBOX, PENDING, PRIVATE
from artifacts.storage.folder_state import State, states
from artifacts.storage.remote import Remote
from artifacts.storage.url import is_url, local_path
from artifacts.writing.scratch import cache_folder
from fedsynth_cli.command_list import COMMANDS
from fedsynth_cli.urls import Use


def refuse_leaving(place: Remote) -> None:
    """What leaves is written into an outbox of this machine, beside its ledger, and copied from there."""
    found = {OUTBOX, PENDING} & set(place.key.parts)
    if found:
        raise UsageError(
            f"{place}: no {found.pop()} by URL. What leaves is written into a local outbox/, which has its ledger "
            "beside it; copy it from there."
        )


class Exchange:
    """`force` and `private` are the command's own flags of these names."""

    def __init__(self, command: str, folder: Path, *, force: bool, private: bool) -> None:
        self._command, self._folder, self._force, self._private = command, folder, force, private
        self._roots: dict[str, Path] = {}  # by a URL's options: two stores may have buckets of one name
        self._inputs: dict[Path, Remote | None] = {}
        self._outputs: dict[Path, Remote] = {}
        self._before: dict[str, State] = {}

    @property
    def names(self) -> dict[str, str]:
        """What the copies are called towards the user."""
        remotes = [*filter(None, self._inputs.values()), *self._outputs.values()]
        return {f"{self._root(remote)}/{remote.store.scheme}/": f"{remote.store.scheme}://" for remote in remotes}

    def local(self, name: str, use: Use, text: str) -> str:
        """The path that the command sees. Nothing is fetched before all are known to be right."""
        path = local_path(text) if is_url(text) else Path(text)
        if path is not None:
            if not use.written:
                self._inputs.setdefault(path)
            return str(path) if is_url(text) else text
        remote = Remote.parse(text)
        if use.why_local:
            raise UsageError(f"--{name} {remote}: not by URL, as {use.why_local}. Give a path.")
        path = remote.under(self._root(remote))
        if use.written:
            refuse_leaving(remote)
            if COMMANDS[self._command].confidential:
                _refuse_private(remote)
            self._outputs[path] = remote
        else:
            self._inputs[path] = remote
        return str(path)

    def fetch(self) -> None:
        """Make sure that what will be written can be, and fetch what is read."""
        for remote in self._outputs.values():
            remote.check_bucket()
            self._refuse_existing(remote)
            if remote.is_folder():
                raise InputError(f"{remote} is a folder with something in it. Choose another name.")
        for path, source in self._inputs.items():
            if source is not None and not path.exists():
                _fetch(source, path)
        for remote in self._outputs.values() if any(_is_private(path) for path in self._inputs) else ():
            _refuse_private(remote)
        self._before = states(self._folder)

    def put(self) -> None:
        """Put what the command wrote, in the order in which it was written."""
        if not self._outputs:
            return
        now = states(self._folder)
        names = [name for name in sorted(now, key=now.__getitem__) if self._before.get(name) != now[name]]
        new = {self._folder / name: self._remote(self._folder / name) for name in names}
        try:
            # A picture is as private as the numbers beside it; in a run folder each file is in its own place.
            private = self._private or any(_says_private(path) for path in new if not self._in_folder(path))
            for path, remote in new.items():
                refuse_leaving(remote)
                if _says_private(path) if self._in_folder(path) else private:
                    _refuse_private(remote)
            for path, remote in new.items():
                self._refuse_existing(remote)
                remote.put(path)
        except FedsynthError as error:
            kept = f" What was written is kept in {self._keep(list(new))}." if new else ""
            raise type(error)(f"{error}{kept}") from error

    def _refuse_existing(self, remote: Remote) -> None:
        if not self._force and remote.find() is not None:
            raise InputError(f"{remote} already exists. Add --force to replace it, or choose another name.")

    def _root(self, remote: Remote) -> Path:
        return self._roots.setdefault(remote.store.options, self._folder / str(len(self._roots)))

    def _remote(self, path: Path) -> Remote:
        """Where a file that was written belongs: to an output, beside it, or into it."""
        for output, remote in self._outputs.items():
            if path.is_relative_to(output):
                name = path.relative_to(output).as_posix()
                return remote if name == "." else remote.below(name)
        beside = next((output for output in self._outputs if output.parent == path.parent), None)
        if beside is None:
            raise InputError(f"{path} was written, and belongs to no output.")
        return self._outputs[beside].beside(path.name)

    def _in_folder(self, path: Path) -> bool:
        return any(output in path.parents for output in self._outputs)

    def _keep(self, paths: list[Path]) -> Path:
        """Work of hours is not thrown away because a store cannot be reached at its end."""
        kept = cache_folder() / f"unsent-{secrets.token_hex(4)}"
        kept.mkdir(mode=0o700)
        for number, path in enumerate(paths):
            there = kept / path.name
            shutil.move(path, there if not there.exists() else kept / f"{number}-{path.name}")
        return kept


def _fetch(remote: Remote, path: Path) -> None:
    if remote.find() is None and remote.is_folder():
        from stages.run_folder.mirror import fetch_run

        fetch_run(remote, path)
        return
    remote.fetch(path)
    envelope = remote.beside(remote.key.name + Format.ENVELOPES)
    if envelope.find() is not None:
        envelope.fetch(envelope_file.beside(path))


def _refuse_private(remote: Remote) -> None:
    if remote.key.parent.name != PRIVATE:
        raise UsageError(
            f"{remote} would hold what is private. Put it into a folder named private/, if the bucket is the "
            "participant's own, or write to a path."
        )


def _is_private(path: Path) -> bool:
    """Whether a file says that it is private; one that cannot be read is for the stage to refuse."""
    if format_named(path) not in CONTENT or not path.is_file():
        return False
    with contextlib.suppress(FedsynthError):
        return describe(path).metadata.custody == "private"
    return False


def _says_private(path: Path) -> bool:
    """Whether a file that was written is private: an artifact, or metrics."""
    if path.suffix == ".json":
        with contextlib.suppress(ValueError, OSError):
            found = read_json(path)
            return isinstance(found, dict) and found.get("custody") == "private"
    return _is_private(path)
