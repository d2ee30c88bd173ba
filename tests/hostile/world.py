"""A folder with a small file of every kind that a command reads: the inputs of `lines.py`.

Not a test. The files come from the same small federations that the tests of each stage use.
"""

import shutil
from pathlib import Path

import forge
import numpy as np
import pyarrow.parquet as pq

from artifacts.identity.roster import write_roster
from stages.data.png import encode_png
from stages.receipt import give, keep
from stages.receipt_proof import prove
from stages.recipes.recipe import change, load_recipe
from stages.sign import sign

PARAMS = "train-client: {local_epochs: 1, learning_rate: 0.1}\nencode: {method: delta}\naggregate: {rule: mean}\n"
RECIPE = """extends: fedavg
rounds: 1
participation: 1.0
partition: {source: digits, clients: 2, scheme: iid}
train-client: {local_epochs: 1, learning_rate: 0.1}
init-model: {arch: softmax, width: null, depth: null}
presets: {small: {rounds: 1}}
"""
POLICY = "delta: 1.0e-5\nrules:\n  - {kinds: [message], max_bytes: 5000000, disclosures: [update], epsilon: .inf}\n"
BUDGET = "epsilon: 50.0\ndelta: 1.0e-5\nunit: record\n"


def build(root: Path, helper, finished_run: Path, scaffold_run: Path) -> Path:
    """Every file that the lines name, once; copies of the folder are what gets hurt."""
    shutil.copytree(finished_run, root / "run")
    shutil.copytree(scaffold_run, root / "scaf")
    shutil.copytree(finished_run / "clients/00/private", root / "dp/00/private")
    (root / "dp/00/private/budget.yaml").write_text(BUDGET)
    _signed(root / "sign", helper)
    _rounds(root, helper("secagg/conftest.py").Round)
    _surrogates(root / "surr", helper)
    _generator(root / "gen", helper)
    helper("shuffle/conftest.py").Senders(root / "shuf").send_all(3, 4)
    gated = helper("release/conftest.py").Gated(root / "gate")
    gated.rules(POLICY)
    forge.write_tensors(gated.outbox(), kind="message", round=1)
    _sources(root / "img", helper)
    _settings(root / "conf", helper)
    _dropped(root / "fed", helper("hostile/lines.py").FEDERATION, root / "run/public/test.parquet", root / "img")
    (root / "new").mkdir()
    return root


def _signed(root, helper):
    made = helper("signing/federation.py").Signed(root)
    made.found(made.roster)
    made.begin(made.model)
    for name in made.names:
        made.send(name)
        sign([made.message(name)], roster=made.roster)
    give([made.ask(name) for name in made.names], made.receipts(), roster=made.roster)
    for name in made.names:
        keep(made.receipts(), made.place(name) / "private/receipt-0001.intoto.jsonl", roster=made.roster)
    prove(made.message("a"), made.root / "proof.json", head=made.receipts(), roster=made.roster)


def _rounds(root, begin):
    """Secure aggregation, finished, and as it is before each step of a client."""
    begin(root / "agg").whole()
    steps = ("keys", "shares", "masks", "confirm")
    for number, name in enumerate(("agg-keys", "agg-shares", "agg-masked", "agg-confirmed"), start=1):
        some = begin(root / name)
        for step in steps[:number]:
            getattr(some, step)()


def _surrogates(root, helper):
    from stages.data.sources import load

    module = helper("surrogates/conftest.py")
    made = module.Surrogates(root, load("digits").train, arch="softmax")
    made.client("00", count=6)
    # From real images: whether a set that began as noise leads anywhere in three steps, the last bits decide.
    made.aggregate([made.encode("00", init="real")])


def _generator(root, helper):
    from stages.data.sources import load
    from stages.methods.params.synthesis import Synthesis
    from stages.registry import GENERATORS
    from stages.synthesize import synthesize
    from stages.train_generator import train_generator

    module = helper("generators/conftest.py")
    data = module.write_client(root, load("digits").train.take(np.arange(12)))
    params = GENERATORS.from_mapping({**module.QUICK["vae"], "steps": 1})
    train_generator([data], data.with_name("vae.safetensors"), params=params, seed=1)
    wanted = Synthesis(family="vae", count=3)
    synthesize(data.with_name("vae.safetensors"), data.with_name("reviewed.parquet"), params=wanted, seed=0)


def _sources(root, helper):
    pictures = [encode_png(np.full((8, 8), row, np.uint8)) for row in range(4)]
    for number, name in enumerate(("cat", "dog", "cat", "dog")):
        folder = root / "folder" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(pictures[number])
    pq.write_table(forge.image_table(pictures, [0, 1, 0, 1]), root / "foreign.parquet")


def _settings(root, helper):
    from stages.federate.terms import FILE, agreed

    root.mkdir()
    (root / "params.yaml").write_text(PARAMS)
    (root / "net.yaml").write_text("init-model: {arch: softmax}\n")
    (root / "recipe.yaml").write_text(RECIPE)
    (root / "lines.txt").write_text("inspect run/public/test.parquet\n")
    certificates = helper("federate/certificates.py")
    certificates.Authority(root)
    certificates.node_key(root, "node")
    (root / "app/fedsynth_app").mkdir(parents=True)
    terms = agreed(load_recipe("fedavg"), ("a", "b"), seed=0, wait=1.0, most_bytes=10**6)
    (root / "app/fedsynth_app" / FILE).write_text(terms.to_yaml())


def _dropped(root, federation, test, sources):
    """A federation through a drop folder: the server has asked both clients, b has answered."""
    from stages.federate.join import join
    from stages.federate.step import step
    from stages.federate.terms import agreed

    (root / "drop").mkdir(parents=True)
    small = ("init-model.arch=softmax", "init-model.width=null", "init-model.depth=null", "train-client.local_epochs=1")
    terms = agreed(change(load_recipe("fedavg"), small, 1), ("a", "b"), seed=0, wait=1e9, most_bytes=10**6)
    (root / "terms.yaml").write_text(terms.to_yaml())
    homes = {name: root / name for name in ("server", "a", "b")}
    join(root / "terms.yaml", homes["server"], client=None, data=str(test))
    for name in ("a", "b"):
        join(root / "terms.yaml", homes[name], client=name, data=str(sources / "foreign.parquet"), like=test)
    identities = [home / "identity.json" for home in homes.values()]
    for home in homes.values():
        write_roster(home / "public/roster.json", identities, federation, force=False)
    for name in ("server", "b"):
        step(homes[name], str(root / "drop"), log=lambda _line: None)
