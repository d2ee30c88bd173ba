"""The processes of a federation: what they are told, whom they talk to, which app they run, how they end."""

import contextlib
import json
import os
import sqlite3
import stat
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stages.federate.app_folder import write_app

TOLD = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}

OURS = ("FLWR_HOME", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL")

ROGUE_SERVER = """
    from flwr.app import Message, RecordDict
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid, context):
        nodes = list(grid.get_node_ids())
        messages = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in nodes]
        grid.push_messages(messages)
        import time
        time.sleep(120)
"""

ROGUE_CLIENT = """
    import os, signal
    from pathlib import Path
    from flwr.app import Message, RecordDict
    from flwr.clientapp import ClientApp

    found = []
    for what, attempt in TRIES.items():
        try:
            eval(attempt)
            found.append(f"{what}: done")
        except OSError as error:
            found.append(f"{what}: {error.strerror}")
    (Path(os.environ["FLWR_HOME"]) / "found").write_text(str(found))
    app = ClientApp()

    @app.query()
    def query(message, context):
        return Message(RecordDict(), reply_to=message)
"""


@pytest.fixture(scope="module")
def running(linked, small_terms):
    """The SuperLink and the node of `a`, the only one that it knows."""
    linked.app = linked.agree(small_terms)
    linked.start_nodes("a")
    yield linked
    if "a" in linked.services:
        linked.stop("a")


def processes(network, network_module, name):
    """Flower's processes of a service: the one that was started, and its own."""
    first = network.services[name].about["pid"]
    return [first, *network_module.descendants(first)]


def open_to_us(pid):
    """Flower's SuperExec hides itself from everybody but root."""
    return os.access(f"/proc/{pid}/environ", os.R_OK)


def until(ready, seconds=240):
    began = time.monotonic()
    while not ready():
        assert time.monotonic() < began + seconds
        time.sleep(0.1)


def remote_addresses(pids):
    """Where the processes' TCP connections lead, by the kernel's tables; IPv4 and IPv6."""
    sockets = set()
    for link in [link for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir()]:
        with contextlib.suppress(FileNotFoundError):  # closed by now
            sockets.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[9] in sockets:
                found.add(fields[2].partition(":")[0])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["superlink", "a"])
def test_telemetry_is_off_and_nothing_but_loopback_is_contacted(running, network_module, name):
    until(lambda: len(processes(running, network_module, name)) > 1)  # the SuperExec
    pids = [pid for pid in processes(running, network_module, name) if open_to_us(pid)]
    assert running.services[name].about["pid"] in pids
    for pid in pids:
        environment = network_module.environment_of(pid)
        assert {key: environment[key] for key in TOLD} == TOLD
        assert Path(environment["FLWR_HOME"]).is_relative_to(running.folder)
        assert {key for key in environment if key.startswith("FLWR_")} == {*TOLD, *OURS}
    nobody, loopback = "00000000", "0100007F"
    assert loopback in remote_addresses(pids) <= {nobody, loopback}


def test_what_flower_keeps_is_for_no_other_users_eyes(running):
    for place in (running.server_home / "server", running.homes["a"] / "clients/a"):
        assert stat.S_IMODE((place / "private/.flwr").stat().st_mode) == 0o700


def test_the_superlink_never_learns_where_a_client_keeps_its_files(running):
    with contextlib.closing(sqlite3.connect(running.server_home / "server/private/.flwr/state.db")) as database:
        kept = "\n".join(database.iterdump()).lower()
    assert str(running.homes["a"]).lower() not in kept
    assert str(running.homes["a"]).encode().hex() not in kept
    assert b"-----BEGIN PUBLIC KEY-----".hex() in kept  # of the node: what it did tell is found


def test_a_wrong_certificate_is_refused_by_all(fedsynth, running, certificates, tmp_path):
    strangers = ["--root-certificates", certificates.Authority(tmp_path, "others").certificate]
    for words in (
        running.supernode_words("b"),
        ["register", running.keys["b"].with_name("b.pub"), "--name", "b", *running.link_options],
        ["run", running.app, "--home", running.server_home, *running.link_options],
    ):
        code, _, err = fedsynth("federate", *words, *strangers)
        assert code == 5
        assert "not vouched for" in err


