"""torchvision's networks: with public weights, frozen but for a part, trained with and without privacy."""

import hashlib
import pickle

import pytest
import torch

from artifacts.formats import tensors_file
from stages.nets.torchvision_door import torchvision

NET = "torchvision:mobilenet_v3_small"


@pytest.fixture(scope="module")
def torchvisions():
    """torchvision's own network for seven classes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return torchvision().models.get_model("mobilenet_v3_small", num_classes=7).eval()


@pytest.fixture
def split(tmp_path, fedsynth_json):
    fedsynth_json("partition", "digits", "--clients", "40", "-o", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def make(split, fedsynth):
    def call(*options, name="model"):
        out = split / f"public/{name}.safetensors"
        return fedsynth("init-model", "--like", split / "public/test.parquet", "-o", out, *options), out

    return call


@pytest.fixture
def weights(tmp_path, torchvisions):
    path = tmp_path / "weights.pth"
    torch.save(torchvisions.state_dict(), path)
    return path


def test_public_weights_are_taken_over_and_their_digest_is_recorded(make, weights, torchvisions, tmp_path):
    (code, _, err), model = make("--arch", NET, "--weights", weights)
    assert code == 0, err
    artifact = tensors_file.read(model)
    (reference,) = artifact.metadata.inputs
    assert (reference.role, reference.sha256) == ("weights", hashlib.sha256(weights.read_bytes()).hexdigest())
    for name, tensor in torchvisions.state_dict().items():
        if not name.startswith("classifier.3."):  # seven classes there, ten here
            assert (artifact.tensors[f"trunk.{name}"] == tensor.numpy()).all(), name
    assert artifact.tensors["classifier.logits.weight"].shape == (10, 1024)


def test_safetensors_give_the_same_model(make, weights, torchvisions, tmp_path):
    from safetensors.torch import save_file

    other = tmp_path / "weights.safetensors"
    save_file(torchvisions.state_dict(), other)
    assert (
        make("--arch", NET, "--weights", weights)[0][0] == make("--arch", NET, "--weights", other, name="b")[0][0] == 0
    )
    a, b = (tensors_file.read(weights.parent / f"run/public/{name}.safetensors").tensors for name in ("model", "b"))
    assert all((a[name] == b[name]).all() for name in a)


def test_the_network_is_torchvisions(make, weights, torchvisions):
    """Under torchvision's own weights, head included, the logits are torchvision's own."""
    from stages.nets.build import with_weights
    from stages.nets.params import InputShape
    from stages.registry import NETWORKS

    shape = InputShape(channels=1, height=32, width=32, num_classes=7)
    net = NETWORKS.from_mapping({"arch": NET})
    renamed = {
        f"classifier.logits.{n[13:]}" if n.startswith("classifier.3.") else f"trunk.{n}": t
        for n, t in torchvisions.state_dict().items()
    }
    ours = with_weights(net, shape, renamed).eval()
    images = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(ours(images), torchvisions(images.expand(-1, 3, -1, -1)))


class Bomb:
    def __reduce__(self):
        return (exec, ("import pathlib; pathlib.Path('exploded').write_text('x')",))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: path.write_bytes(pickle.dumps(Bomb())), "Nothing in it was run"),
        (lambda path: torch.save({"a": Bomb()}, path), "Nothing in it was run"),
        (lambda path: torch.save([1, 2], path), "is no state dict"),
        (lambda path: torch.save({"features.0.0.weight": 1}, path), "its entry 'features.0.0.weight' is int"),
        (lambda path: torch.save({"model": {"w": torch.ones(1)}}, path), "its entry 'model' is dict"),
        (lambda path: torch.save({"foreign": torch.ones(1)}, path), "does not fit the network"),
        (lambda path: path.write_bytes(b"nothing"), "Nothing in it was run"),
        (lambda path: None, "cannot read the weights"),
    ],
)
def test_what_is_no_state_dict_of_the_network_is_refused(write, said, make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "odd.pth"
    write(path)
    (code, _, err), model = make("--arch", NET, "--weights", path)
    assert code == 3 and said in err and str(path) in err
    assert "weights_only" not in err and "Warning" not in err, "no advice to run what is in it"
    assert not model.exists() and not (tmp_path / "exploded").exists()


def test_a_tensor_of_another_shape_is_named(make, torchvisions, tmp_path):
    path = tmp_path / "odd.pth"
    torch.save({**torchvisions.state_dict(), "features.0.0.weight": torch.ones(16, 3, 5, 5)}, path)
    (code, _, err), _ = make("--arch", NET, "--weights", path)
    assert code == 3 and "'trunk.features.0.0.weight' has the shape [16, 3, 5, 5]" in err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensor: tensor * float("nan"), "holds NaN or infinity as torch.float32"),
        (lambda tensor: tensor.double() + 1e300, "holds NaN or infinity as torch.float32"),
        (lambda tensor: tensor.to(torch.complex64), "is torch.strided of torch.complex64"),
        (lambda tensor: tensor.to_sparse(), "is torch.sparse_coo of torch.float32"),
    ],
)
def test_a_tensor_that_no_model_can_hold_is_named(change, said, make, torchvisions, tmp_path):
    path = tmp_path / "odd.pth"
    whole = torchvisions.state_dict()
    torch.save({**whole, "features.0.0.weight": change(whole["features.0.0.weight"])}, path)
    (code, _, err), model = make("--arch", NET, "--weights", path)
    assert code == 3 and f"tensor 'trunk.features.0.0.weight' {said}" in err
    assert not model.exists()


def test_only_what_is_not_frozen_is_trained_and_sent(make, split, fedsynth, weights):
    (code, _, err), model = make("--arch", NET, "--weights", weights, "--freeze", "trunk.*")
    assert code == 0, err
    private = split / "clients/00/private"
    code, _, err = fedsynth(
        "train-client", model, private / "data.parquet", "--local-steps", "2", "-o", private / "update.safetensors"
    )
    assert code == 0, err
    sent = tensors_file.read(private / "update.safetensors").tensors
    assert set(sent) == {"classifier.logits.weight", "classifier.logits.bias"}
    assert all(abs(tensor).max() > 0 for tensor in sent.values())
    message = split / "clients/00/outbox/message.safetensors"
    assert fedsynth("encode", model, private / "update.safetensors", "-o", message)[0] == 0
    nxt = split / "server/outbox/model-0001.safetensors"
    code, _, err = fedsynth("aggregate", model, message, "-o", nxt)
    assert code == 0, err
    before, after = tensors_file.read(model).tensors, tensors_file.read(nxt).tensors
    assert before.keys() == after.keys()
    assert {name for name in before if (before[name] != after[name]).any()} == set(sent)


def test_batch_norm_is_refused_under_privacy_with_the_remedy(make, split, fedsynth):
    (code, _, _), model = make("--arch", NET)
    private = split / "clients/00/private"
    assert fedsynth("keygen", "-o", private / "client.key")[0] == 0
    code, _, err = fedsynth(
        "train-client", model, private / "data.parquet", "--noise-multiplier", "1", "--clip-norm", "1",
        "--sampling-rate", "0.1", "--local-steps", "1", "-o", private / "update.safetensors",
    )  # fmt: skip
    assert code == 2 and "batch norm" in err and "--norm group" in err
