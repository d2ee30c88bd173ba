"""Between files: schemas that come from private images, files of ours that enter as data, updates that are not finite.

Each of these was an attack that worked.
"""

import dataclasses
import shutil

import numpy as np
import pytest
from PIL import Image

from artifacts.errors import InputError
from artifacts.formats import dataset_file, tensors_file
from artifacts.identity import keys
from artifacts.ledgers import lineage
from stages.account import account
from stages.aggregate import aggregate
from stages.data.params import PartitionParams
from stages.decode import decode
from stages.encode import encode
from stages.ingest import Reading, ingest
from stages.init_model import init_model
from stages.keygen import settle
from stages.methods.params.aggregation import MeanRule
from stages.methods.params.encoding import DeltaEncoding
from stages.methods.params.fedavg import FedAvgTraining
from stages.methods.params.scaffold import ScaffoldTraining
from stages.partition import partition
from stages.registry import GENERATORS, NETWORKS
from stages.train_client import train_client

CLASSES = ("flu", "healthy", "hiv")
SHARED = {"clip_norm": 1.0, "noise_multiplier": 0.5, "least_clients": 3}


def folder(root, classes, each=3, seed=0):
    """A folder of class folders, as a hospital has it."""
    rng = np.random.default_rng(seed)
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(each):
            Image.fromarray(rng.integers(0, 255, (8, 8), np.uint8)).save(root / name / f"{number}.png")
    return root


@pytest.fixture
def hospital(tmp_path):
    """Client a with a key of its own, and the federation's public test set."""
    home = tmp_path / "clients/a"
    settle(home / "private/client.key", keys.Key(bytes(range(32))), force=False)
    (home / "outbox").mkdir()
    # Other images than any client's: an audit asks whether private ones are in public files.
    ingest(str(folder(tmp_path / "test", CLASSES, seed=1)), tmp_path / "public/test.parquet", reading=Reading())
    return home


# 1: class names are data.


def private_stages(data, model):
    noise = ["--noise-multiplier", 1, "--sampling-rate", 0.5]
    home = data.parent
    return {
        "generator": ["train-generator", data, "--family", "vae", "--steps", 2, "--batch-size", 2, *noise,
                      "-o", home / "generator.safetensors"],
        "records": ["train-client", model, data, "--local-steps", 2, "--batch-size", 2, *noise,
                    "-o", home / "update.safetensors"],
        "clients": ["train-client", model, data, "-o", home / "update.safetensors"],
        "fedlap": ["encode", model, data, "--method", "fedlap", *noise, "-o", home.parent / "outbox/s.safetensors"],
        "feddm": ["encode", model, data, "--method", "feddm", *noise, "-o", home.parent / "outbox/s.safetensors"],
    }  # fmt: skip


@pytest.mark.parametrize("stage", ["generator", "records", "clients", "fedlap", "feddm"])
def test_a_schema_from_private_images_is_refused_before_they_are_read(hospital, tmp_path, fedsynth, monkeypatch, stage):
    data = hospital / "private/data.parquet"
    ingest(str(folder(tmp_path / "scans", CLASSES)), data, reading=Reading())
    model = tmp_path / "public/model-0000.safetensors"
    init_model(tmp_path / "public/test.parquet", model, params=NETWORKS.from_mapping({"arch": "softmax"}), seed=0)
    before = (hospital / "private/spend.jsonl").read_bytes()
    monkeypatch.setattr(dataset_file.SealedDataset, "rows", lambda self: pytest.fail("it was read"))
    code, _, err = fedsynth(*private_stages(data, model)[stage])
    assert (code, "were read off private images" in err) == (3, True), err
    assert (hospital / "private/spend.jsonl").read_bytes() == before
    assert not list((hospital / "outbox").iterdir())


def test_a_model_for_everybody_is_not_made_for_private_classes(hospital, tmp_path, fedsynth):
    data = hospital / "private/data.parquet"
    ingest(str(folder(tmp_path / "scans", CLASSES)), data, reading=Reading())
    code, _, err = fedsynth("init-model", "--like", data, "--arch", "softmax", "-o", tmp_path / "public/m.safetensors")
    assert (code, "read off private images" in err) == (3, True), err


