"""FedAvg over a SuperLink and SuperNodes on loopback, TLS and node keys on, against `run` and against the bytes.

Seconds of a round are the time from one of the server's models to the next; those of a message, from its file's place
at one end to its place at the other, checks included. Bytes on the wire are all that goes between nodes and SuperLink
while the run lasts: TLS, Flower's envelopes, and its nodes' asking whether there is something to do. One turn, but
for the rounds.

Flower starts a process for every task, which imports Flower and nothing else; the work is done by workers that stay.
A SuperNode that finds no message looks again after three seconds: most of a short round. `run` has neither. At full
size a message of 500 MB is sent too, in pieces of 64 MB.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import process_tree
from counting_relay import Relay
from measuring import ROOT, Row, Setting, compared, megabytes, seconds, sync
from process_tree import Usage

sys.path.insert(0, str(ROOT / "tests" / "federate"))
import certificates
import homes
import network

from stages.recipes.recipe import Recipe, change, load_recipe
from stages.run_folder.files import message_file, model_file

TITLE = "Over a SuperLink and SuperNodes"
_SEED = 0
_SECONDS = 3600
_SIZES, _LARGE = (1_000_000, 50_000_000), 500_000_000


def measure(setting: Setting) -> Iterator[Row]:
    if not process_tree.THERE:
        return
    if setting.smoke:
        yield from _round(setting.folder / "round", clients=1, rounds=2)
        return
    yield from _round(setting.folder / "round", clients=2, rounds=6)
    for size in (*_SIZES, _LARGE) if setting.full else _SIZES:
        yield from _message(setting.folder / f"{size}", size)
        shutil.rmtree(setting.folder / f"{size}")


@dataclass(frozen=True)
class _Run:
    """A federation that has ended: its homes, what its processes took, and what went to the SuperLink and back."""

    homes: Mapping[str, Path]
    usage: Usage
    up: int
    down: int


def _round(folder: Path, clients: int, rounds: int) -> Iterator[Row]:
    chosen = f"partition.clients={clients}"
    recipe = change(load_recipe("fedavg"), [chosen], rounds)
    begun = homes.prepared(recipe, folder / "begun", _SEED)
    by_run = folder / "run"
    shutil.copytree(begun, by_run)
    ours = _federation(recipe, begun, folder)
    command = [*network.FEDSYNTH, "run", "fedavg", "--set", chosen, "--rounds", str(rounds), "--quiet"]
    theirs = process_tree.run([*command, "--workers", str(clients), "-o", by_run], folder / "log")
    assert _files(ours.homes) == homes.digests(by_run), "the files are not those of run"
    against = f"the same by run --workers {clients}"
    yield compared(
        f"a round, clients: {clients}", against, _rounds(ours.homes["server"], rounds), _rounds(by_run, rounds)
    )
    yield _row(f"{rounds} rounds: all processes' processor time", against, ours.usage.processor, theirs.processor)
    yield _row(f"{rounds} rounds: peak memory of all", against, ours.usage.peak, theirs.peak, megabytes)
    down, up = _sizes(ours.homes, to="clients"), _sizes(ours.homes, to="server")
    yield _row(f"{rounds} rounds: bytes to the clients", "their files", ours.down, down, _bytes)
    yield _row(f"{rounds} rounds: bytes to the server", "its files", ours.up, up, _bytes)


def _message(folder: Path, size: int) -> Iterator[Row]:
    """One client, one round, a network with two hidden layers whose weights have that size."""
    width = round(math.sqrt(size / 4 + 38**2) - 38)  # width² + 76 width + 10 weights of four bytes
    net = ("init-model.arch=mlp", f"init-model.width={width}", "init-model.depth=2")
    work = ("train-client.local_epochs=null", "train-client.local_steps=1", "partition.clients=1")
    recipe = change(load_recipe("fedavg"), [*net, *work], 1)
    begun = homes.prepared(recipe, folder / "begun", _SEED)
    run = _federation(recipe, begun, folder)
    server, client = run.homes["server"], run.homes["00"]
    what = f"a message of {megabytes(size)}"
    for way, name, source, target, wire in (
        ("down", model_file(0), server, client, run.down),
        ("up", message_file("00", 1), client, server, run.up),
    ):
        there, here = target / name, source / name
        taken = there.stat().st_ctime - here.stat().st_ctime
        bare = statistics.median(_bare(there, folder / "bare") for _ in range(3))
        yield _row(f"{what}, {way}", "write, SHA-256, fsync", taken, bare)
        yield _row(f"{what}, {way}: on the wire", "the file", wire, there.stat().st_size, _bytes)
    yield Row(what=f"{what}: processor time", ours=seconds(run.usage.processor))
    yield Row(what=f"{what}: peak memory of all", ours=megabytes(run.usage.peak))


def _federation(recipe: Recipe, begun: Path, folder: Path) -> _Run:
    """Take the folder apart into homes, start everything, run, stop everything."""
    terms = homes.terms_for(recipe, begun, seed=_SEED, wait=float(_SECONDS), most_bytes=2**30)
    (folder / "net").mkdir()
    with _Network(folder / "net", certificates, terms.clients) as net, Relay(net.port) as relay:
        for name, home in homes.split(begun, terms, folder / "split").items():
            shutil.copytree(home, net.homes.get(name, net.server_home), dirs_exist_ok=True)
        app = net.agree(terms)
        net.start_link()
        net.register()
        net.through = relay.address
        net.start_nodes()
        up, down = relay.counted()
        with process_tree.watched(os.getpid()) as usage:
            done = net.run(app, timeout=_SECONDS)
        counted = relay.counted()
        assert done.returncode == 0, done.stderr
        return _Run({"server": net.server_home, **net.homes}, usage, counted[0] - up, counted[1] - down)


class _Network(network.Network):  # type: ignore[misc]
    """Its nodes reach the SuperLink through a relay."""

    through = ""

    def supernode_words(self, client: str, *more: Any) -> list[Any]:
        return [*super().supernode_words(client, *more), "--superlink", self.through]


def _rounds(home: Path, rounds: int) -> list[float]:
    """Seconds from each of the server's models to the next, the first round not counted."""
    times = [(home / model_file(number)).stat().st_ctime for number in range(1, rounds + 1)]
    return [after - before for before, after in itertools.pairwise(times)]


def _files(of: Mapping[str, Path]) -> dict[str, str]:
    return {name: digest for name, digest in homes.united(of).items() if "federat" not in name}


def _sizes(of: Mapping[str, Path], *, to: str) -> int:
    """What was received, by the copies at the receiving end."""
    if to == "server":
        paths = list(of["server"].glob("clients/*/outbox/*"))
    else:
        paths = [path for name, home in of.items() if name != "server" for path in _received(home)]
    return sum(path.stat().st_size for path in paths)


def _received(home: Path) -> list[Path]:
    return [*home.glob("server/outbox/*"), *home.glob("public/model-*")]


def _bare(source: Path, folder: Path) -> float:
    """The bytes themselves: written, hashed, durable."""
    data = source.read_bytes()
    folder.mkdir(exist_ok=True)
    start = time.perf_counter()
    copy = folder / "copy"
    copy.write_bytes(data)
    hashlib.sha256(data)
    sync(copy)
    sync(folder)
    return time.perf_counter() - start


def _row(what: str, against: str, ours: float, theirs: float, spell: Any = seconds) -> Row:
    return Row(what=what, against=against, ours=spell(ours), theirs=spell(theirs), ratio=ours / theirs)


def _bytes(value: float) -> str:
    return f"{value / 1e6:,.2f} MB" if value >= 1e5 else f"{value / 1e3:.1f} kB"
