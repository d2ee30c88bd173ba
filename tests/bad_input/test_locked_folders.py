"""Two who work in one folder at once: one does, the other is told, and nothing of the two is mixed."""

import filecmp
import json

import pytest

from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.ledgers import lineage
from artifacts.writing import locks
from stages.keygen import settle

TRIES = 5


@pytest.fixture(scope="session")
def race(helper):
    return helper("bad_input/test_races.py").race


def holds(folder, other, ignored=()):
    """Whether two folders hold the same files."""
    compared = filecmp.dircmp(folder, other, ignore=list(ignored))
    same = not (compared.left_only or compared.right_only or compared.funny_files)
    _, differ, errors = filecmp.cmpfiles(folder, other, compared.common_files, shallow=False)
    return (
        same and not differ and not errors and all(holds(folder / name, other / name) for name in compared.common_dirs)
    )


def test_two_partitions_with_different_seeds(tmp_path, command_line, in_child, race):
    def words(out, seed):
        return ["partition", "digits", "--clients", "2", "--seed", seed, "-o", out, "-q"]

    for seed in (1, 2):
        assert in_child(command_line, *words(tmp_path / f"alone-{seed}", seed))[0] == 0
    for number in range(2):
        out = tmp_path / f"both-{number}"
        results = race(command_line, words(out, 1), words(out, 2))
        (winner,) = [place for place, (code, _) in enumerate(results) if code == 0]
        code, err = results[1 - winner]
        assert code == 3 and ("is in use: fedsynth partition" in err or "already exists" in err)
        assert holds(out, tmp_path / f"alone-{winner + 1}")


@pytest.mark.parametrize("sweep", [[], ["--sweep", "seed=0,1"]])
def test_a_run_while_another_runs_there(tmp_path, fedsynth, sweep):
    out = tmp_path / "run"
    with locks.held(out, "fedsynth run"):
        code, _, err = fedsynth("run", "fedavg", "-o", out, "--workers", 1, "-q", *sweep)
        assert code == 3 and f"{out} is in use: fedsynth run (process" in err
        assert [path.name for path in out.iterdir()] == [".lock.part"]


def test_a_run_into_the_folder_of_a_sweeps_point(tmp_path, fedsynth):
    with locks.held(tmp_path / "seed=1", "fedsynth run"):
        code, _, err = fedsynth("run", "fedavg", "-o", tmp_path, "--workers", 1, "-q", "--sweep", "seed=1")
    assert code == 3 and f"{tmp_path / 'seed=1'} is in use" in err


@pytest.mark.slow
def test_two_runs_with_different_seeds(tmp_path, command_line, in_child, race):
    settings = ["partition.clients=2", "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null"]

    def words(out, seed):
        extra = [word for setting in settings for word in ("--set", setting)]
        return ["run", "fedavg", "--rounds", 1, *extra, "--seed", seed, "--workers", 1, "-o", out, "-q"]

    for seed in (1, 2):
        assert in_child(command_line, *words(tmp_path / f"alone-{seed}", seed))[0] == 0
    for number in range(TRIES):
        out = tmp_path / f"both-{number}"
        results = race(command_line, words(out, 1), words(out, 2))
        (winner,) = [place for place, (code, _) in enumerate(results) if code == 0]
        assert results[1 - winner][0] == 3 and "is in use: fedsynth run" in results[1 - winner][1]
        assert holds(out, tmp_path / f"alone-{winner + 1}")


def test_yes_and_no_at_once(tmp_path, command_line, forge, race):
    decided = set()
    for number in range(4 * TRIES):
        client = tmp_path / f"{number}/clients/00"
        settle(client / "private/client.key", keys.generate(), force=False)
        (client / "private/policy.yaml").write_text("rules: []\n")
        forge.write_tensors(client / "outbox/message.safetensors", kind="message", round=1)
        words = ["release", client / "pending/message.safetensors", "--not-seen-private"]
        results = race(command_line, [*words, "--yes"], [*words, "--reject"])
        sent, kept = (client / "outbox/message.safetensors").exists(), (client / "private/rejected").is_dir()
        assert sent != kept, results
        assert sorted(code for code, _ in results) == [0, 3]
        assert (
            f"waits no more: somebody else was faster, and it was {'released' if sent else 'rejected'}"
            in (results[sent][1])
        )
        entries = [json.loads(line)["entry"] for line in (client / "private/gate.jsonl").read_text().splitlines()]
        assert entries == ["held", "released" if sent else "rejected"]
        decided.add(sent)


def test_a_model_has_the_record_of_its_own_participants(run_copy, command_line, race):
    """The one that is refused leaves no word of its own behind."""
    out = run_copy / "server/outbox/new.safetensors"
    messages = [run_copy / f"clients/{client}/outbox/message-0001.safetensors" for client in ("00", "01", "02")]
    chosen = [messages[:2], messages[1:]]
    for _ in range(2 * TRIES):
        base = ["aggregate", run_copy / "public/model-0000.safetensors"]
        results = race(command_line, *([*base, *some, "-o", out] for some in chosen))
        (winner,) = [place for place, (code, _) in enumerate(results) if code == 0]
        record = lineage.read_record(run_copy / "server/private/new.lineage.json")
        assert {one.sha256 for one in record} == {tensors_file.read(path).sha256 for path in chosen[winner]}
        out.unlink()
    assert not list((run_copy / "server/private").glob(".*"))