@pytest.mark.parametrize("by", ["like", "schema"])
def test_under_a_public_schema_one_image_of_a_new_class_changes_no_name(hospital, tmp_path, fedsynth, by):
    """The attack: with one image of `hiv` the outbound Parquet named three classes, without it two."""
    agreed = tmp_path / "schema.yaml"
    agreed.write_text("classes: [flu, healthy, hiv]\nchannels: 1\nheight: 8\nwidth: 8\n")
    given = {"like": tmp_path / "public/test.parquet", "schema": agreed}[by]
    found = []
    for name, classes in (("without", CLASSES[:2]), ("with", CLASSES)):
        data = hospital / f"private/{name}.parquet"
        source = folder(tmp_path / name, classes)
        assert fedsynth("ingest", source, f"--{by}", given, "-o", data)[0] == 0
        out = hospital / f"outbox/{name}.parquet"
        generator = hospital / f"private/{name}.safetensors"
        for command in (
            [*private_stages(data, None)["generator"][:-1], generator],
            ["synthesize", generator, "--count", 6, "-o", out],
        ):
            code, _, err = fedsynth(*command)
            assert code == 0, err
        about = dataset_file.read_metadata(out)
        events = [{**event, "id": ""} for event in about.privacy]
        found.append(dataclasses.replace(about, privacy=tuple(events), inputs=()))
        assert about.params["class_names"] == list(CLASSES)
        assert not about.disclosures
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("classes: [a, b]\nchannels: 1\nheight: 8\n", "no 'width'"),
        ("classes: [a, a]\nchannels: 1\nheight: 8\nwidth: 8\n", "different names"),
        ("classes: [a]\nchannels: 1\nheight: 8\nwidth: 8\nmore: 1\n", "unknown key 'more'"),
        ("classes: [a]\nchannels: one\nheight: 8\nwidth: 8\n", "whole numbers"),
        ("classes: [flu, healthy]\nchannels: 1\nheight: 8\nwidth: 8\n", "does not know"),
    ],
)
def test_a_schema_that_is_none_or_does_not_fit_is_refused(hospital, tmp_path, fedsynth, text, said):
    agreed = tmp_path / "schema.yaml"
    agreed.write_text(text)
    source = folder(tmp_path / "scans", CLASSES)
    code, _, err = fedsynth("ingest", source, "--schema", agreed, "-o", hospital / "private/data.parquet")
    assert (code, said in err) == (3, True), err


def test_images_become_what_the_schema_says(hospital, tmp_path, fedsynth):
    """Grey ones too, where it says colour: the form of the file is the schema's, whatever is in the folder."""
    agreed = tmp_path / "schema.yaml"
    agreed.write_text("classes: [flu, healthy, hiv]\nchannels: 3\nheight: 6\nwidth: 6\n")
    data = hospital / "private/data.parquet"
    code, _, err = fedsynth("ingest", folder(tmp_path / "scans", CLASSES), "--schema", agreed, "-o", data)
    assert code == 0, err
    params = dataset_file.read_metadata(data).params
    assert [params[name] for name in ("channels", "height", "width")] == [3, 6, 6]


def test_private_data_fixes_no_schema(hospital, tmp_path, fedsynth):
    other = hospital / "private/other.parquet"
    ingest(str(folder(tmp_path / "other", CLASSES)), other, reading=Reading())
    source = folder(tmp_path / "scans", CLASSES)
    code, _, err = fedsynth("ingest", source, "--like", other, "-o", hospital / "private/data.parquet")
    assert (code, "a schema comes from a public file" in err) == (3, True), err


