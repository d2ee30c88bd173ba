"""`--micro-batch` of TOFU: the same proxy with the graph of a few of its images in memory at a time."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from artifacts.errors import UsageError
from stages.methods import public_images, tofu
from stages.methods.params.public_images import PublicImages
from stages.methods.params.tofu import TofuEncoding
from stages.methods.residuals import centred
from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.proxies.encoder import check_network
from stages.registry import NETWORKS

SHAPE = InputShape(channels=1, height=8, width=8, num_classes=10)
SIZE = 4


@pytest.fixture(scope="module")
def net():
    """In float64, so that only the order of the sums differs."""
    module = build(NETWORKS.from_mapping({"arch": "mlp", "width": 8}), SHAPE)
    initialise(module, torch.Generator().manual_seed(0))
    return module.double()


@pytest.fixture(scope="module")
def update(net):
    random = torch.Generator().manual_seed(1)
    leaves = {name: weight.detach().requires_grad_() for name, weight in net.named_parameters()}
    images = torch.randn(16, 1, 8, 8, generator=random, dtype=torch.float64)
    loss = nn.functional.cross_entropy(functional_call(net, leaves, (images,)), torch.arange(16) % 10)
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def first(count):
    random = torch.Generator().manual_seed(2)
    sizes = ((count, 1, 8, 8), (count, 10), (count,))
    return tuple(torch.randn(size, generator=random, dtype=torch.float64) for size in sizes)


@pytest.mark.parametrize("solver", ["paper", "residuals"])
def test_a_proxy_in_pieces_is_the_proxy(net, update, solver, monkeypatch):
    """Ten images, by four: what the search holds between its passes is of a piece; one plain pass is of all."""
    graphs, grad = [], torch.autograd.grad

    def noted(outputs, *rest, create_graph=False, **options):
        if create_graph:
            graphs.append(current[-1])
        return grad(outputs, *rest, create_graph=create_graph, **options)

    current, traced = [], tofu.traced
    monkeypatch.setattr(tofu, "traced", lambda module, images: current.append(len(images)) or traced(module, images))
    monkeypatch.setattr(torch.autograd, "grad", noted)

    def run(size):
        graphs.clear()
        params = TofuEncoding(images=10, iterations=6, solver=solver, micro_batch=size)
        found = tofu.encode(
            net, update, first(10), params=params, sent=lambda images: images, report=lambda *_: None
        )  # fmt: skip
        proxy = found.proxy
        return [proxy.images, proxy.residuals, proxy.scales, torch.tensor(found.cosines)], max(graphs)

    (whole, before), (pieces, after) = run(None), run(SIZE)
    assert (before, after) == (10, SIZE)
    torch.testing.assert_close(pieces, whole, rtol=1e-5, atol=1e-8)
    assert not torch.equal(whole[0], first(10)[0])


def test_residuals_of_public_images_in_pieces(net, update):
    images = first(10)[0]
    whole, pieces = (
        public_images.solve(net, update, images, PublicImages(images=10, iterations=8, micro_batch=size))
        for size in (None, SIZE)
    )
    torch.testing.assert_close(pieces, whole, rtol=1e-6, atol=1e-10)


def test_both_products_of_pieces_against_jacobians(net):
    """Jᵀr and Jv, with J formed by torch."""
    images, _, _ = first(6)
    system = tofu.linear(net, images, SIZE)
    weights = {name: weight.detach() for name, weight in net.named_parameters()}
    jacobian = torch.func.jacrev(lambda values: functional_call(net, values, (images,)))(weights)
    rows = torch.cat([part.reshape(60, -1) for part in jacobian.values()], dim=1)
    residuals = torch.randn(6, 10, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    direction = torch.randn(rows.shape[1], generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    torch.testing.assert_close(system.gradient(residuals), residuals.flatten() @ rows)
    torch.testing.assert_close(system.answer(direction), centred((rows @ direction).reshape(6, 10)))


@pytest.mark.parametrize("method", ["tofu", "public-images"])
def test_files_say_so(fedsynth_json, run_copy, method):
    out = run_copy / "clients/00/outbox/pieces.safetensors"
    model, update = run_copy / "public/model-0000.safetensors", run_copy / "clients/00/private/update-0001.safetensors"
    options = ["--method", method, "--images", "6", "--iterations", "2", "--least-cosine", "0", "--micro-batch", "4"]
    fedsynth_json("encode", model, update, *options, "-o", out)
    assert fedsynth_json("inspect", out)["params"]["micro_batch"] == 4


@pytest.mark.parametrize("params", [TofuEncoding(micro_batch=4), PublicImages(micro_batch=4)])
def test_batch_norm_takes_no_pieces(params):
    """Its statistics are those of all images of the proxy."""
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10)).eval()
    with pytest.raises(UsageError, match=r"--micro-batch: 1 is a batch norm.*--norm group") as refused:
        check_network(params, module, NETWORKS.from_mapping({"arch": "mlp"}), SHAPE, images_move=True)
    assert refused.value.exit_code == 2
