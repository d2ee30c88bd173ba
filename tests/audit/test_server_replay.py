"""`audit --replay` of what the server sent: the clients' files give the same bytes again, and a forged one does not."""

import json
import shutil

import numpy as np
import pytest
from tampering.run import stated

from artifacts.digests import sha256_hex
from artifacts.formats import dataset_file, tensors_file
from artifacts.ledgers import egress
from stages.aggregate import aggregate
from stages.audit import ReplayOptions, audit
from stages.audit.replay import Replay
from stages.methods.params.aggregation import MeanRule

ONE_STEP = ("train-client.local_epochs=null", "train-client.local_steps=1")
SMALL = {
    "fedssyn": (
        "partition.clients=3", "train-generator.family=vae", "train-generator.steps=1", "synthesize.count=8",
        "train-client.epochs_of=null", *ONE_STEP,
    ),
    "fedlap": (
        "partition.clients=2", "encode.images_per_class=1", "encode.batches=1", "encode.points=1",
        "encode.image_steps=1", "encode.radius_steps=2",
    ),
    "tofu": (
        "partition.clients=2", "switch1=null", "switch2=2", "encode.images=2", "encode.iterations=2",
        "encode.least_cosine=0.0", *ONE_STEP,
    ),
    "feddm": (
        "partition.clients=2", "encode.images_per_class=1", "encode.iterations=1", "aggregate.server_epochs=1",
        "aggregate.batch_size=2",
    ),
    "feddyn": ("partition.clients=2", *ONE_STEP),
    "fednova": ("partition.clients=2", *ONE_STEP),
    "scaffold": ("partition.clients=2", *ONE_STEP),
    "dp-fedavg": ("partition.clients=4", "participation=0.9", *ONE_STEP),
    "dp-fedsam-moved": ("partition.clients=4", "participation=0.9", *ONE_STEP),
    "fedavg-secure": ("partition.clients=3", *ONE_STEP),
}  # fmt: skip
# What the server computed in two rounds, its own files included.
COMPUTED = {
    "fedssyn": 3 + 2, "fedlap": 2, "tofu": 1 + 1, "feddm": 2, "feddyn": 2 + 2, "fednova": 2, "scaffold": 2 + 2,
    "dp-fedavg": 2, "dp-fedsam-moved": 2, "fedavg-secure": 2 * (1 + 4),
}  # fmt: skip


@pytest.fixture(scope="session")
def small_run(softmax_run):
    """A run of two rounds by this recipe, made once."""
    made = {}

    def make(name):
        if name not in made:
            made[name] = softmax_run(name, 2, *SMALL[name], seed=3, label=f"{name}-small")
        return made[name]

    return make


whole = Replay.run


@pytest.fixture
def replayed(monkeypatch):
    """Audit with a replay of the server's files; the clients' are tested elsewhere."""
    monkeypatch.setattr(Replay, "run", lambda self, sample=None: whole(self, sample) if self.place.is_server else ())
    return lambda root, **options: audit(root, replay=ReplayOptions(device="cpu", **options))


@pytest.fixture
def copied(small_run, tmp_path):
    """A copy of a run to damage: the server's part. The rest are links."""

    def copy(source):
        root = tmp_path / "run"
        root.mkdir()
        for name in ("public", "clients", "simulation"):
            (root / name).symlink_to(source / name)
        shutil.copytree(source / "server", root / "server")
        return root

    return lambda source: copy(small_run(source) if isinstance(source, str) else source)


def put(path, data):
    """Another file in its place, with a ledger that fits: what an insider at the server can do."""
    path.write_bytes(data)
    if path.parent.name != "outbox":
        return
    ledger = path.parent.parent / "private/egress.jsonl"
    entries = egress.read(ledger).entries
    ledger.unlink()
    with egress.locked(ledger) as book:
        for entry in entries:
            here = (path.parent / entry.file).read_bytes()
            book.enter(file=entry.file, sha256=sha256_hex(here), size=len(here), metadata=stated(entry))


def poison(path, elsewhere):
    """One number a little larger; everything else says what it said."""
    found = tensors_file.read(path)
    name = max(found.tensors, key=lambda n: found.tensors[n].size)
    other = found.tensors[name].copy()
    other.reshape(-1)[0] += 1
    made = elsewhere / path.parent.name / path.name
    tensors_file.write(made, {**found.tensors, name: other}, found.metadata)
    put(path, made.read_bytes())


def failures(report):
    return {(f.check, f.where.rsplit("/", 1)[-1]) for f in report.findings if f.level == "failure"}