@pytest.mark.parametrize("by", ["like", "schema"])
def test_what_was_trained_under_a_public_schema_passes_an_audit(hospital, tmp_path, fedsynth, by):
    """The schema is public by its role, wherever it is, for the run, for one client's home and for an outbox alone."""
    agreed = tmp_path / "elsewhere/schema.yaml"
    agreed.parent.mkdir()
    agreed.write_text("classes: [flu, healthy, hiv]\nchannels: 1\nheight: 8\nwidth: 8\n")
    like = agreed.with_name("test.parquet")
    like.write_bytes((tmp_path / "public/test.parquet").read_bytes())
    data, model = hospital / "private/data.parquet", tmp_path / "public/model-0000.safetensors"
    source = folder(tmp_path / "scans", CLASSES)
    words = ["init-model", "--like", like, "--arch", "softmax", "-o", model]
    message = ["encode", model, hospital / "private/update.safetensors", "-o", hospital / "outbox/message.safetensors"]
    for command in (
        words,
        ["ingest", source, f"--{by}", {"like": like, "schema": agreed}[by], "-o", data],
        private_stages(data, model)["records"],
        message,
    ):
        code, _, err = fedsynth(*command)
        assert code == 0, err
    alone = tmp_path.with_name(f"{tmp_path.name}-alone") / "clients/a"  # not in the federation's own folder
    shutil.copytree(hospital / "outbox", alone / "outbox")
    for where, passed in ((tmp_path, 0), (hospital, 0), (alone / "outbox", 6)):
        code, out, _ = fedsynth("audit", where, "--received", model.parent)
        assert code == passed, out
    assert "nothing that was looked at is wrong" in out, "without its ledger and its key"


def test_an_audit_finds_a_schema_that_came_from_a_private_file(hospital, tmp_path, fedsynth):
    """Only a file that was forged says so: `ingest` refuses."""
    other, data = hospital / "private/other.parquet", hospital / "private/data.parquet"
    ingest(str(folder(tmp_path / "other", CLASSES)), other, reading=Reading())
    found = dataset_file.read(other)
    forged = (lineage.by_digest(found, "schema"),)
    dataset_file.write(data, found.pngs, found.labels, dataclasses.replace(found.metadata, inputs=forged))
    code, out, _ = fedsynth("audit", tmp_path)
    assert (code, "come from other.parquet, which is private" in out) == (5, True), out


# 5: `ingest` and `partition` launder.


def synthetic(client, fedsynth, **noise):
    """Synthetic images of a client, in its outbox."""
    from stages.train_generator import train_generator

    generator, out = client.private("generator.safetensors"), client.base / "outbox/synthetic.parquet"
    params = GENERATORS.from_mapping({"family": "vae", "steps": 2, "batch_size": 4, **noise})
    train_generator([client.data], generator, params=params, seed=0)
    assert fedsynth("synthesize", generator, "--count", 10, "-o", out)[0] == 0
    return out


def test_synthetic_images_bring_their_disclosures_and_events_with_them(client, tmp_path, fedsynth):
    bare = synthetic(client, fedsynth)
    again = client.private("again.parquet")
    ingest(str(bare), again, reading=Reading(), like=public_copy(client, tmp_path))
    assert dataset_file.read_metadata(again).disclosures == dataset_file.read_metadata(bare).disclosures != ()
    with pytest.raises(InputError, match="without differential privacy"):
        client.train(data=[again])


def test_noised_images_bring_their_events_with_them(client, tmp_path, fedsynth):
    noised = synthetic(client, fedsynth, noise_multiplier=1.0, sampling_rate=0.5)
    again = client.private("again.parquet")
    ingest(str(noised), again, reading=Reading(), like=public_copy(client, tmp_path))
    mine = dataset_file.read_metadata(noised).privacy
    assert mine and dataset_file.read_metadata(again).privacy == mine
    assert mine[0] in client.events(client.train(data=[again]))


