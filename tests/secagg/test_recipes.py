"""Secure aggregation in recipes: the same model each time, FedAvg's up to the ring's rounding; what has no sum."""

import shlex

import numpy as np
import pytest

from artifacts.errors import UsageError
from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.places import RunFolder
from stages.account import account
from stages.account import plan as account_plan
from stages.audit import audit
from stages.evaluate.communication import read_communication
from stages.recipes.formats import command_line
from stages.recipes.perform import perform
from stages.recipes.plan import check, partition_step, plan, planned_clients
from stages.recipes.recipe import change, load_recipe

SMALL = (
    "partition.clients=3", "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null",
    "train-client.local_epochs=1",
)  # fmt: skip


def recipe_of(name, *settings, rounds=1):
    return change(load_recipe(name), settings, rounds)


def steps_of(recipe):
    clients = planned_clients(recipe)
    return [partition_step(recipe, 0, clients), *plan(recipe, clients, 0)]


def performed(recipe, root):
    """Each step as a worker would perform it, in this process."""
    for step in steps_of(recipe):
        perform(step, root)
    return root


def model(root, round=1):
    return root / f"server/outbox/model-{round:04}.safetensors"


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    return performed(recipe_of("fedavg-secure", *SMALL, rounds=2), tmp_path_factory.mktemp("secure"))


def test_typed_commands_give_the_same_model_though_their_masks_differ(secure, tmp_path, fedsynth):
    """The same pipeline line by line, as `sh`, make and the others have it."""
    for step in steps_of(recipe_of("fedavg-secure", *SMALL, rounds=2)):
        code, _, err = fedsynth(*shlex.split(command_line(step, str(tmp_path))))
        assert code == 0, err
    for round in (1, 2):
        assert model(tmp_path, round).read_bytes() == model(secure, round).read_bytes()
    masked = "clients/00/outbox/secagg-masked-0001.safetensors"
    ours, theirs = (tensors_file.read(root / masked).tensors for root in (secure, tmp_path))
    same = sum(int((ours[name] == theirs[name]).sum()) for name in ours)
    assert same < 5, "words of 32 bits: of a thousand five are the same once in 10³³"


def test_the_model_is_fedavgs_but_for_the_ring(secure, tmp_path):
    plain = performed(recipe_of("fedavg", *SMALL), tmp_path)
    step = 4 / (2**23 - 1)
    ours, theirs = (tensors_file.read(model(root)).tensors for root in (secure, plain))
    worst = max(float(np.abs(ours[name].astype(np.float64) - theirs[name]).max()) for name in ours)
    # Half a step, and the rounding of the mean and of the model to float32.
    largest = max(float(np.abs(tensor).max()) for tensor in theirs.values())
    assert 0 < worst <= step / 2 + 2 * largest * 2**-24


def test_the_server_has_no_single_update(secure):
    names = {path.name.rsplit("-", 1)[0] for path in secure.glob("clients/*/outbox/*")}
    assert names == {"secagg-keys", "secagg-shares", "secagg-masked", "secagg-survivors", "secagg-unmask"}
    updates = [tensors_file.read(path).tensors for path in sorted(secure.glob("clients/*/private/update-0001*"))]
    assert len(updates) == 3
    needles = [tensor.tobytes()[:16] for update in updates for tensor in update.values() if tensor.any()]
    assert needles
    for path in (*secure.glob("clients/*/outbox/*"), *secure.glob("server/*/*.safetensors")):
        data = path.read_bytes()
        assert not any(needle in data for needle in needles)


def test_audit_and_account_of_a_secure_run(secure):
    report = audit(secure)
    assert report.passed, report.findings
    for row in account([secure], delta=1e-5)["clients"]:
        assert (row["files"], row["epsilon"]["pld"]) == (2, "inf")  # one masked update a round, nothing else


