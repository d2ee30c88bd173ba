"""TOFU with public images: residuals are those of least squares, messages add up, and the images are everybody's."""

import copy

import numpy as np
import pytest
import torch

from artifacts.formats import tensors_file
from stages.methods import public_images
from stages.methods.params.public_images import PublicImages
from stages.methods.row_cosines import flat
from stages.methods.tofu import cosine_of
from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.registry import NETWORKS

SHAPE = InputShape(channels=1, height=8, width=8, num_classes=10)
FEW = PublicImages(images=12, iterations=600, coarse=4)


@pytest.fixture(scope="module")
def net():
    module = build(NETWORKS.from_mapping({"arch": "mlp", "width": 8}), SHAPE)
    initialise(module, torch.Generator().manual_seed(0))
    return module


def update(net, seed):
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(weight.shape, generator=random) for name, weight in net.named_parameters()}


def test_the_residuals_are_those_of_a_dense_solver(net):
    """J row by row, and dense least squares over residuals whose rows sum to zero; in float64, J has small values."""
    net = copy.deepcopy(net).double()
    wanted = {name: part.double() for name, part in update(net, 1).items()}
    target = flat(list(wanted.values()))
    images = public_images.draw(FEW, (1, 8, 8), 5).double()
    leaves = list(net.parameters())
    rows = [flat(torch.autograd.grad(z, leaves, retain_graph=True)) for z in net(images).flatten()]
    basis = torch.eye(10).sub(0.1)[:, :9].double()
    columns = torch.einsum("ncp,ck->nkp", torch.stack(rows).view(12, 10, -1), basis).reshape(108, -1).T
    best = columns @ torch.linalg.lstsq(columns, target, driver="gelsd").solution
    found = public_images.gradient(net, images, public_images.solve(net, wanted, images, FEW))
    left = (flat(list(found.values())) - target).norm()
    assert float(left) == pytest.approx(float((best - target).norm()), rel=1e-3)


def test_the_sum_of_messages_is_the_message_of_the_sum(net):
    images = public_images.draw(FEW, (1, 8, 8), 5)
    residuals = [public_images.solve(net, update(net, seed), images, FEW) for seed in (1, 2)]
    both = public_images.gradient(net, images, residuals[0] + residuals[1])
    parts = [public_images.gradient(net, images, one) for one in residuals]
    for name, part in both.items():
        torch.testing.assert_close(part, parts[0][name] + parts[1][name], rtol=1e-4, atol=1e-5)


def test_images_are_smooth_and_follow_from_the_seed_alone():
    a, again, other = (public_images.draw(FEW, (3, 16, 16), seed) for seed in (1, 1, 2))
    assert a.shape == (12, 3, 16, 16) and torch.equal(a, again) and not torch.equal(a, other)
    steps = (a[..., 1:] - a[..., :-1]).square().mean() / a.var()
    assert float(steps) < 0.5, "neighbours resemble each other; of white noise this is 2"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from fedsynth_cli.app import run as command

    run = tmp_path_factory.mktemp("public") / "run"
    model = run / "public/model-0000.safetensors"
    steps = [["partition", "digits", "--clients", 2, "-o", run]]
    steps += [["init-model", "--arch", "mlp", "--width", 8, "--like", run / "public/test.parquet", "-o", model]]
    words = ["--method", "public-images", "--images", 32, "--least-cosine", 0]
    for client in ("00", "01"):
        home = run / "clients" / client
        made = home / "private/update.safetensors"
        steps += [["train-client", model, home / "private/data.parquet", "--local-steps", 3, "-o", made]]
        steps += [["encode", model, made, *words, "-o", home / "outbox/residuals-0001.safetensors"]]
    for each in steps:
        assert command([*map(str, each), "-q"]) == 0
    return run


def test_over_files_the_mean_decodes_and_the_audit_passes(fedsynth, run, tmp_path):
    model = run / "public/model-0000.safetensors"
    sent = [run / f"clients/{client}/outbox/residuals-0001.safetensors" for client in ("00", "01")]
    found = tensors_file.read(sent[0])
    assert list(found.tensors) == ["residuals"] and found.tensors["residuals"].shape == (32, 10)
    assert (found.metadata.kind, found.metadata.disclosures) == ("residuals", ("update",))
    out = run / "server/private/update.safetensors"
    code, _, err = fedsynth("aggregate", model, *sent, "--as", "update", "-q", "-o", out)
    assert code == 0, err
    decoded = []
    for number, path in enumerate(sent):
        each = tmp_path / f"{number}.safetensors"
        assert fedsynth("decode", model, path, "-q", "-o", each)[0] == 0
        decoded.append(tensors_file.read(each).tensors)
    for name, tensor in tensors_file.read(out).tensors.items():
        np.testing.assert_allclose(tensor, (decoded[0][name] + decoded[1][name]) / 2, rtol=1e-5, atol=1e-8)
    update = tensors_file.read(run / "clients/00/private/update.safetensors").tensors
    flatten = [torch.cat([torch.from_numpy(t[n].copy()).flatten() for n in sorted(t)]) for t in (decoded[0], update)]
    assert cosine_of(*flatten) > 0.3
    code, shown, _ = fedsynth("audit", run, "--replay")
    assert code == 0 and "PASS" in shown, shown


def test_residuals_that_do_not_fit_and_useless_ones_are_refused(fedsynth, run, tmp_path):
    model = run / "public/model-0000.safetensors"
    good = tensors_file.read(run / "clients/00/outbox/residuals-0001.safetensors")
    bad = tmp_path / "00/outbox/bad.safetensors"
    tensors_file.write(bad, {"residuals": np.zeros((31, 10), np.float32)}, good.metadata)
    out = tmp_path / "model.safetensors"
    code, _, err = fedsynth("decode", model, bad, "--apply", "-o", out)
    assert code == 3 and "does not fit the model" in err and not out.exists()
    words = ["--method", "public-images", "--images", 1, "--iterations", 1, "--least-cosine", 0.999]
    useless = run / "clients/00/outbox/useless.safetensors"
    start = ("encode", model, run / "clients/00/private/update.safetensors")
    code, _, err = fedsynth(*start, *words, "-q", "-o", useless)
    assert code == 3 and "decode to a cosine of" in " ".join(err.split()) and not useless.exists()
