"""A simulated federation taken apart: what each participant may hold, in a home of its own; and put together again."""

import hashlib
import shutil

from stages.federate.client import answer
from stages.federate.terms import FILE, agreed
from stages.recipes.files import PARTITION_RECORD, ROSTER
from stages.recipes.perform import perform
from stages.recipes.runner import begin


def prepared(recipe, folder, seed):
    """A run folder before its first round: data divided, keys made, identities and roster carried around."""
    for step in begin(recipe, folder, seed):
        if step.command in ("identity", "roster"):
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
    import json

    clients = tuple(sorted(json.loads((folder / PARTITION_RECORD).read_text())["clients"]))
    return agreed(recipe, clients, seed=seed, **{"wait": 120.0} | said)


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
    return {n: hashlib.sha256(p.read_bytes()).hexdigest() for n, p in sorted(kept.items()) if ".flwr" not in n}


class ByHand:
    """A channel without a network: whoever is asked answers at once. `absent` are away; `spoil` changes an answer."""

    def __init__(self, homes, absent=(), spoil=lambda task, reply: reply):
        self.homes, self.absent, self.spoil = homes, set(absent), spoil
        self.asked, self._replies = [], {}

    def present(self):
        return set(self.homes) - {"server"} - self.absent

    def ask(self, task):
        self.asked.append(task)
        ticket = str(len(self.asked))
        self._replies[ticket] = self.spoil(task, answer(task, self.homes[task.client], task.client))
        return ticket

    def answers(self, asked):
        return [(ticket, self._replies.pop(ticket)) for ticket in list(asked) if ticket in self._replies]
