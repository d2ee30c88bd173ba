"""`run` into a store: the bytes of a local run, whatever happens on the way; no key, and no file before its entry."""

import json
import subprocess
import sys
import threading

import pytest

from artifacts.errors import InputError
from fedsynth_cli.urls import run_folder
from stages.execution.progress import silent
from stages.recipes.recipe import change, load_recipe

SEED, ROUNDS = 3, 1
SETTINGS = [
    "partition.clients=2", "train-client.local_epochs=1", "receipts=true", "init-model.arch=softmax",
    "init-model.width=null", "init-model.depth=null",
]  # fmt: skip


@pytest.fixture
def run_into(run_on_one_worker):
    """Run into a URL or a folder, on this process."""

    def run(out):
        with run_folder(str(out), secure=False) as (folder, passed):
            chosen = change(load_recipe("fedavg"), SETTINGS, ROUNDS)
            return run_on_one_worker(chosen, folder, seed=SEED, report=passed(silent))

    return run


@pytest.fixture(scope="module")
def local_folder(tmp_path_factory, run_on_one_worker):
    folder = tmp_path_factory.mktemp("local") / "run"
    run_on_one_worker(change(load_recipe("fedavg"), SETTINGS, ROUNDS), folder, seed=SEED)
    return folder


@pytest.fixture(scope="module")
def local(local_folder):
    """The same run in a folder, without its keys: name → bytes."""
    return {name: data for name, data in files(local_folder).items() if not name.endswith(".key")}


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ledger_of(name):
    owner = name.partition("/outbox/")[0]
    return f"{owner}/private/egress.jsonl" if owner.endswith("server") else f"{owner}/egress.jsonl"


def unrecorded(objects):
    """The files of outboxes that their ledgers do not know."""
    missing = []
    for name in objects:
        if "/outbox/" in name:
            entries = [json.loads(line)["file"] for line in objects.get(ledger_of(name), b"").splitlines()]
            missing += [name] if name.rpartition("/")[2] not in entries else []
    return missing


def forbid(number, under, server):
    """A fault: the `number`-th object below a place cannot be put, nor any after it."""
    seen = []

    def fault(environ, start_response):
        if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].startswith(under):
            seen.append(environ["PATH_INFO"])
            if len(seen) >= number:
                return server.denied(environ, start_response)
        return None

    return fault


def test_the_store_holds_the_bytes_of_a_local_run_and_no_key(run_into, local, server, objects, fedsynth, cache):
    without_entry = []

    def watch(environ, start_response):
        name = environ["PATH_INFO"].removeprefix("/bucket/whole/")
        if environ["REQUEST_METHOD"] == "PUT" and "/outbox/" in name:
            there = {ledger_of(name): objects(f"whole/{ledger_of(name)}").get("", b""), name: b""}
            without_entry.extend(unrecorded(there))

    with server.failing(watch):
        summary = run_into("s3://bucket/whole")
    assert objects("whole/") == local
    assert without_entry == []
    assert any("/outbox/" in name for name in local)
    assert summary["steps_kept"] == 0
    assert list(cache.iterdir()) == []

    code, out, err = fedsynth("audit", "s3://bucket/whole")
    assert code == 0, err
    assert "no key here" not in out, "a simulation's keys come again from its seed"

    before = len(server.puts("/bucket/whole"))
    assert run_into("s3://bucket/whole")["steps_run"] == 0
    assert server.puts("/bucket/whole")[before:] == ["/simulation/recipe.yaml"]


@pytest.mark.slow
def test_a_store_that_fails_half_way_is_gone_on_with_elsewhere(run_into, local, server, objects, monkeypatch, tmp_path):
    fault = forbid(len(local) // 2, "/bucket/fails/", server)
    with server.failing(fault), pytest.raises(InputError, match="access denied"):
        run_into("s3://bucket/fails")
    half = objects("fails/")
    assert 0 < len(half) < len(local)
    assert unrecorded(half) == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    run_into("s3://bucket/fails")
    assert objects("fails/") == local


def killed_at(name, place, code, arguments, server):
    """Start a process, and kill it while the server has its request to put `name`, but not answered yet."""
    reached, killed = threading.Event(), threading.Event()

    def stall(environ, start_response):
        if environ["REQUEST_METHOD"] != "PUT" or environ["PATH_INFO"] != f"/bucket/{place}/{name}":
            return None
        reached.set()
        killed.wait(60)
        return server.denied(environ, start_response)

    with server.failing(stall):
        process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stderr=subprocess.PIPE)
        assert reached.wait(120), process.communicate(timeout=5)[1]
        process.kill()
        process.communicate()
        killed.set()


