"""`audit --neighbours` compares the files of `run`; over Flower a client says more than files: what it answers.

Here federations in homes of their own are compared on data one record apart, with noise of a fixed stream: every answer
of the client whose data changed (its word, the names, sizes and kinds of its files, their metadata, and their values
where noise covers them), and what the server makes of all, must be alike. That a federation ends with the files of
`run`, byte for byte, is in test_same_files.py. Time is not compared.
"""

import shutil

import pytest

from stages.federate.server import serve
from stages.privacy.mechanism import noise_alone
from stages.privacy.streams import CONTEXT, KEY_SIZE, SecretStream
from stages.recipes.recipe import change, load_recipe
from stages.trials.neighbour_data import changes_for
from stages.trials.neighbour_files import seen_file, unlike

NET = ("init-model.arch=softmax", "init-model.width=null", "init-model.depth=null", "partition.clients=2")
NOISE = (
    "train-client.noise_multiplier=1", "train-client.target_epsilon=null", "train-client.delta=null",
    "train-client.privacy_rounds=null", "train-client.local_steps=2",
)  # fmt: skip
RECIPES = {
    "dp-sgd": ("record", (*NET, *NOISE)),
    "dp-fedavg": ("client", (*NET[:1], NET[3], "participation=1", "train-client.local_epochs=1")),
}
SUBJECT = "00"


@pytest.fixture
def seen_by_the_server(tmp_path, homes):
    """All that a server sees and sends in a round, after an edit of one client's data."""
    begun = {}

    def see(name, edit, number):
        unit, settings = RECIPES[name]
        recipe = change(load_recipe(name), settings, 1)
        if name not in begun:
            begun[name] = homes.prepared(recipe, tmp_path / f"{name}-begun", 3)
        folder = tmp_path / f"{name}-{number}"
        shutil.copytree(begun[name], folder / "begun")
        edit(folder / f"begun/clients/{SUBJECT}/private/data.parquet")
        terms = homes.terms_for(recipe, folder / "begun", seed=3)
        split = homes.split(folder / "begun", terms, folder / "homes")
        answers = []

        def spoil(task, reply):
            if task.client == SUBJECT:
                answers.append(
                    [task.targets, reply.status, reply.names, [_seen(p, folder, unit) for p in reply.parcels]]
                )
            return reply

        with noise_alone(SecretStream(bytes(KEY_SIZE), dict.fromkeys(CONTEXT, "federate"), "noise")):
            serve(terms, split["server"], homes.ByHand(split, spoil=spoil), log=lambda text: None)
        model = split["server"] / "server/outbox/model-0001.safetensors"
        return {"answers": answers, "model": seen_file(model, values=True, digests=False)}

    return see


def _seen(parcel, folder, unit):
    """A file as it arrives; its values count where the client's own noise covers them."""
    path = folder / "arrived" / parcel.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(parcel.data)
    about = [parcel.name, parcel.kind, parcel.round, parcel.size]
    return [*about, seen_file(path, values=unit == "record", digests=True)]


def compared(name, see, only=None):
    unit, _ = RECIPES[name]
    found, before = {}, {}
    for number, neighbour in enumerate(changes_for([unit], hides_who=True)):
        if neighbour.crafted or neighbour.leaves_out or only not in (None, neighbour.name):
            continue
        if neighbour.before not in before:
            before[neighbour.before] = see(name, neighbour.before, f"{number}-before")
        found[neighbour.name] = unlike(before[neighbour.before], see(name, neighbour.after, number))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_no_answer_depends_on_any_of_the_neighbours(seen_by_the_server, name):
    found = compared(name, seen_by_the_server)
    assert len(found) >= 3
    assert not any(found.values()), found


@pytest.mark.slow
def test_without_noise_in_the_messages_the_comparison_sees_it(seen_by_the_server, monkeypatch):
    """What it would find: the values of messages that only a trusted server noises."""
    monkeypatch.setitem(RECIPES, "dp-fedavg", ("record", RECIPES["dp-fedavg"][1]))
    (found,) = compared("dp-fedavg", seen_by_the_server, "one record more").values()
    assert "values" in found