@pytest.mark.parametrize("name", ["fedssyn", "fedlap", "tofu", *(
    pytest.param(name, marks=pytest.mark.slow) for name in SMALL if name not in ("fedssyn", "fedlap", "tofu")
)])  # fmt: skip
def test_what_the_server_computed_comes_out_again(small_run, replayed, name):
    root = small_run(name)
    before = {path: path.read_bytes() for path in (root / "server").rglob("*") if path.is_file()}
    report = replayed(root)
    assert report.passed, report.findings
    assert report.replayed == {"identical": COMPUTED[name]}, report.findings
    assert {path: path.read_bytes() for path in before} == before


def test_poisoned_weights_with_a_fitting_ledger(finished_run, copied, replayed, tmp_path):
    root = copied(finished_run)
    assert replayed(root).replayed == {"identical": 2}
    poison(root / "server/outbox/model-0002.safetensors", tmp_path / "made")
    assert audit(root).passed, "without a replay it is a good model"
    report = replayed(root)
    assert failures(report) == {("replay", "model-0002.safetensors")}
    assert report.replayed == {"identical": 1, "different": 1}


def test_a_record_that_leaves_a_client_out(finished_run, copied, replayed):
    """The model is the mean of three, and the record says two."""
    root = copied(finished_run)
    path = root / "server/private/model-0001.lineage.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "inputs": said["inputs"][:2]}))
    assert audit(root).passed
    assert failures(replayed(root)) == {("replay", "model-0001.safetensors")}


def test_a_deleted_record(finished_run, copied, replayed):
    root = copied(finished_run)
    (root / "server/private/model-0001.lineage.json").unlink()
    report = replayed(root)
    assert ("lineage", "model-0001.safetensors") in failures(report)
    assert report.replayed == {"identical": 1, "not replayable": 1}


def test_a_server_without_the_messages_is_no_pass(finished_run, replayed):
    alone = replayed(finished_run / "server")
    assert alone.replayed == {"not replayable": 2} and alone.verdict.startswith("INCOMPLETE")


def test_a_server_that_gives_its_clients_files_along_is_replayed_by_itself(finished_run, replayed):
    received = [finished_run / "public", *(finished_run / f"clients/{name}/outbox" for name in ("00", "01", "02"))]
    report = audit(finished_run / "server", received=received, replay=ReplayOptions(device="cpu"))
    assert report.replayed == {"identical": 2}


FORGED = {
    "fedlap": ("outbox/model-0002.safetensors", {"model-0002.safetensors"}),
    # The proxy that goes down is the server's own mean, and so is what everybody makes of it.
    "tofu": ("private/update-0001.safetensors", {"proxy-0001.safetensors"}),
    "feddyn": ("private/state-0001.safetensors", {"state-0001.safetensors", "model-0002.safetensors"}),
    "scaffold": ("outbox/state-0001.safetensors", {"state-0001.safetensors", "state-0002.safetensors"}),
    "dp-fedavg": ("outbox/model-0002.safetensors", {"model-0002.safetensors"}),
    "fedavg-secure": ("private/update-0002.safetensors", {"model-0002.safetensors"}),
}


@pytest.mark.parametrize("name", ["fedlap", "tofu", *(
    pytest.param(name, marks=pytest.mark.slow) for name in FORGED if name not in ("fedlap", "tofu")
)])  # fmt: skip
def test_what_the_server_forged_is_found(copied, replayed, tmp_path, name):
    root = copied(name)
    file, found = FORGED[name]
    poison(root / "server" / file, tmp_path / "made")
    if name == "fedavg-secure":  # the next model is that of the poisoned sum, and the record says so
        sent = root / "server/outbox"
        aggregate(sent / "model-0001.safetensors", [root / "server" / file], sent / "model-0002.safetensors",
                  params=MeanRule(), force=True)  # fmt: skip
        assert audit(root).passed
    assert found <= {where for check, where in failures(replayed(root)) if check == "replay"}


def test_a_part_of_the_shuffle_with_a_row_that_nobody_sent(copied, replayed, tmp_path):
    root = copied("fedssyn")
    path = root / "server/outbox/synthetic-01.parquet"
    found = dataset_file.read(path)
    images = [png.as_py() for png in found.pngs]
    made = tmp_path / "made/outbox" / path.name
    labels = np.concatenate([found.labels[:-1], found.labels[:1]])
    dataset_file.write(made, [*images[:-1], images[0]], labels, found.metadata)
    put(path, made.read_bytes())
    assert ("replay", "synthetic-01.parquet") in failures(replayed(root))


def test_a_seed_that_is_not_known_accuses_nobody(copied, replayed):
    root = copied("fedssyn")
    (root / "simulation").unlink()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stages.audit.snapshot.Snapshot.seeds", ())
        report = replayed(root)
        assert not failures(report) and report.replayed == {"identical": 2, "not replayable": 3}
        assert any("give it by --seed" in f.what for f in report.findings)
        assert replayed(root, seeds=(3,)).replayed == {"identical": 5}
