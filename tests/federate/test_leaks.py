"""What an error, a log or a process of Flower's could tell to others: nothing but sealed parcels and one word."""

import dataclasses
import subprocess
import sys

import pytest

from stages.federate.client import answer, log_of
from stages.federate.worker import PartyWorker


def test_a_log_that_cannot_be_written(federation, homes):
    terms, split = federation(rounds=1)
    task = homes.first_task(terms, split)
    home = split["00"]
    (home / "clients/00/private/data.parquet").write_bytes(b"secret")
    log_of(home, "00").mkdir()
    assert answer(task, home, "00").status == "failed"


def test_its_own_log_is_for_nobody_elses_eyes(federation, homes):
    terms, split = federation(rounds=1)
    task = homes.first_task(terms, split)
    answer(dataclasses.replace(task, terms="0" * 64), split["00"], "00")
    assert log_of(split["00"], "00").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "said",
    [
        {"do": "deliver"},
        {"do": "deliver", "name": "../x", "size": 1, "sha256": "0" * 64, "offset": 0, "back": 0, "most": 1},
        {"do": "deliver", "name": 3},
        {"do": "read", "name": "clients/00/private/client.key", "offset": 0, "most": 1},
        {"do": "step"},
        {},
    ],
)
def test_a_clients_worker_says_one_word_to_what_it_does_not_understand(federation, tmp_path, said):
    _, split = federation(rounds=1)
    worker = PartyWorker(split["00"], str(tmp_path / "parcels"), "00", shared=False)
    assert worker.answer(said, b"") == ({"state": "failed"}, b"")
    assert "00" in log_of(split["00"], "00").parent.parent.name


def test_what_flower_starts_for_a_task_imports_nothing_of_ours():
    """The two apps, as they are in the bundle: no torch, no stage, no artifact."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import flower_app.client, flower_app.server\n"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in ('torch', 'stages', 'artifacts')))"
    )
    import stages.federate

    folder = stages.federate.__path__[0]
    done = subprocess.run([sys.executable, "-P", "-c", script, folder], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
