"""A simulated federation taken apart: what each participant may hold, in a home of its own; and put together again."""

import dataclasses
import hashlib
import json
import shutil
import time

import pytest

from artifacts.digests import sha256_hex
from artifacts.formats import tensors_file
from stages.federate.client import answer
from stages.federate.parcels import pack
from stages.federate.server import serve
from stages.federate.terms import FILE, agreed
from stages.recipes.perform import perform
from stages.recipes.runner import begin, clients_of
from stages.recipes.secagg_steps import identity_steps
from stages.run_folder.files import PARTITION_RECORD, ROSTER


def prepared(recipe, folder, seed):
    """A run folder before its first round: data divided, keys made, identities and roster carried around."""
    begin(recipe, folder, seed)
    for step in identity_steps(clients_of(folder)):
        perform(step, folder)
    return folder


def split(folder, terms, into):
    """Homes by participant: the server's, and each client's with its private folder."""
    homes = {}
    for name in ("server", *terms.participants):
        home = homes[name] = into / name
        (home / "public").mkdir(parents=True)
        (home / FILE).write_text(terms.to_yaml())
        if (folder / ROSTER).exists():
            shutil.copy(folder / ROSTER, home / ROSTER)
        if name == "server":
            shutil.copy(folder / "public/test.parquet", home / "public/test.parquet")
            shutil.copytree(folder / "server", home / "server")
        else:
            shutil.copytree(folder / "clients" / name, home / "clients" / name)
    return homes


def terms_for(recipe, folder, *, seed, **said):
    clients = tuple(sorted(json.loads((folder / PARTITION_RECORD).read_text())["clients"]))
    return agreed(recipe, clients, seed=seed, **{"wait": 120.0, "most_bytes": 2**28} | said)


def united(homes):
    """Every file by its digest; where two have it, it is the same."""
    found = {}
    for home in homes.values():
        for name, digest in digests(home).items():
            assert found.setdefault(name, digest) == digest, name
    return found


def digests(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    names = {path.relative_to(folder).as_posix(): path for path in files}
    kept = {n: p for n, p in names.items() if not n.startswith(("simulation/", ".")) and n != FILE}
    carried = (".flwr", "/private/parcels/", "/private/step.json")
    return {
        n: hashlib.sha256(p.read_bytes()).hexdigest()
        for n, p in sorted(kept.items())
        if not any(part in n for part in carried)
    }


class ByHand:
    """A channel without a network: whoever is asked answers at once. `absent` are away; `spoil` changes an answer."""

    def __init__(self, homes, absent=(), spoil=lambda task, reply: reply):
        self.homes, self.absent, self.spoil = homes, set(absent), spoil
        self.asked, self._replies = [], {}

    stays = True

    def pause(self):
        time.sleep(0.01)

    def present(self):
        return set(self.homes) - {"server"} - self.absent

    def ask(self, task):
        self.asked.append(task)
        ticket = str(len(self.asked))
        self._replies[ticket] = self.spoil(task, answer(task, self.homes[task.client], task.client))
        return ticket

    def answers(self, asked):
        return [(ticket, self._replies.pop(ticket)) for ticket in list(asked) if ticket in self._replies]


class Killed(Exception):
    """The server's end, in the middle of something."""


def served(terms, split, channel):
    """What the server comes back with, and what it said."""
    said = []
    return serve(terms, split["server"], channel, log=said.append), said


def messages(split, round):
    """Whose messages of a round the server has."""
    found = split["server"].glob(f"clients/*/outbox/message-{round:04}.safetensors")
    return sorted(path.parent.parent.name for path in found)


def asked_until(stop, terms, split):
    """The first task of which `stop` is true, asked of nobody: the server dies before."""
    found = []

    def spoil(task, reply):
        if found:
            raise Killed
        return reply

    channel = ByHand(split, spoil=spoil)
    ask = channel.ask

    def watched(task):
        if stop(task):
            found.append(task)
            raise Killed
        return ask(task)

    channel.ask = watched
    with pytest.raises(Killed):
        served(terms, split, channel)
    return found[0]


def first_task(terms, split, client="00"):
    """What the server asks of this client before anything else."""
    return asked_until(lambda task: task.client == client, terms, split)


def with_data(parcel, data):
    """The parcel with other bytes, and a label that fits them."""
    return dataclasses.replace(parcel, data=data, size=len(data), sha256=sha256_hex(data))


def rewritten(home, name, folder, **changed):
    """A parcel of a file like one of this home, whose metadata say something else."""
    found = tensors_file.read(home / name)
    path = folder / name
    tensors_file.write(path, found.tensors, dataclasses.replace(found.metadata, **changed), force=True)
    (parcel,) = pack(folder, [name])
    return parcel
