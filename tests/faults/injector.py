"""Let one operation of a command fail, and look at what it says, what it leaves and whether it can be run again."""

import contextlib
import errno
import io
import json
import os
import pickle
import re
import shutil
import signal
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from artifacts.errors import FedsynthError
from artifacts.formats import any_file
from artifacts.ledgers import egress, spend
from artifacts.places import Place
from fedsynth_cli.app import run as run_command_line
from stages.data import dataset_images
from stages.execution import workers
from stages.recipes import runner, sweep

ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES)
_EXCHANGE = re.compile(r"\b\d{6}-(?=[^/]*\.sealed)")
_TOKEN = re.compile(r"\.[0-9a-f]{16}\.part")


class _Pipe:
    """A worker's end of the pipe, for one task."""

    def __init__(self, task):
        self._tasks, self.answer = [task], None

    def recv(self):
        if not self._tasks:
            raise EOFError
        return pickle.loads(pickle.dumps(self._tasks.pop()))

    def send(self, answer):
        self.answer = pickle.loads(pickle.dumps(answer))


class _Here:
    """A worker in this process, so that its operations are seen. What it does with a task is what a real one does."""

    def __init__(self):
        self.task, self.known, self._answer = None, set(), None
        self.connection = self.process = self

    def start(self, label, task):
        pipe = _Pipe(task)
        handler = signal.getsignal(signal.SIGINT)
        try:
            workers._serve(pipe, {}, None)
        finally:
            signal.signal(signal.SIGINT, handler)
        self.task, self._answer = label, pipe.answer

    def finish(self):
        self.task = None
        succeeded, value = self._answer
        if not succeeded:
            raise value
        return value

    def close(self):
        """As a connection and a process have it."""

    terminate = join = close


class _HereWorkers(workers.Workers):
    def idle(self, _most=None):
        self.all = self.all or [_Here()]
        return [worker for worker in self.all if worker.task is None]

    def next_finished(self):
        return self.all[0]


