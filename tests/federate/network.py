"""A federation of real processes on loopback: a SuperLink and SuperNodes, each started by its own command."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from artifacts.identity import keys
from artifacts.identity.roster import write_identity, write_roster
from artifacts.places import RunFolder
from stages.keygen import keygen
from stages.run_folder.files import ROSTER

FEDSYNTH = [sys.executable, "-c", "from fedsynth_cli.app import main; main()"]
_SECONDS = 240


class Network:
    """Homes under `folder`: `server` and one for each client. Nothing is started before it is asked for.

    `with Network(…) as network:` ends every process that was started, whatever happened.
    """

    def __init__(self, folder, certificates, clients):
        self.folder, self.clients = folder, tuple(clients)
        self.authority = certificates.Authority(folder / "ca")
        self.certificate, self.certificate_key = self.authority.issue("server")
        self.keys = {client: certificates.node_key(folder / "keys", client)[0] for client in self.clients}
        self.server_home = folder / "server"
        self.homes = {client: folder / client for client in self.clients}
        for home in (self.server_home, *self.homes.values()):
            home.mkdir()
        self._introduce()
        self.port = free_port()
        self.services = {}

    def _introduce(self):
        """A key for everybody, and the roster of all of them in every home."""
        everybody = {"server": self.server_home, **self.homes}
        identities = []
        for name, home in everybody.items():
            place = RunFolder(home).server if name == "server" else RunFolder(home).client(name)
            keygen(place.key)
            identities.append(self.folder / f"{name}.json")
            write_identity(identities[-1], name, keys.read(place.key), force=False)
        write_roster(self.folder / "roster.json", identities, "network", force=False)
        for home in everybody.values():
            (home / ROSTER).parent.mkdir()
            shutil.copy(self.folder / "roster.json", home / ROSTER)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            for name in list(self.services):
                self.kill(name)
        finally:
            for pid in _of_folder(self.folder):
                _kill(pid)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def link_options(self):
        """For `federate register`, `run` and `supernode`."""
        return ["--superlink", self.address, "--root-certificates", self.authority.certificate]

    def agree(self, terms):
        """Put the terms into every home; returns the app folder, written anew."""
        from stages.federate.app_folder import write_app

        for home in (self.server_home, *self.homes.values()):
            (home / "federation.yaml").write_text(terms.to_yaml())
        app = self.folder / f"app-{terms.digest[:8]}"
        write_app(terms, app, force=True)
        return app

    def superlink_words(self):
        pair = ["--certificate", self.certificate, "--key", self.certificate_key, "--ca", self.authority.certificate]
        return ["superlink", "--home", self.server_home, "--port", self.port, *pair]

    def supernode_words(self, client, *more):
        own = ["--home", self.homes[client], "--client", client, "--key", self.keys[client]]
        return ["supernode", *own, *self.link_options, *more]

    def start_link(self):
        return self._start("superlink", self.superlink_words())

    def register(self, *clients):
        """Let the nodes of these clients in, or of all."""
        from stages.federate.link import Link
        from stages.federate.submit import register

        for client in clients or self.clients:
            public = self.keys[client].with_name(f"{client}.pub")
            register(public, client, link=Link(self.address, self.authority.certificate))

    def start_nodes(self, *clients):
        """Start the SuperNodes of these clients, or of all, side by side."""
        chosen = clients or self.clients
        begun = [self._begin(client, self.supernode_words(client)) for client in chosen]
        return [service.wait_until_up() for service in begun]

    def run(self, app, *more, timeout=240):
        """`federate run` to its end; the finished process with its output."""
        return command("run", app, "--home", self.server_home, *self.link_options, *more, timeout=timeout)

    def begin_run(self, app, *more):
        """`federate run` in the background."""
        return self._begin("run", ["run", app, "--home", self.server_home, *self.link_options, *more])

    def kill(self, name):
        """End a service and all its children at once, as a power cut would."""
        service = self.services.pop(name)
        for pid in (service.process.pid, *descendants(service.process.pid)):
            _kill(pid)
        service.close()

    def stop(self, name):
        """Ask a service to end; its exit code."""
        service = self.services.pop(name)
        service.process.send_signal(signal.SIGTERM)
        code = service.process.wait(30)
        service.close()
        return code

    def log(self, name):
        """What the service has logged since it was first started."""
        return (self.folder / f"{name}.log").read_text()

    def _begin(self, name, words):
        assert name not in self.services, f"{name} runs already"
        self.services[name] = Service(words, self.folder / f"{name}.log")
        return self.services[name]

    def _start(self, name, words):
        return self._begin(name, words).wait_until_up()


class Service:
    """A command that runs until it is stopped. `about` is what it said once it was up."""

    def __init__(self, words, log):
        self._log = log
        with log.open("a") as errors:
            self.process = subprocess.Popen(
                [*FEDSYNTH, "federate", *map(str, words), "--json"], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.about = None

    def wait_until_up(self):
        until = time.monotonic() + _SECONDS
        while not select.select([self.process.stdout], [], [], 0.2)[0]:
            assert time.monotonic() < until, f"not up: {self._log.read_text()}"
        line = self.process.stdout.readline()
        assert line, f"ended: {self._log.read_text()}"
        self.about = json.loads(line)
        return self

    def close(self):
        self.process.wait(30)
        self.process.stdout.close()


def command(*words, timeout=120):
    """A `federate` command to its end."""
    line = [*FEDSYNTH, "federate", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def descendants(pid):
    """All processes below one, by /proc; those whose parent has ended are not among them."""
    children = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found, new = [], [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, [])]
        found += new
    return found


def environment_of(pid):
    """What a process was started with."""
    pairs = (item.partition("=") for item in Path(f"/proc/{pid}/environ").read_text().split("\0") if item)
    return {name: value for name, _, value in pairs}


def _of_folder(folder):
    """Processes of ours whose parent has ended: their environment names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            ours = f"FLWR_HOME={folder}".encode() in path.read_bytes()
        except OSError:
            continue
        if ours:
            found.append(int(path.parent.name))
    return found


def _kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
