"""Small networks and sets for the methods that send synthetic sets, and participants who send them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from federation import Federation
from scipy import stats
from torch import nn

from artifacts.formats import tensors_file
from stages.init_model import init_model
from stages.methods.surrogate_nets import LabelledSet
from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.registry import ENCODERS, NETWORKS, RULES
from stages.surrogates.client import encode_surrogate
from stages.surrogates.server import aggregate_surrogates

# Enough of everything to be fast.
QUICK = {
    "fedlap": {"method": "fedlap", "images_per_class": 2, "points": 2, "batches": 1, "image_steps": 1,
               "model_steps": 1},
    "feddm": {"method": "feddm", "images_per_class": 2, "iterations": 3, "image_rate": 0.1},
}  # fmt: skip
NOISY = {
    "fedlap": {"noise_multiplier": 1.0, "sampling_rate": 0.3, "batch_size": 8},
    # So few records stand out of the noise only if most of their length goes to the counts.
    "feddm": {"noise_multiplier": 1.0, "sampling_rate": 0.3, "count_share": 0.9},
}
SERVER = {
    "fedlap": {"rule": "fedlap", "radius": 1.0, "server_steps": 3},
    "feddm": {"rule": "feddm", "server_epochs": 2},
}
NOISE = {"noise_multiplier", "target_epsilon"}
CHANCE = 1e-11  # of a false alarm, on each side: some of the draws are other ones on another processor


# The maths.


class OneWeight(nn.Module):
    """Logits (w·x, 0) for images of one pixel: with it one can count by hand."""

    def __init__(self, weight=0.0):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(weight, dtype=torch.float64))

    def forward(self, images):
        x = images.reshape(-1)
        return torch.stack([self.w * x, torch.zeros_like(x)], dim=1)


@pytest.fixture(scope="session")
def one_weight():
    return OneWeight


@pytest.fixture(scope="session")
def net():
    """A network for square images of one channel; in float64 unless it is said otherwise."""

    def make(arch="mlp", *, size=4, classes=3, dtype=torch.float64, seed=0, **params):
        sizes = {"mlp": {"width": 8}, "convnet": {"width": 4, "depth": 1}}.get(arch, {})
        shape = InputShape(channels=1, height=size, width=size, num_classes=classes)
        module = build(NETWORKS.from_mapping({"arch": arch, **sizes, **params}), shape)
        initialise(module, torch.Generator().manual_seed(seed))
        return module.to(dtype).eval()

    return make


@pytest.fixture(scope="session")
def some():
    """Random labelled images, each class at least once."""

    def make(count, *, size=4, classes=3, dtype=torch.float64, seed=1):
        generator = torch.Generator().manual_seed(seed)
        images = torch.randn(count, 1, size, size, generator=generator, dtype=torch.float64)
        return LabelledSet(images.to(dtype), torch.arange(count) % classes)

    return make


@pytest.fixture(scope="session")
def slow_gradient():
    """∇_w of the mean loss by autograd through a copy of the network; written apart from the code under test."""

    def of(module, weights, images, labels, create_graph=False):
        leaves = {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
        logits = torch.func.functional_call(module, leaves, (images,))
        picked = logits.log_softmax(dim=1)[torch.arange(len(labels)), labels]
        found = torch.autograd.grad(-picked.sum() / len(labels), list(leaves.values()), create_graph=create_graph)
        return dict(zip(leaves, found, strict=True))

    return of


@pytest.fixture(scope="session")
def slow_distance():
    """Eq. 16 to 19, row by row, in Python: differentiable by autograd."""

    def of(real, synthetic, *, kind="cosine+mse", weight=0.1, rows="mean"):
        total = 0.0
        for name, a in real.items():
            b = synthetic[name]
            pairs = list(zip(a, b, strict=True)) if a.dim() > 1 else [(a, b)]
            for x, y in pairs:
                if kind != "mse":
                    lengths = torch.linalg.vector_norm(x) * torch.linalg.vector_norm(y) + 1e-6
                    total = total + (1 - torch.tensordot(x, y, x.dim()) / lengths) / (
                        len(pairs) if rows == "mean" else 1
                    )
                if kind != "cosine":
                    total = total + (1.0 if kind == "mse" else weight) * ((x - y) ** 2).sum()
        return total

    return of


@pytest.fixture(scope="session")
def slope_of():
    """Central differences of a function of images at some of its pixels: [(pixel, slope)]."""

    def of(function, images, pixels=12, step=1e-5):
        found = []
        for pixel in np.random.default_rng(0).choice(images.numel(), min(pixels, images.numel()), replace=False):
            moved = [images.clone() for _ in range(2)]
            for sign, one in zip((1, -1), moved, strict=True):
                one.view(-1)[pixel] += sign * step
            found.append((pixel, (float(function(moved[0])) - float(function(moved[1]))) / (2 * step)))
        return found

    return of


@pytest.fixture(scope="session")
def has_scale():
    """Whether the standard deviation of normal draws with known mean 0 may be `scale`: the exact χ² test."""

    def test(draws, scale):
        square = float(np.sum(np.square(draws / scale)))
        return min(stats.chi2.cdf(square, draws.size), stats.chi2.sf(square, draws.size)) > CHANCE

    return test


# The files.


class Surrogates(Federation):
    """Clients with some digits each and a small model; every file is made in this process."""

    def __init__(self, root, digits, arch="mlp", **net):
        super().__init__(root)
        self.digits = digits
        others = digits.take(np.arange(len(digits.labels))[-2:])  # no client has them
        some = self.write(root / "public/some.parquet", others, custody="public", client=None)
        self.model = root / "public/model-0000.safetensors"
        sizes = {"mlp": {"width": 8}, "convnet": {"width": 4, "depth": 1}}.get(arch, {})
        init_model(some, self.model, params=NETWORKS.from_mapping({"arch": arch, **sizes, **net}), seed=1)
        self.settle("server")

    def client(self, name, classes=(0, 1), count=24, key=None):
        """Its data, the first digits of these classes."""
        data = self.root / f"clients/{name}/private/data.parquet"
        if not data.exists():
            rows = np.flatnonzero(np.isin(self.digits.labels, classes))[:count]
            self.write(data, self.digits.take(rows), client=name)
            self.settle(name, key)
        return data

    def encode(
        self, name="00", method="fedlap", *, data=None, model=None, out=None, previous=None, metrics=None, **given
    ):
        mine = self.client(name)
        out = out or self.surrogate(name, 1 if model is None else int(model.stem[-4:]) + 1)
        quick = QUICK[method] | ({"radius_steps": 3} if method == "fedlap" and not set(given) & NOISE else {})
        params = ENCODERS.from_mapping({**quick, **given})
        model, data = model or self.model, data or mine
        encode_surrogate(model, data, out, params=params, previous=previous, metrics=metrics, client=name, force=True)
        return out

    def noisy(self, name="00", method="fedlap", **given):
        return self.encode(name, method, **{**NOISY[method], **given})

    def surrogate(self, name, number):
        return self.root / f"clients/{name}/outbox/surrogate-{number:04}.safetensors"

    def aggregate(self, surrogates, method="fedlap", *, model=None, metrics=None, strict=False, out=None, **given):
        model = model or self.model
        out = out or self.root / f"server/outbox/model-{int(model.stem[-4:]) + 1:04}.safetensors"
        params = RULES.from_mapping({**SERVER[method], **given})
        stated = aggregate_surrogates(model, surrogates, out, params=params, metrics=metrics, strict=strict, force=True)
        return SimpleNamespace(path=out, stated=stated)

    def charges(self, name="00"):
        return self.charged(name)


@pytest.fixture
def federation(tmp_path, digits):
    return Surrogates(tmp_path, digits)


@pytest.fixture(scope="session")
def make_federation(digits):
    return lambda root, **net: Surrogates(root, digits, **net)


@pytest.fixture(scope="session")
def read():
    return tensors_file.read
