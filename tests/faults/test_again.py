"""The same command once more: nothing to do, and it says so. Another one under the same name is refused, uncharged."""

import errno
import os
import shutil

import all_commands
import pytest

from artifacts.identity import keys
from artifacts.ledgers import spend
from stages.keygen import keygen

_TRAIN = ["train-client", "public/model-0000.safetensors", "clients/00/private/data.parquet"]
_OUT = ["-o", "clients/00/private/new.safetensors"]
_DP = ["--local-steps", "2", "--noise-multiplier", "1", "--sampling-rate", "0.5", "--batch-size", "8"]


@pytest.fixture
def home(small_worlds, tmp_path):
    folder = tmp_path / "home"
    shutil.copytree(small_worlds / "federation", folder)
    return folder


def test_the_same_again_changes_nothing_and_says_so(bench, small_worlds, injector, command):
    trials = bench(command, small_worlds)
    code, _, said = injector.call(trials.folder, trials.case.words)
    assert code == 0 and injector.snapshot(trials.folder) == trials.after
    assert ("is there already" in said) == ("--force" not in trials.case.words)


def test_another_computation_under_the_name_is_refused_before_it_is_charged(home, injector):
    injector.succeed(home, [*_TRAIN, *_DP, *_OUT])
    before = injector.snapshot(home)
    code, _, said = injector.call(home, [*_TRAIN, *_DP, "--seed", "1", *_OUT])
    assert code == 3 and "new.safetensors already exists. Add --force" in said
    assert injector.snapshot(home) == before, "the ledger of what was spent among them"


def test_another_lineage_is_never_put_beside_a_model(home, injector):
    line = ["aggregate", "public/model-0000.safetensors", "clients/00/outbox/message-0001.safetensors"]
    out = ["-o", "server/outbox/new.safetensors"]
    injector.succeed(home, [*line, *out])
    before = injector.snapshot(home)
    code, _, said = injector.call(home, [*line, "clients/01/outbox/message-0001.safetensors", *out])
    assert code == 3 and "already exists" in said and injector.snapshot(home) == before


def test_another_measurement_does_not_touch_the_curve(home, injector):
    line = ["evaluate", "public/model-0000.safetensors", "public/test.parquet", "--curve", "c.csv", "-o", "e.json"]
    injector.succeed(home, line)
    (home / "e.json").write_text("{}")
    (home / "c.csv").write_text("round,accuracy,loss\n")
    before = injector.snapshot(home)
    code, _, said = injector.call(home, line)
    assert code == 3 and "e.json already exists" in said and injector.snapshot(home) == before


def test_a_key_that_was_charged_is_left_as_it_is_and_force_is_not_suggested(tmp_path, injector):
    path = tmp_path / "client.key"
    keygen(path)
    key = path.read_bytes()
    code, _, said = injector.call(tmp_path, ["keygen", "-o", "client.key"])
    assert code == 0 and "client.key is there already" in said and path.read_bytes() == key
    with spend.locked(spend.beside(path), keys.read(path)) as ledger:
        ledger.reserve(stage="x", context="a" * 64, data=[], events=[])
    book = spend.beside(path).read_bytes()
    code, _, said = injector.call(tmp_path, ["keygen", "-o", "client.key"])
    assert code == 3 and "already holds a key, which was left as it is" in said and "--force" not in said
    assert path.read_bytes() == key and spend.beside(path).read_bytes() == book and keys.read(path)


def test_a_full_folder_for_temporary_files_is_reported(home, injector, monkeypatch):
    """What torch says as it is imported, from a worker too."""
    full = FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    def import_torch(*_arguments, **_options):
        raise full

    monkeypatch.setattr("stages.execution.torch_setup.set_up", import_torch)
    line = ["run", "fedavg", "--rounds", "1", "--workers", "1", "--set", "partition.clients=2", "-o", "new"]
    for words in ([*_TRAIN, *_OUT], line):
        code, _, said = injector.call(home, words)
        assert (
            code == 3 and said.startswith("fedsynth: No usable temporary directory found") and "\n" not in said.strip()
        )


def test_a_folder_that_cannot_be_synced_is_an_error(tmp_path, injector, monkeypatch):
    real = os.fsync

    def failing(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    (tmp_path / "place").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        code, _, said = injector.call(tmp_path, ["keygen", "-o", "place/client.key"])
    assert code == 3 and "cannot write" in said and "Input/output error" in said
    injector.succeed(tmp_path, ["keygen", "-o", "place/client.key"])


def test_every_command_has_its_faults(world):
    # These talk to others over a network; tests/federate and tests/storage let that fail.
    running = [f"federate {name}" for name in ("superlink", "supernode", "simulate", "register", "run")]
    assert not all_commands.missing([" ".join(case.words) for case in world.cases()], running)
