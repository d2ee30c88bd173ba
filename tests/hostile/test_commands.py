"""Every input of every command replaced by something hostile: the command refuses it in a line or two, and leaves
everything as it was; or it is harmless, and the command succeeds. Never a traceback, an escape sequence, a long wait.

By default each place meets a few drawn from all, `-m slow` all of them.
"""

import contextlib
import importlib
import itertools
import multiprocessing
import os
import random
import re
import resource
import runpy
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import all_commands
import command_server
import pytest

from fedsynth_cli.app import run as run_command_line

SECONDS, WAIT, MEMORY = 5, 30, 2**30
WAITING = 75  # `federate step`: it is for others to act, whatever came
LINES = runpy.run_path(str(Path(__file__).with_name("lines.py")))["LINES"]
PLACES = [(name, place) for name, line in LINES.items() for place in line.inputs]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.fixture(scope="session")
def whole(tmp_path_factory, helper, finished_run, softmax_run):
    """Made once, never changed."""
    scaffold = softmax_run("scaffold", 2, "partition.clients=2", "train-client.local_epochs=1", label="scaffold")
    return helper("hostile/world.py").build(
        tmp_path_factory.mktemp("hostile") / "world", helper, finished_run, scaffold
    )


@pytest.fixture(scope="session")
def files(helper, forge, mutations, readers, whole):
    kinds = ("run/public/model-0000.safetensors", "run/clients/00/private/update-0001.safetensors",
             "run/public/test.parquet", "sign/public/roster.json", "sign/clients/a/egress.jsonl",
             "sign/clients/a/outbox/head-0001.intoto.jsonl", "conf/recipe.yaml", "img/foreign.parquet",
             "agg/server/outbox/secagg-keys-0001.safetensors", "surr/clients/00/outbox/surrogate-0001.safetensors",
             "gen/clients/00/private/vae.safetensors", "gen/clients/00/private/data.parquet")  # fmt: skip
    keys = [whole / "sign/clients/a/private/client.key", whole / "sign/clients/b/private/client.key",
            whole / "sign/server/private/server.key"]  # fmt: skip
    return helper("hostile/files.py").Files(forge, mutations, readers, [whole / name for name in kinds], keys)


@dataclass
class Ended:
    """How a command ended: its exit code (minus a signal's number), what it printed, and what it took."""

    code: int
    out: str
    err: str
    seconds: float
    grown: int


@pytest.fixture(scope="session")
def command(tmp_path_factory, helper):
    """Run a command line in a forked process, in a folder; what commands import is imported before."""
    for name in command_server.IMPORTED:
        importlib.import_module(name)
    printed = tmp_path_factory.mktemp("printed")

    def call(folder, words):
        # `statm` tells what a process has now; of a child the system tells only the most that it ever had.
        before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        sys.stdout.flush(), sys.stderr.flush()
        child = os.fork()
        if not child:
            _become(folder, words, printed)
        _, status, usage = os.wait4(child, 0)
        out, err = (os.fsdecode((printed / name).read_bytes()) for name in ("out", "err"))
        grown = max(0, usage.ru_maxrss * 1024 - before)
        return Ended(os.waitstatus_to_exitcode(status), out, err, usage.ru_utime + usage.ru_stime, grown)

    return call