MESSAGE = "clients/01/outbox/message-0001.safetensors"
# A whole run appears in the folder at once, so that the process need not import torch; it is copied up as any other.
COPIED = """
import shutil, sys
from fedsynth_cli.urls import run_folder
with run_folder(sys.argv[2], secure=False) as (folder, passed):
    shutil.copytree(sys.argv[1], folder, dirs_exist_ok=True)
"""


def check_killed(place, run_into, objects, local):
    half = objects(f"{place}/")
    assert MESSAGE not in half
    assert b"message-0001" in half["clients/01/egress.jsonl"], "the entry comes first"
    assert unrecorded(half) == []
    run_into(f"s3://bucket/{place}")
    assert objects(f"{place}/") == local


def test_killed_while_it_copies_it_goes_on(run_into, local, local_folder, server, objects):
    killed_at(MESSAGE, "copied", COPIED, [local_folder, "s3://bucket/copied"], server)
    check_killed("copied", run_into, objects, local)


@pytest.mark.slow
def test_killed_while_it_runs_it_goes_on(run_into, local, server, objects):
    words = ["run", "fedavg", "-q", "--workers", "1", "--seed", SEED, "--rounds", ROUNDS, "-o", "s3://bucket/killed"]
    words += [word for setting in SETTINGS for word in ("--set", setting)]
    killed_at(MESSAGE, "killed", "from fedsynth_cli.app import main; main()", words, server)
    check_killed("killed", run_into, objects, local)


@pytest.fixture
def stored(local, store):
    """A finished run, put there by another tool."""
    for name, data in local.items():
        store.put_object(Bucket="bucket", Key=f"stored/{name}", Body=data)
    return "s3://bucket/stored"


def test_two_at_once_are_noticed(run_into, store, stored, local, objects):
    name = "clients/00/egress.jsonl"
    with pytest.raises(InputError, match="changed by somebody else"), run_folder(stored, secure=False) as (folder, _):
        store.put_object(Bucket="bucket", Key=f"stored/{name}", Body=local[name] + b"theirs\n")
        (folder / name).write_bytes(local[name] + b"ours\n")
    assert objects("stored/")[name] == local[name] + b"theirs\n"


def test_another_run_in_the_same_place_is_refused(fedsynth, objects, local, stored):
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    code, _, err = fedsynth("run", "fedavg", *words, "--rounds", ROUNDS, "--seed", 4, "-o", stored)
    assert code == 2
    assert "s3://bucket/stored holds a run with other parameters" in err
    assert objects("stored/") == local


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "secure=true", "-o", "s3://bucket/secure"], "secure aggregation makes keys"),
        (["-o", "s3://bucket/clients/00/outbox/run"], "no outbox by URL"),
        (["--set", "partition.source=s3://bucket/x.parquet?region=r", "-o", "s3://bucket/options"], "no options"),
        (["--set", "partition.source=s3://me:word@bucket/x.parquet", "-o", "s3://bucket/user"], "no credentials"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(fedsynth, objects, words, said):
    code, _, err = fedsynth("run", "fedavg", *words)
    assert code == 2
    assert said in err
    assert "word" not in err
    assert objects(words[-1].removeprefix("s3://bucket/")) == {}


def test_partition_writes_a_run_folder_without_keys(fedsynth, objects, tmp_path):
    words = ["partition", "digits", "--clients", 2, "--seed", 5, "-o"]
    for out in (tmp_path / "run", "s3://bucket/divided"):
        code, _, err = fedsynth(*words, out)
        assert code == 0, err
    expected = {name: data for name, data in files(tmp_path / "run").items() if not name.endswith(".key")}
    assert objects("divided/") == expected
    code, _, err = fedsynth(*words, "s3://bucket/divided", "--force")
    assert code == 3
    assert "something in it" in err