@pytest.mark.parametrize("noise", [{}, {"noise_multiplier": 1.0, "sampling_rate": 0.5}])
def test_noise_for_clients_does_not_cover_images_of_others(client, tmp_path, fedsynth, noise):
    """Ingested and trained on without noise: what they cost and disclose goes with the update, and cannot be noised."""
    brought, again = synthetic(client, fedsynth, **noise), client.private("again.parquet")
    ingest(str(brought), again, reading=Reading(), like=public_copy(client, tmp_path))
    plain = {"noise_multiplier": None, "sampling_rate": None, "delta": None}
    update, out = client.train(data=[again], **plain), client.base / "outbox/message-0001.safetensors"
    mine, about = dataset_file.read_metadata(brought), tensors_file.read(update).metadata
    assert about.privacy == mine.privacy
    assert set(about.disclosures) == {"update", *mine.disclosures}
    words = ["encode", client.model, update, "-o", out, "--clip-norm", 1]
    code, _, err = fedsynth(*words, "--noise-multiplier", 1, "--least-clients", 1)
    assert (code, "noise for whole clients does not " in err) == (3, True), err
    assert not out.exists()
    assert fedsynth(*words)[0] == 0
    sent = tensors_file.read(out).metadata
    assert (sent.privacy, set(sent.disclosures)) == (mine.privacy, {"update", *mine.disclosures})
    model = tmp_path / "server/outbox/model-0001.safetensors"
    settle(tmp_path / "server/private/server.key", keys.Key(bytes(range(32))), force=False)
    dp_mean = ["--rule", "dp-mean", "--clip-norm", 1, "--noise-multiplier", 1, "--sampling-rate", 0.5, "--clients", 4]
    code, _, err = fedsynth("aggregate", client.model, out, "-o", model, *dp_mean)
    assert (code, "noise for whole clients does not " in err) == (3, True), err
    assert not model.exists()
    assert fedsynth("aggregate", client.model, out, "-o", model)[0] == 0
    made = tensors_file.read(model).metadata
    assert (made.privacy, set(made.disclosures)) == (mine.privacy, {"update", *mine.disclosures})


def public_copy(client, tmp_path):
    return client.write(
        tmp_path / "public/like.parquet", client.digits.take(np.arange(20)), custody="public", client=None
    )


def test_private_records_do_not_become_public(client, tmp_path, fedsynth):
    for words in (
        ["ingest", client.data, "-o", tmp_path / "public/laundered.parquet"],
        ["partition", client.data, "--clients", 2, "-o", tmp_path / "run"],
    ):
        code, _, err = fedsynth(*words)
        assert (code, "private dataset of fedsynth's" in err) == (3, True), err
    assert not (tmp_path / "public/laundered.parquet").exists()
    assert not (tmp_path / "run/public").exists()


def test_a_folder_of_our_files_is_looked_through(client, tmp_path, fedsynth):
    """The same file under the name that a folder of Parquet needs."""
    hidden = tmp_path / "innocent/train-0.parquet"
    hidden.parent.mkdir()
    hidden.write_bytes(client.data.read_bytes())
    code, _, err = fedsynth("ingest", hidden.parent, "-o", tmp_path / "public/laundered.parquet")
    assert (code, "private dataset of fedsynth's" in err) == (3, True), err


def test_public_data_of_ours_is_partitioned_as_before(client, tmp_path):
    partition(str(public_copy(client, tmp_path)), tmp_path / "run", params=PartitionParams(clients=2), seed=0)


# 4: a refusal tells.


def exploding(client, tmp_path):
    """Finite weights with which an image has a loss that is not finite: all of them, here."""
    start = tensors_file.read(client.model)
    huge = {name: np.sign(tensor) * np.float32(1e37) for name, tensor in start.tensors.items()}
    out = tmp_path / "public/crafted.safetensors"
    tensors_file.write(out, huge, start.metadata)
    return out


def test_an_update_that_is_not_finite_is_zeros_where_it_is_clipped(client, tmp_path):
    model = exploding(client, tmp_path)
    out = client.private("update-0001.safetensors")
    train_client(model, [client.data], out, params=FedAvgTraining(), seed=0)
    assert not any(tensor.any() for tensor in tensors_file.read(out).tensors.values())
    message = client.base / "outbox/clipped.safetensors"
    encode(model, out, message, params=DeltaEncoding(clip_norm=1.0))
    assert not any(tensor.any() for tensor in tensors_file.read(message).tensors.values())
    shared = client.base / "outbox/shared.safetensors"
    encode(model, out, shared, params=DeltaEncoding(**SHARED))
    assert all(tensor.any() for tensor in tensors_file.read(shared).tensors.values()), "noise alone"