def _become(folder, words, printed):
    """In the child: never returns."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(WAIT)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        room = pages * resource.getpagesize() + 2 * MEMORY  # so that one that takes all does not take the machine
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        start_with = multiprocessing.get_context
        multiprocessing.get_context = lambda _method: start_with("fork")  # workers that need not import torch first
        for number, name in ((1, "out"), (2, "err")):
            file = os.open(printed / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
        sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.chdir(folder)
        code = 99
        try:
            code = run_command_line(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 1
        sys.stdout.flush(), sys.stderr.flush()
    finally:
        os._exit(code)


def state(folder):
    """Every file with what changes when it is written to."""
    found = {}
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(place, name)  # noqa: PTH118  (thousands of them)
            about = os.lstat(path)
            found[os.path.relpath(path, folder)] = (about.st_mode, about.st_size, about.st_mtime_ns)
    return {name: value if not os.path.isdir(os.path.join(folder, name)) else None for name, value in found.items()}  # noqa: PTH112, PTH118


def complaint(line, ended, before, after):
    """What is wrong with how a command ended; empty if nothing."""
    if ended.code < 0:
        return f"ended by signal {-ended.code} after {ended.seconds:.1f} s of computing"
    if ended.code not in (0, 2, 3, 4, 5, 6, line.code):
        return f"exit code {ended.code}: {ended.err[-600:]}"
    if "Traceback" in ended.err:
        return f"traceback: {ended.err[-600:]}"
    strange = CONTROL.search(ended.out) or CONTROL.search(ended.err)
    if strange:
        return f"prints {strange.group()!r} as it is"
    lines = ended.err.splitlines()
    refused = ended.code not in (0, WAITING)
    if refused and not (1 <= len(lines) <= 2 and lines[0].startswith("fedsynth: ")):
        return f"{len(lines)} lines: {ended.err[:600]}"
    if any(len(text) > 2000 for text in lines):
        return f"a line of {max(map(len, lines))} characters"
    if ended.seconds > SECONDS:
        return f"{ended.seconds:.1f} s of computing"
    if ended.grown > MEMORY:
        return f"{ended.grown >> 20} MB"
    changed = [name for name in before.keys() | after.keys() if before.get(name, 0) != after.get(name, 0)]
    lost = [name for name in changed if name not in line.leaves and not name.endswith(".lock")]
    if refused and lost:
        return f"refused, but changed {sorted(lost)[:3]}"
    return ""


@pytest.fixture
def complaints(whole, command, tmp_path):
    """Run a line with each of these hostile files in the place of an input; returns what was wrong."""

    def find(name, place, cases):
        line, folder, found = LINES[name], tmp_path / "world", []
        for what, put in cases:
            if not folder.exists():
                shutil.copytree(whole, folder, symlinks=True)
            put_at = folder / place
            put(put_at)
            before = state(folder)
            wrong = complaint(line, command(folder, line.split()), before, state(folder))
            if wrong:
                found.append(f"{what}: {wrong}")
            restore(whole, folder, put_at, before)
        return found

    return find


def restore(whole, folder, place, before):
    """The hostile file away; all anew if the command wrote something."""
    if state(folder) != before:
        shutil.rmtree(folder)
        return
    with contextlib.suppress(FileNotFoundError):
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
        else:
            place.unlink()
    shutil.copy2(whole / place.relative_to(folder), place)


def groups(files, name, path):
    """The hostile files for a place; pipes and devices are for lines that read files."""
    return itertools.islice(files.hostile(path), 1 if LINES[name].streams else 0, None)


@pytest.mark.parametrize("name", LINES)
def test_a_line_succeeds_on_whole_files(whole, command, tmp_path, name):
    """Else what it says of hostile ones would mean little."""
    shutil.copytree(whole, tmp_path / "world", symlinks=True)
    ended = command(tmp_path / "world", LINES[name].split())
    assert ended.code == LINES[name].code, ended.err


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_a_few_hostile_files_in_each_place(whole, files, complaints, name, place):
    rng, drawn = random.Random(f"{name} {place}"), []
    for group in map(list, groups(files, name, whole / place)):
        drawn += rng.sample(group, min(len(group), rng.randrange(2)))
    found = complaints(name, place, drawn)
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("name", "place"), PLACES)
def test_all_hostile_files_in_each_place(whole, files, complaints, name, place):
    found = complaints(name, place, itertools.chain(*groups(files, name, whole / place)))
    assert not found, f"{len(found)}: " + "\n".join(found[:20])


def test_every_command_is_among_the_lines():
    # Those run until they are stopped, or start Flower's engine: tests/federate holds hostile parties against them.
    running = ("federate superlink", "federate supernode", "federate simulate")
    assert not all_commands.missing([line.words for line in LINES.values()], running)