@contextlib.contextmanager
def one_process(folder):
    """The command's own folder for temporary files and copies, and workers that are this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for module in (workers, runner, sweep):
            patch.setattr(module, "Workers", _HereWorkers)
        patch.setattr(dataset_images, "_cache", dataset_images._Cache())  # a new process has read nothing yet
        yield


def call(folder, words):
    """The command line in that folder: (exit code, stdout, stderr). An exception that it lets through is code 1."""
    out, err = io.StringIO(), io.StringIO()
    with one_process(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run_command_line(list(words))
        except SystemExit as ended:
            code = ended.code
        except Exception:
            err.write(traceback.format_exc())
            code = 1
    return code, out.getvalue(), err.getvalue()


def succeed(folder, words):
    """It ended, or waits for others, who come next."""
    code, _, err = call(folder, words)
    assert code in (0, 75), f"{' '.join(words)}: {err}"


def snapshot(folder):
    """Every file below the folder with its bytes. Names of temporary files have no random part here."""
    return {
        _TOKEN.sub(".part", str(path.relative_to(folder))): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


@dataclass
class Failing:
    """Fails the operation with this number, counted from 0; records them all.

    `examines`: of a command to which a file that cannot be read is a finding, and no reason to stop (tests/audit).
    """

    number: int = -1
    error: int = errno.EIO
    seen: list = field(default_factory=list)
    examines: bool = False

    def before(self, operation):
        if operation.kind == "mkdir" and Path(operation.path).exists():
            return  # «File exists» is all that a system says to that
        if self.examines and operation.kind == "open" and not operation.writing:
            return
        self.seen.append(operation)
        if len(self.seen) == self.number + 1:
            raise OSError(self.error, os.strerror(self.error), operation.path)

    def after(self, operation):
        """Nothing to do."""


class Bench:
    """One command's trials. `seam` is the module of that name."""

    def __init__(self, case, worlds, folder, seam):
        self.case, self._seam = case, seam
        self._world, self.folder = worlds / case.world, folder / "trial"
        self._proved = set()
        self.before = snapshot(self._world)
        self._restore()
        watcher = Failing(examines=case.examines)
        with seam.watched(self.folder, watcher):
            code, self._said, err = call(self.folder, case.words)
        assert code == case.code, f"{case.name}: {err}"
        self.operations, self.after, self.again = watcher.seen, snapshot(self.folder), ""

    def _restore(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._world, self.folder)

    def watch(self, watcher):
        """Run the command once more, undisturbed, and show its operations to `watcher(folder)`; returns that."""
        self._restore()
        watcher = watcher(self.folder)
        with self._seam.watched(self.folder, watcher):
            assert call(self.folder, self.case.words)[0] == self.case.code
        return watcher

    def trial(self, number, error):
        """Let one operation fail; returns what was wrong about it, as words of a fixed list, and what was said."""
        self._restore()
        watcher = Failing(number, error, examines=self.case.examines)
        with self._seam.watched(self.folder, watcher):
            code, out, err = call(self.folder, self.case.words)
        self.failed = watcher.seen[number] if number < len(watcher.seen) else None
        if self.failed is None:
            return {"not reached"}, err
        return set(self._answer(code, out, err)) | self.check_state(), err

    def _answer(self, code, out, err):
        lines = err.strip().splitlines()
        if "Traceback" in err:
            yield "traceback"
        elif code == self.case.code:
            # A file that could not be opened for a first look, and was read by the next, is no harm.
            if (
                self.failed.kind != "open"
                or self.failed.writing
                or (out, snapshot(self.folder)) != (self._said, self.after)
            ):
                yield "silent"
        elif code not in (2, 3, 5, 6) or not 1 <= len(lines) <= 2 or not lines[0].startswith(("fedsynth: ", "note: ")):
            yield "words"

    def check_state(self):
        """Each file is as before or as it will be, nothing lacks its entry or charge, and the command again ends."""
        state = snapshot(self.folder)
        if state == self.before or self._key(state) in self._proved:
            return set()
        found = set(self._broken(state))
        if not self._again():
            found.add("not finished by the same command")
        if not found:
            self._proved.add(self._key(state))
        return found

    def _key(self, state):
        return hash(frozenset(state.items()))

    def _broken(self, state):
        for name, data in state.items():
            if name.endswith(".part") or ".part/" in name or data in (self.before.get(name), self.after.get(name)):
                continue
            if name.endswith(".jsonl") and _extends(data, self.before.get(name, b""), self.after.get(name, b"")):
                continue
            passing = self.case.is_random or name.endswith(".checkpoint")  # of bytes that nobody can foretell
            if not (passing and _is_whole(self.folder / name)):
                yield "half a file"
        for path in self.folder.rglob("outbox/*"):
            if ".part/" in str(path):
                continue
            place = Place.of(path)
            if str(place.key.relative_to(self.folder)) not in self.after:
                continue  # what another one sent, whose ledger is elsewhere
            with contextlib.suppress(FedsynthError):
                if path.name not in {entry.file for entry in egress.read(place.ledger).entries}:
                    yield "no entry"
        yield from self._uncharged(state)

    def _uncharged(self, state):
        """A new file with events of the participant's own is beside a charge that was not there before."""
        for name in state.keys() - self.before.keys():
            path = self.folder / name
            if path.suffix != ".safetensors" or ", DP" not in self.case.name:
                continue
            with contextlib.suppress(FedsynthError):
                if any_file.scan(path).metadata.privacy:
                    book = str(spend.beside(Place.of(path).key).relative_to(self.folder))
                    if state.get(book) == self.before.get(book):
                        yield "no charge"

    def _again(self):
        code, _, self.again = call(self.folder, self.case.words)
        state = snapshot(self.folder)
        if self.case.is_random:
            # A client's step that failed has told the server so, which goes on without it; its own log says why.
            told = any(name.endswith("federate.log") for name in state)
            return code == self.case.code and (told or _names(state) == _names(self.after))
        return code == self.case.code and state == self.after


def _names(state):
    """Of all files; a server that was interrupted asks anew, and counts on."""
    return sorted(_EXCHANGE.sub("N-", name) for name in state)


def _extends(data, before, after):
    """A log on its way from one state to the next, a line of which may be torn."""
    lines = data.split(b"\n")[:-1]
    if lines and b"\0" in lines[-1]:  # of a power cut
        lines.pop()
    whole = b"".join(line + b"\n" for line in lines)
    return whole.startswith(before) and after.startswith(whole)


def _is_whole(path):
    """What was drawn anew cannot be compared, but it can be read."""
    try:
        if path.suffix in (".safetensors", ".checkpoint"):
            any_file.scan(path)
        if path.suffix == ".json":
            json.loads(path.read_bytes())
        return path.suffix != ".key" or path.stat().st_size == 32
    except (FedsynthError, ValueError):
        return False