def test_without_a_clip_the_user_is_warned_as_before(client, tmp_path, fedsynth):
    model = exploding(client, tmp_path)
    out = client.private("update-0001.safetensors")
    train_client(model, [client.data], out, params=FedAvgTraining(), seed=0)
    code, _, err = fedsynth("encode", model, out, "-o", client.base / "outbox/m.safetensors")
    assert (code, "training diverged" in err) == (3, True), err
    under_masks = client.private("for-masks.safetensors")
    assert fedsynth("encode", model, out, "-o", under_masks)[0] == 0, "secure aggregation has no refusals either"


def test_a_state_stays_what_it_was(client, tmp_path):
    model = exploding(client, tmp_path)
    state = client.private("state.safetensors")
    train_client(
        model, [client.data], client.private("u.safetensors"), params=ScaffoldTraining(), seed=0,
        state_out=state,
    )  # fmt: skip
    assert not any(tensor.any() for tensor in tensors_file.read(state).tensors.values())


# 6: one share of noise alone.


def test_one_share_of_noise_is_not_decoded(federation, tmp_path, fedsynth):
    """The attack: a headline of 0.530 for a file that is worth 5.658."""
    message = federation.message("00", federation.values(0, 3.0), **SHARED)
    for extra in ([], ["--apply"]):
        out = tmp_path / "server/outbox/m.safetensors" if extra else tmp_path / "server/private/u.safetensors"
        code, _, err = fedsynth("decode", federation.start, message, *extra, "-o", out)
        assert (code, "carries a share" in err) == (3, True), err
        assert not out.exists()


def test_a_share_that_forgot_how_many_it_needs_is_not_averaged(federation, tmp_path):
    """As `decode` wrote them: an update with the event, without the parameters that say how many others it needs."""
    message = tensors_file.read(federation.message("00", federation.values(0, 3.0), **SHARED))
    bare = tmp_path / "server/private/update.safetensors"
    about = dataclasses.replace(message.metadata, kind="update", stage="decode", custody="server", params={})
    tensors_file.write(bare, message.tensors, about)
    with pytest.raises(InputError, match="carries a share"):
        aggregate(federation.start, [bare], tmp_path / "server/outbox/m.safetensors", params=MeanRule())


def test_the_mean_of_enough_shares_is_decoded(federation, tmp_path):
    messages = [federation.message(f"{n:02}", federation.values(n, 3.0), **SHARED) for n in range(3)]
    mean = tmp_path / "server/private/mean.safetensors"
    aggregate(federation.start, messages, mean, params=MeanRule(), result="update")
    decode(federation.start, mean, tmp_path / "server/private/model.safetensors", apply=True)


def test_records_that_were_ingested_cost_nothing_yet(client, tmp_path):
    again = client.private("again.parquet")
    ingest(str(client.data), again, reading=Reading(), like=public_copy(client, tmp_path))
    about = dataset_file.read_metadata(again)
    assert (about.privacy, about.disclosures) == ((), ())
    row = account([client.send(client.train(data=[again]))], delta=1e-5)["clients"][0]
    assert float(row["epsilon"]["pld"]) > 0


# Relatives of 5: weights and masks that carry what a file cost and told.


def test_weights_of_ours_bring_their_events_with_them(client, tmp_path, fedsynth):
    """A private model would become public by `init-model --weights`, and a server's model would lose its ε."""
    like = public_copy(client, tmp_path)
    sent = client.next_model([client.send(client.train())], 1)
    words = ["init-model", "--like", like, "--arch", "mlp", "--width", 6, "--weights"]
    out = tmp_path / "public/again.safetensors"
    assert fedsynth(*words, sent, "-o", out)[0] == 0
    assert tensors_file.read(out).metadata.privacy == tensors_file.read(sent).metadata.privacy != ()
    stated = client.next_model([client.send(client.train(noise_multiplier=None, sampling_rate=None))], 2)
    assert fedsynth(*words, stated, "-o", out, "--force")[0] == 0
    assert tensors_file.read(out).metadata.disclosures == ("update",)
    mine = client.private("model.safetensors")
    about = dataclasses.replace(tensors_file.read(sent).metadata, custody="private", client="00")
    tensors_file.write(mine, tensors_file.read(sent).tensors, about)
    code, _, err = fedsynth(*words, mine, "-o", tmp_path / "public/laundered.safetensors")
    assert (code, "would pass for public" in err) == (3, True), err
    assert not (tmp_path / "public/laundered.safetensors").exists()


