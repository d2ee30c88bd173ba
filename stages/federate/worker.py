"""The worker of a party: a process that stays, and does for Flower's short-lived ones what `federate step` does.

It imports torch once. Who asks it, over a socket that only its own user can open, hands in sealed parcels in pieces,
and is given sealed parcels; nothing else goes in or out. A task that takes too long ends the process, as does memory
that is used up; the one that started it starts it anew, and the files on disk are where it goes on from.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.errors import FedsynthError, InputError
from artifacts.places import SERVER, RunFolder
from artifacts.writing import atomic
from stages.federate import incoming
from stages.federate.client import note
from stages.federate.drop import Label
from stages.federate.flower_app import wire
from stages.federate.incoming import Piece
from stages.federate.party import Party, connected_file
from stages.federate.step import step
from stages.federate.terms import FILE, read_terms
from stages.plugins import using

_PIECE = 2**26  # bytes of a parcel in one message of Flower's
_LEAST_SECONDS = 600.0
_FULL = 0.8  # of its memory: then the next task gets a fresh process


@dataclass
class PartyWorker:
    """`shared`: the drop folder is one that all parties reach, and Flower only says that something lies there."""

    home: Path
    drop: str
    client: str | None
    shared: bool
    _present: list[str] = field(default_factory=list)

    def answer(self, said: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Whatever goes wrong is an answer too. At a client no text of it leaves."""
        try:
            if not self.shared:
                atomic.make_folder(Path(self.drop), 0o700)
            # The terms name plug-ins, and whatever is asked for reads them.
            with using([]):
                return self._done(said, data)
        except FedsynthError as error:
            return self._failed(error.exit_code, str(error)), b""
        except (OSError, MemoryError) as error:
            return self._failed(InputError.exit_code, f"{type(error).__name__}: {error}."), b""
        except Exception:
            self._tell(traceback.format_exc())
            return self._failed(InputError.exit_code, "the worker failed; what it printed says why."), b""

    def _done(self, said: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        match said.get("do"):
            case "begin" if self.client is None:
                return self._begin(str(said["terms"])), b""
            case "step" if self.client is None:
                return self._step(said), b""
            case "read" if self.client is None:
                return self._read(str(said["name"]), int(said["offset"]), int(said["most"]))
            case "write" if self.client is None:
                return self._write(said, data), b""
            case "deliver" if self.client is not None:
                return self._deliver(said, data)
        raise InputError(f"the worker was asked for {said.get('do')!r}, which it does not do.")

    def _failed(self, code: int, text: str) -> dict[str, Any]:
        self._tell(text)
        if self.client is not None:
            return {"state": "failed"}
        end(self.home, code, text)
        return {"state": "failed", "exit_code": code, "message": text}

    def _tell(self, text: str) -> None:
        if self.client is not None:
            note(self.home, self.client, 0, text)
        sys.stderr.write(text.rstrip("\n") + "\n")

    def _party(self) -> Party:
        return Party.at(self.home, self.drop, self.client)

    def _begin(self, terms: str) -> dict[str, Any]:
        party = self._party()
        if terms != party.terms.digest:
            raise InputError(
                f"the app's terms are not those of {self.home / FILE}: write the app anew from these, or agree."
            )
        return {"state": "begun", "piece": 0 if self.shared else _PIECE}

    def _step(self, said: dict[str, Any]) -> dict[str, Any]:
        lines: list[str] = []
        if said.get("present", self._present) != self._present:
            self._present = [str(name) for name in said["present"]]
            names = json.dumps({"connected": self._present}, ensure_ascii=False) + "\n"
            atomic.write(connected_file(RunFolder(self.home).server), [names.encode()], force=True, custody="private")
        done, _ = step(self.home, self.drop, client=None, log=lines.append)
        party = self._party()
        if done:
            end(self.home, 0, "")
        return {
            "state": "done" if done else "waiting", "log": lines, "wait": party.terms.wait,
            "parcels": [
                {"to": label.recipient, "name": party.drop.name(label), "size": size, "sha256": digest}
                for label, size, digest in party.ours()
            ],
        }  # fmt: skip

    def _read(self, name: str, offset: int, most: int) -> tuple[dict[str, Any], bytes]:
        party = self._party()
        for label, _, _ in party.ours():
            if party.drop.name(label) == name:
                return {"state": "read"}, party.piece(label, offset, min(most, _PIECE))
        raise InputError(f"{name} is not there any more.")

    def _write(self, said: dict[str, Any], data: bytes) -> dict[str, Any]:
        """A piece of a client's answer. What is wrong with it is the client's fault, and ends nothing."""
        party, client = self._party(), str(said["from"])
        wanted = {label.exchange for label, _, _ in party.ours()}
        found = [Label(number, client, SERVER) for number in wanted]
        label = next((label for label in found if party.drop.name(label) == said["name"]), None)
        size = int(said["size"])
        if label is None or client not in party.terms.participants:
            return {"state": "refused", "have": 0, "why": "it sent an answer that nobody waits for"}
        try:
            return {"state": "taken", "have": self._take(party, label, said, data), "size": size}
        except InputError as error:
            if isinstance(error.__cause__, OSError):
                raise
            return {"state": "refused", "have": 0, "why": str(error)}

    def _deliver(self, said: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """A piece of the server's parcel. Once it is whole it is worked on, and pieces of the answer go back."""
        party = self._party()
        label = party.from_server(str(said["name"]))
        if label is None:
            raise InputError(
                f"a parcel came that is not for {party.name} from the server, by its name: {said['name']!r}."
            )
        have = self._take(party, label, said, data)
        if have < int(said["size"]):
            return {"state": "piece", "have": have}, b""
        back = self._answer_to(party, label)
        state = "done"
        if back is None:
            try:
                done, _ = step(self.home, self.drop, client=self.client, log=self._tell)
                state = "done" if done else "waiting"
            except FedsynthError as error:
                state = "failed"
                self._tell(str(error))
            back = self._answer_to(party, label)
        if back is None:
            return {"state": state, "have": have}, b""
        own, size, digest = back
        offset = min(int(said["back"]), size)
        piece = b"" if self.shared else party.piece(own, offset, min(int(said["most"]), _PIECE))
        return {
            "state": state, "have": have, "name": party.drop.name(own), "size": size, "sha256": digest,
            "offset": offset,
        }, piece  # fmt: skip

    def _answer_to(self, party: Party, label: Label) -> tuple[Label, int, str] | None:
        return next((found for found in party.ours() if found[0].exchange == label.exchange), None)

    def _take(self, party: Party, label: Label, said: dict[str, Any], data: bytes) -> int:
        size = int(said["size"])
        if self.shared:
            return size if label in party.drop.labels(sender=label.sender, recipient=label.recipient) else 0
        piece = Piece(label, size, str(said["sha256"]), int(said["offset"]), data)
        return incoming.take(piece, Path(self.drop), party.drop, party.most_bytes)


def end_file(home: Path) -> Path:
    """How the last run over Flower ended."""
    return RunFolder(home).server.private / "federation-end.json"


def end(home: Path, code: int, message: str) -> None:
    text = json.dumps({"exit_code": code, "message": message}, ensure_ascii=False) + "\n"
    with contextlib.suppress(FedsynthError):  # a disk that is full: the run's log says the same
        atomic.write(end_file(home), [text.encode()], force=True)


def serve(worker: PartyWorker, path: Path, *, longest: float | None, memory: int) -> None:
    """Answer one after the other, until the process ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        before = os.umask(0o177)
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        listening.bind(f"/proc/self/fd/{folder}/{path.name}")  # its own name may be too long
        os.umask(before)
        os.close(folder)
        listening.listen()
        import stages.execution.torch_setup  # noqa: F401 - before anybody waits for it

        print("ready", flush=True)  # noqa: T201 - the one that started it waits for this line
        while True:
            line, _ = listening.accept()
            with line, line.makefile("rwb") as stream, contextlib.suppress(OSError, wire.Away):
                # SIGALRM ends the process, wherever it hangs: in a task, or over one who asks half a question.
                signal.setitimer(signal.ITIMER_REAL, longest or _longest(worker))
                said, data = wire.read(stream)
                answer, piece = worker.answer(said, data)
                wire.write(stream, answer, piece)
                del data, piece
            signal.setitimer(signal.ITIMER_REAL, 0)
            if _used() > _FULL * memory:
                return


def _longest(worker: PartyWorker) -> float:
    """Twice what a round waits, by the terms as they are now."""
    try:
        return max(_LEAST_SECONDS, 2 * read_terms(worker.home / FILE).wait)
    except FedsynthError:
        return _LEAST_SECONDS  # the answer will say so


def _used() -> int:
    """Bytes of memory that count against the limit."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmData:")[2].split()[0]) * 1024


def main() -> None:
    given = json.loads(sys.argv[1])
    worker = PartyWorker(Path(given["home"]), given["drop"], given["client"], given["shared"])
    serve(worker, Path(given["socket"]), longest=given["longest"], memory=given["memory"])


if __name__ == "__main__":
    main()