def test_a_node_whose_key_is_unknown_is_turned_away(fedsynth, running):
    code, out, err = fedsynth("federate", *running.supernode_words("b"), "--quiet")
    assert (code, out) == (5, "")
    assert "does not know this node's key" in err


def test_a_key_is_registered_once(fedsynth, running):
    words = ["register", running.keys["a"].with_name("a.pub"), "--name", "a", *running.link_options]
    code, _, err = fedsynth("federate", *words)
    assert code == 3
    assert "already in use" in err


def test_a_home_has_one_process(fedsynth, running, network_module):
    code, _, err = fedsynth("federate", *running.supernode_words("a"), "--quiet")
    assert (code, "a SuperNode (process" in err) == (3, True)
    port = network_module.free_port()
    code, _, err = fedsynth("federate", *running.superlink_words(), "--port", port, "--quiet")
    assert (code, "a SuperLink (process" in err) == (3, True)


def test_whatever_app_a_node_is_handed_reaches_no_file_of_the_home(running, tmp_path):
    """Who reaches a SuperLink's port can hand out code: it runs where no data, no key and no process of ours is."""
    home = running.homes["a"] / "clients/a/private"
    worker = f"Path({str(home / '.flwr/worker.sock')!r})"
    tries = {
        "read the key": f"Path({str(home / 'client.key')!r}).read_bytes()",
        "list the home": f"list(Path({str(home)!r}).iterdir())",
        "write into the outbox": f"Path({str(home.parent / 'outbox')!r}).mkdir()",
        "write elsewhere": f"Path({str(tmp_path / 'mark')!r}).write_text('x')",
        "stop the node's command": f"os.kill({running.services['a'].process.pid}, signal.SIGTERM)",
        "see the worker": f"{worker}.stat()",
    }
    package = running.folder / "rogue/fedsynth_app"
    package.mkdir(parents=True)
    for file in running.app.rglob("*"):
        if file.is_file():
            (running.folder / "rogue" / file.relative_to(running.app)).write_bytes(file.read_bytes())
    (package / "server.py").write_text(textwrap.dedent(ROGUE_SERVER))
    (package / "client.py").write_text(textwrap.dedent(ROGUE_CLIENT).replace("TRIES", repr(tries)))
    running.begin_run(running.folder / "rogue")
    found = home / ".flwr/found"
    until(found.exists)
    refused = dict.fromkeys(tries, "Permission denied") | {
        "see the worker": "done", "stop the node's command": "Operation not permitted"
    }  # fmt: skip
    assert found.read_text() == str([f"{what}: {said}" for what, said in refused.items()])
    assert running.stop("run") == 130
    assert "ControlServicer.StopRun" in running.log("superlink")
    assert running.services["a"].process.poll() is None  # it goes on for the next run


@pytest.mark.slow
def test_a_run_that_fails_ends_with_the_servers_words_and_exit_code(running, network_module, small_terms):
    """Other terms than those in the server's home. Without --home only the run's log tells."""
    other = running.folder / "other"
    write_app(replace(small_terms, seed=8), other)
    done = network_module.command("run", other, *running.link_options)
    assert done.returncode == 3, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"fedsynth: the app's terms are not those of {running.server_home / 'federation.yaml'}")


@pytest.mark.slow
def test_a_superlink_that_goes_away_under_a_run(running):
    service = running.begin_run(running.app)
    until(lambda: "Start `flwr-serverapp` process" in running.log("run"))
    running.kill("superlink")
    assert service.process.wait(60) == 3
    assert f"no SuperLink at {running.address}" in running.log("run")
    running.kill("run")
    running.start_link()


@pytest.mark.slow
def test_a_node_whose_machine_went_dark_waits_for_its_seat(running):
    """The SuperLink takes it for present for up to a minute more, and turns a new process away until then."""
    running.kill("a")
    (service,) = running.start_nodes("a")
    assert json.loads(json.dumps(service.about))["client"] == "a"


def test_a_service_ends_with_its_children(running, network_module):
    pids = processes(running, network_module, "a")
    assert running.stop("a") == 130
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), seconds=20)