# A relative of 4: an image that cannot be decoded.


@pytest.mark.parametrize("stage", ["generator", "records", "fedlap", "feddm"])
def test_an_image_that_cannot_be_decoded_is_black_under_noise(client, fedsynth, stage):
    """Its record counts like any other, and nobody sees a refusal because of it; without noise it is named."""
    data = client.private("damaged.parquet")
    artifact = dataset_file.read(client.data)
    pngs = [png.as_py() for png in artifact.pngs]
    pngs[3] = pngs[3][:20]
    dataset_file.write(data, pngs, artifact.labels, artifact.metadata)
    words = private_stages(data, client.model)[stage]
    assert fedsynth(*words)[0] == 0
    first = words.index("--noise-multiplier")
    code, _, err = fedsynth(*words[:first], *words[first + 4 :], "--force")
    assert (code, "row 3" in err) == (3, True), err


@pytest.mark.parametrize("wrong", ["damaged", "nobody"])
@pytest.mark.parametrize("together", [[], ["--together", 2]])
def test_nothing_in_the_data_makes_a_refusal_where_noise_for_clients_comes_later(client, fedsynth, wrong, together):
    """A client that does not answer shows what is in its data to everyone who sees who answered."""
    data, artifact = client.private(f"{wrong}.parquet"), dataset_file.read(client.data)
    pngs = [png.as_py() for png in artifact.pngs]
    pngs[3], kept = pngs[3][:20], slice(None) if wrong == "damaged" else slice(0)
    dataset_file.write(data, pngs[kept], artifact.labels[kept], artifact.metadata)
    update, out = client.private("later.safetensors"), client.base / "outbox/later.safetensors"
    words = ["train-client", client.model, data, "--local-steps", 2, *together, "-o", update]
    assert fedsynth(*words)[0] == 3
    assert fedsynth(*words, "--covered-as", "client")[::2] == (0, "")
    found = tensors_file.read(update)
    assert any(tensor.any() for tensor in found.tensors.values()) == (wrong == "damaged")
    encoding = ["encode", client.model, update, "-o", out]
    if wrong == "nobody":
        code, _, err = fedsynth(*encoding)
        assert (code, "trained on no images" in err) == (3, True), err
    code, _, err = fedsynth(*encoding, "--clip-norm", 1)
    assert code == 0, err


@pytest.mark.parametrize("value", [0.0, np.float32(1e-30)])
def test_an_update_that_residuals_hardly_carry_goes_under_masks_like_any_other(client, fedsynth, value):
    """Zeros, where training diverged, point nowhere: a refusal would show it to all who see who answered."""
    update = client.train(noise_multiplier=None, sampling_rate=None)
    found = tensors_file.read(update)
    counts = {"num_examples": 40, "local_steps": 0 if value == 0 else 3}
    flat = {name: np.full_like(tensor, value) for name, tensor in found.tensors.items()}
    tensors_file.write(update, flat, dataclasses.replace(found.metadata, counts=counts), force=True)
    words = ["encode", client.model, update, "--method", "public-images", "--images", 8, "--iterations", 2]
    words += ["--least-cosine", 0.999, "-o"]
    assert fedsynth(*words, client.base / "outbox/message.safetensors")[0] == 3
    out = client.private("unsent.safetensors")
    code, _, err = fedsynth(*words, out)
    assert (code, err) == (0, "")
    assert all(np.isfinite(tensor).all() for tensor in tensors_file.read(out).tensors.values())


def test_noise_for_clients_that_comes_later_is_not_said_beside_noise_for_records(client, fedsynth):
    words = private_stages(client.data, client.model)["records"]
    assert fedsynth(*words, "--covered-as", "client")[0] == 2
