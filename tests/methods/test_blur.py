"""BLUR: the penalty's gradient against its definition, steps worked by hand, and what it does to a norm."""

import numpy as np
import pytest
import torch
from torch import nn

from stages.methods.blur import UpdatePenalty
from stages.methods.fedavg import FedAvg
from stages.methods.fedprox import FedProx
from stages.methods.local_training import train_locally
from stages.methods.params.fedavg import FedAvgTraining
from stages.registry import ALGORITHMS

START = np.array([1.0, -2.0, 0.5, 3.0])


class Two(nn.Module):
    """Two tensors of two weights each, and a buffer: the norm is over the weights of both."""

    def __init__(self, values=START):
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.tensor(part)) for part in (values[:2], values[2:]))
        self.register_buffer("running", torch.zeros(3))

    def vector(self):
        return nn.utils.parameters_to_vector(self.parameters())

    def gradients(self):
        return torch.cat([self.first.grad, self.second.grad]).numpy()


def penalty_of(w, weight, bound):
    return weight / 2 * max(0.0, np.sum((w - START) ** 2) - bound**2)


@pytest.mark.parametrize("bound", [0.2, 1.0, 5.0])
def test_the_gradient_of_the_penalty(bound):
    """Central differences of λ/2·max(0, ‖w − w₀‖² − S²), inside the bound and beyond it."""
    w = START + np.array([0.3, -0.4, 1.2, 0.0])  # ‖w − w₀‖ = 1.3
    module = Two()
    penalty = UpdatePenalty(dict(module.named_parameters()), weight=0.7, bound=bound)
    nn.utils.vector_to_parameters(torch.from_numpy(w), module.parameters())
    for weight in module.parameters():
        weight.grad = torch.ones_like(weight)
    penalty.correct(dict(module.named_parameters()))
    steps = np.eye(4) * 1e-6
    slope = [(penalty_of(w + h, 0.7, bound) - penalty_of(w - h, 0.7, bound)) / 2e-6 for h in steps]
    np.testing.assert_allclose(module.gradients(), 1 + np.array(slope), atol=1e-8)
    assert np.any(np.abs(slope) > 0.1) == (bound < 1.3)


def test_just_inside_nothing_is_added():
    """3-4-5: at ‖w − w₀‖ = S the penalty is zero, and one bit beyond it pulls."""
    for bound, pulled in ((5.0, False), (np.nextafter(5.0, 0), True)):
        module = Two()
        penalty = UpdatePenalty(dict(module.named_parameters()), weight=1.0, bound=bound)
        with torch.no_grad():
            module.first.add_(torch.tensor([3.0, 0.0]))
            module.second.add_(torch.tensor([0.0, 4.0]))
        for weight in module.parameters():
            weight.grad = torch.zeros_like(weight)
        penalty.correct(dict(module.named_parameters()))
        assert module.gradients().any() == pulled


def run_locally(params, algorithm, gradient):
    module = Two()
    total = params.local_steps

    def step():
        module.zero_grad(set_to_none=True)
        (module.vector() * torch.from_numpy(gradient)).sum().backward()

    train_locally(
        module, [step] * total, total=total, params=params, algorithm=algorithm(dict(module.named_parameters())),
        round=1, report=lambda done, total, loss: None,
    )  # fmt: skip
    return module.vector().detach().numpy()


SLOPE = np.array([1.0, -2.0, 0.5, 1.5])


@pytest.mark.parametrize(("mu", "momentum"), [(0.0, 0.0), (0.4, 0.0), (0.0, 0.5)])
def test_steps_by_hand(mu, momentum):
    """It comes beside a proximal term, at the same weights, and goes through momentum like any gradient."""
    name = {"algorithm": "fedprox", "mu": mu} if mu else {}
    params = ALGORITHMS.from_mapping(
        {"local_steps": 6, "momentum": momentum, "update_bound": 0.5, "update_penalty": 2.0, **name}
    )
    end = run_locally(params, lambda named: FedProx(named, mu) if mu else FedAvg(), SLOPE)
    w, moved, beyond = START.copy(), 0.0, 0
    for _ in range(6):
        away = w - START
        outside = np.sqrt((away**2).sum()) > 0.5
        beyond += outside
        moved = momentum * moved + SLOPE + mu * away + (2.0 * away if outside else 0.0)
        w = w - 0.1 * moved
    assert 0 < beyond < 6, "both sides of the bound are visited"
    np.testing.assert_allclose(end, w, rtol=1e-12)


def test_it_holds_the_update_small():
    """Where λ(w − w₀) meets a steady gradient the weights stop: at ‖g‖/λ, or about S if that is further out."""
    plain = FedAvgTraining(local_steps=200)
    lengths = {}
    for name, params in {
        "plain": plain,
        "weak": FedAvgTraining(local_steps=200, update_bound=0.2, update_penalty=1.0),
        "strong": FedAvgTraining(local_steps=200, update_bound=0.2, update_penalty=15.0),
        "no weight": FedAvgTraining(local_steps=200, update_bound=0.2, update_penalty=0.0),
    }.items():
        end = run_locally(params, lambda named: FedAvg(), SLOPE)
        lengths[name] = np.linalg.norm(end - START)
    size = np.linalg.norm(SLOPE)
    assert lengths["plain"] == lengths["no weight"] == pytest.approx(200 * 0.1 * size)
    assert lengths["weak"] == pytest.approx(size, rel=1e-6)
    assert lengths["strong"] < 0.2 + 0.1 * size


def test_the_default_weight_and_what_the_metadata_say():
    assert FedAvgTraining(update_bound=0.2).update_penalty == 1.0
    assert FedAvgTraining(update_bound=0.2, update_penalty=3).update_penalty == 3.0
    assert not {"update_bound", "update_penalty"} & FedAvgTraining().to_json().keys()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"update_bound": 0}, "--update-bound must be above 0"),
        ({"update_bound": 0.2, "update_penalty": -1}, "--update-penalty must be 0 or more"),
        ({"update_penalty": 1.0}, "--update-penalty goes with --update-bound"),
        ({"update_bound": float("inf")}, "--update-bound"),
    ],
)
def test_refusals(values, said):
    with pytest.raises(ValueError, match=said):
        FedAvgTraining.from_mapping(values)


def test_on_the_command_line(fedsynth_json, finished_run, tmp_path):
    """Of a real training: the update is shorter, and says why."""
    from artifacts.formats import tensors_file

    model, data = finished_run / "public/model-0000.safetensors", finished_run / "clients/00/private/data.parquet"
    norms = []
    for number, flags in enumerate([[], ["--update-bound", "0.1"], ["--update-bound", "0.1", "--update-penalty", "5"]]):
        out = tmp_path / f"{number}/00/private/update-0001.safetensors"
        fedsynth_json("train-client", model, data, "-o", out, *flags)
        artifact = tensors_file.read(out)
        norms.append(np.sqrt(sum(np.square(tensor.astype(float)).sum() for tensor in artifact.tensors.values())))
    assert norms[0] > norms[1] > norms[2]
    assert artifact.metadata.params["update_penalty"] == 5.0
    assert artifact.metadata.params["update_bound"] == 0.1
