"""A federation whose drop folder is a bucket: the models of `run`; only what is sealed is in the bucket."""

import shutil

import pytest

from stages.federate.step import step
from stages.recipes.recipe import change, load_recipe

SETTINGS = (
    "partition.clients=2", "train-client.local_epochs=null", "train-client.local_steps=1", "receipts=true",
    "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null",
)  # fmt: skip


@pytest.mark.slow
def test_through_s3(helper, tmp_path, run_on_one_worker, objects, store):
    homes = helper("federate/homes.py")
    recipe = change(load_recipe("fedavg"), SETTINGS, 1)
    begun = homes.prepared(recipe, tmp_path / "begun", 3)
    shutil.copytree(begun, tmp_path / "run")
    run_on_one_worker(recipe, tmp_path / "run", seed=3)
    terms = homes.terms_for(recipe, begun, seed=3)
    split = homes.split(begun, terms, tmp_path / "homes")
    said = []

    def call(name):
        return step(split[name], "s3://bucket/drop", log=said.append)[0]

    call("server")
    call("00")
    (cut,) = (name for name in objects("drop/") if name.endswith("-00-to-server.sealed"))
    store.put_object(Bucket="bucket", Key=f"drop/{cut}", Body=objects("drop/")[cut][:1500])
    assert not call("server")
    assert any(f"{cut} was refused: it is not signed by '00'" in text for text in said)
    for _ in range(12):
        done = [call(name) for name in ("00", "01", "server")]
        if all(done):
            break
    assert homes.united(split) == homes.digests(tmp_path / "run")
    found = objects("drop/")
    assert found
    assert all(name.endswith(".sealed") and data.startswith(b"fedsynth.sealed/1\n") for name, data in found.items())
    assert {name.split(".")[1].split("-")[0] for name in found} == {"000002"}, "earlier ones were removed"