def test_the_servers_lists_count_in_their_round(secure):
    """Down go, in the first round, the model and three lists to each of the three clients, and to each its shares."""
    transfers = read_communication(RunFolder(secure)).transfers
    first = sum(t.size * t.copies for t in transfers if t.round == 1 and not t.up)
    lists = [secure / f"server/outbox/secagg-{step}-0001.safetensors" for step in ("keys", "survivors", "confirmed")]
    files = [secure / "public/model-0000.safetensors", *lists] * 3
    files += sorted(secure.glob("server/outbox/secagg-shares-for-*-0001.safetensors"))
    assert len(files) == 15 and first == sum(path.stat().st_size for path in files)


NOISY = ("partition.clients=4", "encode.least_clients=3", "train-client.local_epochs=1")


def test_noise_shares_are_charged_once(tmp_path):
    root = performed(recipe_of("dp-fedsam-secure", *NOISY, rounds=2), tmp_path)
    total = tensors_file.read(root / "server/private/update-0001.safetensors")
    sent = [tensors_file.read(path) for path in sorted(root.glob("clients/*/private/message-0001*"))]
    for name, tensor in total.tensors.items():
        mean = np.sum([one.tensors[name].astype(np.float64) for one in sent], axis=0) / 4
        assert (tensor == mean.astype(np.float32)).all()
    report = audit(root)
    assert report.passed, report.findings
    expected = account_plan(sampling_rate=1.0, steps=1, rounds=2, delta=1e-5, noise_multiplier=4.0)["epsilon"]
    rows = account([root], delta=1e-5)["clients"]
    assert [row["client"] for row in rows] == ["00", "01", "02", "03", "server"]  # whose models carry the events on
    for row in rows[:-1]:
        assert (row["events"], row["uncovered"], row["trusted"]) == (2, [], ["aggregate"])
        assert row["epsilon"] == pytest.approx(expected)
        assert row["alone"]["pld"] > row["epsilon"]["pld"]
    assert keys.read(root / "clients/00/private/client.key").simulation


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("fedlap", ("secagg.range=1",), "encode.method fedlap does not add up"),
        ("tofu", ("switch2=null", "secagg.range=1"), "proxies do not add up"),
        ("fednova", ("secagg.range=1",), "the algorithm fednova sends more"),
        ("scaffold", ("secagg.range=1",), "the algorithm scaffold sends more"),
        ("feddyn", ("secagg.range=1",), "the algorithm feddyn sends more"),
        ("dp-fedsam", ("secagg.range=1",), "aggregate.rule dp-mean needs the updates one by one"),
        ("fedavg", ("aggregate.weights=examples", "secagg.range=1"), "a number of each client"),
        ("fedavg", ("encode.tell_examples=true", "secagg.range=1"), "numbers beside the sum"),
        ("fedavg", ("synthetic=pooled", "secagg.range=1"), "one party"),
        ("fedavg", (), "state secagg.range"),
        ("fedavg", ("secagg.range=1", "secagg.bits=60"), "--bits must be from 2 to 53"),
        ("dp-fedsam-secure", ("participation=0.5",), "participation must be 1"),
        ("dp-fedsam-secure", ("secagg.range=1",), "leave secagg.range out"),
    ],
)  # fmt: skip
def test_what_cannot_be_summed_is_refused_before_anything_runs(name, settings, reason):
    with pytest.raises(UsageError, match=reason):
        check(recipe_of(name, "secure=true", *settings))


def test_the_clip_is_the_range(tmp_path):
    """An update that is clipped leaves under masks only, and needs no other range."""
    steps = steps_of(recipe_of("fedavg", *SMALL, "secure=true", "encode.clip_norm=0.5"))
    (listed,) = [step for step in steps if step.command == "secagg collect" and step.params]
    assert listed.params["range"] == 0.5
    outs = [step.out for step in steps if step.command == "encode"]
    assert outs == [f"clients/{name}/private/message-0001.safetensors" for name in ("00", "01", "02")]
