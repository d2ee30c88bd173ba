"""Receipts in a recipe: the same bytes whatever the order of work, every ledger anchored, none with secret sampling."""

import hashlib
import shutil

import pytest

from artifacts.errors import UsageError
from artifacts.identity.roster import read_roster
from artifacts.ledgers.receipts import anchor
from artifacts.places import RunFolder
from stages.recipes.perform import perform
from stages.recipes.plan import partition_step, plan
from stages.recipes.recipe import change, load_recipe

# SCAFFOLD sends two files a round: their order in the ledger is what a head depends on.
SETTINGS = [
    "partition.clients=2", "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null",
    "train-client.local_epochs=1", "receipts=true",
]  # fmt: skip


def digests(folder):
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def carry_out(steps, root, choose):
    """Perform the steps in any order that their files allow."""
    made = {name: number for number, step in enumerate(steps) for name in step.outputs}
    waits = {n: {made[f] for f in (*s.inputs, *s.needs) if f in made} - {n} for n, s in enumerate(steps)}
    done = set()
    while waits:
        number = choose(sorted(n for n, earlier in waits.items() if earlier <= done))
        perform(steps[number], root)
        done.add(number)
        del waits[number]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same recipe with its first step first, and with its last possible step first."""
    recipe = change(load_recipe("scaffold"), SETTINGS, 1)
    steps = [step for step in plan(recipe, ["00", "01"], 5) if step.command != "evaluate"]
    first, last = (tmp_path_factory.mktemp("receipts") / name for name in ("first", "last"))
    perform(partition_step(recipe, 5), first)
    shutil.copytree(first, last)
    carry_out(steps, first, min)
    carry_out(steps, last, max)
    return first, last


def test_the_order_of_work_is_not_in_the_bytes(runs):
    first, last = map(digests, runs)
    assert "clients/00/private/receipt-0001.intoto.jsonl" in first and first == last


def test_what_leaves_a_participant_has_one_order():
    """Over rounds too: of any two files that leave it, one waits for the other."""
    steps = plan(change(load_recipe("scaffold"), SETTINGS, 3), ["00", "01"], 5)
    maker = {name: step for step in steps for name in step.outputs}
    before = {}
    for step in steps:
        direct = [maker[name] for name in (*step.inputs, *step.needs) if name in maker]
        before[step.out] = {one.out for one in direct}.union(*(before[one.out] for one in direct))
    for owner in ("00", "01", "server"):
        leaving = [step.out for step in steps if step.owner == owner and "/outbox/" in step.out]
        assert len(leaving) == 9
        assert all(earlier in before[later] for n, later in enumerate(leaving) for earlier in leaving[:n])


def test_every_ledger_is_anchored(runs):
    folder = RunFolder(runs[0])
    roster = read_roster(folder.public / "roster.json")
    for name in folder.client_names():
        found = anchor(folder.client(name), roster)
        assert (found.state, found.seq, found.entries, found.open) == ("anchored", 2, 3, 0)


def test_the_last_step_waits_for_the_last_receipts():
    steps = plan(change(load_recipe("scaffold"), SETTINGS, 2), ["00", "01"], 5)
    assert steps[-1].command == "evaluate"
    assert {f"clients/{name}/private/receipt-0002.intoto.jsonl" for name in ("00", "01")} <= set(steps[-1].needs)


def test_not_with_secret_sampling():
    with pytest.raises(UsageError, match="sampled in secret"):
        plan(change(load_recipe("dp-fedavg"), ["receipts=true"], 1), ["00", "01"], 0)
