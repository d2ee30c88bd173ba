"""One run with a file of every kind that leaves, made once by typing commands; each case damages a copy of it."""

import shutil
import sys
from pathlib import Path

import pytest

from fedsynth_cli.app import run as run_command_line
from stages.audit import audit
from stages.recipes.recipe import change, load_recipe

sys.path.append(str(Path(__file__).parent))  # where tests find the folder `tampering`

CLIENTS = ("00", "01", "02")
FEDERATED = (
    "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null", "partition.clients=2",
    "train-client.local_epochs=null", "train-client.local_steps=1", "receipts=true",
)  # fmt: skip


def typed(line, **names):
    code = run_command_line([*line.format(**names).split(), "-q"])
    assert code == 0, line


@pytest.fixture(scope="session")
def every_kind(finished_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("audit") / "run"
    shutil.copytree(finished_run, root)
    model, down, roster = f"{root}/public/model-0000.safetensors", f"{root}/server/outbox", f"{root}/public/roster.json"
    for client in CLIENTS:
        typed("identity -o {p}/identity.json", p=f"{root}/clients/{client}/private")
    everybody = " ".join(f"{root}/clients/{client}/private/identity.json" for client in CLIENTS)
    typed("identity -o {p}/identity.json", p=f"{root}/server/private")
    typed("roster {all} {p}/identity.json -o {roster}", all=everybody, p=f"{root}/server/private", roster=roster)
    for client in CLIENTS[:2]:  # the third is there for secure aggregation alone
        names = {
            "model": model,
            "private": f"{root}/clients/{client}/private",
            "out": f"{root}/clients/{client}/outbox",
        }
        for line in (
            "encode {model} {private}/data.parquet --method fedlap --images-per-class 1 --points 1 --batches 1 "
            "--image-steps 1 --radius-steps 2 -o {out}/surrogate-0001.safetensors",
            "encode {model} {private}/update-0001.safetensors --method tofu --images 2 --iterations 2 --least-cosine 0 "
            "-o {out}/proxy-0001.safetensors",
            "train-client {model} {private}/data.parquet --algorithm scaffold --local-steps 1 "
            "--state-out {private}/state-0001.safetensors -o {private}/scaffold-0001.safetensors",
            "encode {model} {private}/state-0001.safetensors --method state -o {out}/state-0001.safetensors",
            "train-client {model} {private}/data.parquet --noise-multiplier 1 --sampling-rate 0.1 --batch-size 16 "
            "--local-steps 2 -o {private}/noised-0001.safetensors",
            "encode {model} {private}/noised-0001.safetensors -o {out}/noised-0001.safetensors",
        ):
            typed(line, **names)
    # A generator takes longest, and one client will do.
    private, out = f"{root}/clients/01/private", f"{root}/clients/01/outbox"
    typed("train-generator {p}/data.parquet --family vae --steps 1 -o {p}/generator.safetensors", p=private)
    typed("synthesize {p}/generator.safetensors --count 12 -o {o}/synthetic.parquet", p=private, o=out)
    _other_ways(model, private, out)
    _secagg(root, model, down, roster)
    for client in CLIENTS:
        out = f"{root}/clients/{client}/outbox"
        typed("sign {o}/message-0001.safetensors --roster {r}", o=out, r=roster)
        typed("receipt ask --round 2 --roster {r} -o {o}/head-0002.intoto.jsonl", o=out, r=roster)
    heads = " ".join(f"{root}/clients/{client}/outbox/head-0002.intoto.jsonl" for client in CLIENTS)
    typed("receipt give {h} --roster {r} -o {d}/receipts-0002.intoto.jsonl", h=heads, r=roster, d=down)
    yield root
    assert audit(root).passed  # no test has changed it


def _other_ways(model, private, out):
    """An update in fewer bytes, and a set whose generator was trained with noise."""
    for method, name in (
        ("quantised", "compressed"), ("topk --keep 0.1", "topk"), ("lowrank --rank 1", "lowrank"),
        ("public-images --images 4", "residuals"),
    ):  # fmt: skip
        line = "encode {m} {p}/update-0001.safetensors --method {how} -o {o}/{name}-0001.safetensors"
        typed(line, m=model, p=private, how=method, o=out, name=name)
    line = "train-generator {p}/data.parquet --family merf --steps 1 --noise-multiplier 2 -o {p}/merf.safetensors"
    typed(line, p=private)
    typed("synthesize {p}/merf.safetensors --count 12 --labels learnt -o {o}/merf.parquet", p=private, o=out)


def _secagg(root, model, down, roster):
    def each(line):
        for client in CLIENTS:
            typed(line, c=f"{root}/clients/{client}", d=down, m=model, r=roster)

    def collect(step, result, keys):
        files = " ".join(f"{root}/clients/{client}/outbox/secagg-{step}-0001.safetensors" for client in CLIENTS)
        given = "--range 8" if not keys else f"--keys {down}/secagg-keys-0001.safetensors"
        out = f"{down}/secagg-{result}-0001.safetensors"
        typed("secagg collect {f} --roster {r} {g} -o {o}", f=files, r=roster, g=given, o=out)

    each("secagg keys --round 1 -o {c}/outbox/secagg-keys-0001.safetensors")
    collect("keys", "keys", keys=False)
    each("secagg shares {d}/secagg-keys-0001.safetensors --roster {r} -o {c}/outbox/secagg-shares-0001.safetensors")
    collect("shares", "shares", keys=True)
    each(
        "secagg mask {d}/secagg-shares-0001.safetensors {m} {c}/private/update-0001.safetensors "
        "-o {c}/outbox/secagg-masked-0001.safetensors"
    )
    collect("masked", "survivors", keys=True)
    each("secagg confirm {d}/secagg-survivors-0001.safetensors -o {c}/outbox/secagg-survivors-0001.safetensors")
    collect("survivors", "confirmed", keys=True)
    each("secagg unmask {d}/secagg-confirmed-0001.safetensors -o {c}/outbox/secagg-unmask-0001.safetensors")


@pytest.fixture
def tampered(every_kind, tmp_path):
    """A copy to damage: client 01 and the server. The other clients and what is public are links."""
    target = tmp_path / "run"
    (target / "clients").mkdir(parents=True)
    for name in ("public", "clients/00", "clients/02"):
        (target / name).symlink_to(every_kind / name)
    for name in ("clients/01", "server"):
        shutil.copytree(every_kind / name, target / name)
    return target


@pytest.fixture(scope="session")
def federation_of(helper, tmp_path_factory):
    """The homes of server, 00 and 01 after a recipe, signed."""
    homes = helper("federate/homes.py")

    def made(recipe):
        folder = tmp_path_factory.mktemp("forms")
        begun = homes.prepared(recipe, folder / "begun", 5)
        terms = homes.terms_for(recipe, begun, seed=5, wait=1.0, signed=True)
        split = homes.split(begun, terms, folder / "homes")
        homes.served(terms, split, homes.ByHand(split))
        return folder / "homes"

    return made


@pytest.fixture(scope="session")
def federated(federation_of):
    """A federation of two clients, signed and with receipts, after one round."""
    return federation_of(change(load_recipe("fedavg"), FEDERATED, 1))


@pytest.fixture
def homes(federated, tmp_path):
    """A copy to change."""
    shutil.copytree(federated, tmp_path / "homes", symlinks=True)
    return tmp_path / "homes"
