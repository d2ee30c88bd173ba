"""FedLAP's server: Eq. 11 against a loop in plain numbers, the radius and its strategies, Eq. 18."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import torch

from artifacts.formats import tensors_file
from stages.methods.fedlap_server import Contribution, optimise
from stages.methods.surrogate_nets import LabelledSet, distance, start_weights


def pixel(*labelled):
    """A set of one-pixel images: (x, label)."""
    images = torch.tensor([x for x, _ in labelled], dtype=torch.float64).reshape(-1, 1, 1, 1)
    return LabelledSet(images, torch.tensor([label for _, label in labelled]))


CLIENTS = [([(1.0, 0), (-2.0, 0), (0.5, 1)], 0.7), ([(1.5, 0)], 0.3)]


def slope(w, pixels):
    """dL/dw by hand: the mean of x·(σ(wx) − [label 0])."""
    return sum(x * (1 / (1 + math.exp(-w * x)) - (label == 0)) for x, label in pixels) / len(pixels)


def contributions():
    return [Contribution(pixel(*pixels), weight) for pixels, weight in CLIENTS]


def test_it_is_eq_11(one_weight):
    w = 0.3
    found, trace = optimise(one_weight(w), contributions(), radius=None, steps=7, rate=0.5)
    for step in trace:
        loss = sum(
            weight * sum(math.log1p(math.exp(-w * x if label == 0 else w * x)) for x, label in pixels) / len(pixels)
            for pixels, weight in CLIENTS
        )
        assert step.loss == pytest.approx(loss)
        w -= 0.5 * sum(weight * slope(w, pixels) for pixels, weight in CLIENTS)
        assert step.distance == pytest.approx(abs(w - 0.3))
    assert len(trace) == 7
    assert float(found["w"]) == pytest.approx(w)


def test_the_step_that_would_leave_the_radius_is_not_taken(one_weight):
    free, path = optimise(one_weight(), contributions(), radius=None, steps=50, rate=0.5)
    radius = (path[3].distance + path[4].distance) / 2
    found, trace = optimise(one_weight(), contributions(), radius=radius, steps=50, rate=0.5)
    assert [step.distance for step in trace] == [step.distance for step in path[:4]]
    assert abs(float(found["w"])) == pytest.approx(trace[-1].distance)
    assert trace[-1].distance <= radius < path[4].distance
    nowhere, none = optimise(one_weight(0.25), contributions(), radius=1e-9, steps=50, rate=0.5)
    assert (float(nowhere["w"]), none) == (0.25, [])
    assert float(free["w"]) != float(found["w"])


def test_a_descent_that_is_no_number_stays_where_it_was(one_weight):
    wild = [Contribution(pixel((1e200, 1), (-1e200, 1)), 1.0)]
    found, trace = optimise(one_weight(0.5), wild, radius=1e300, steps=9, rate=1e200)
    assert (float(found["w"]), trace) == (0.5, [])


def test_calibration_gives_each_layer_the_norm_that_was_measured(net, some):
    """Eq. 18, one step of one client: every tensor moves by η times its norm, along its gradient."""
    module, data = net("convnet"), some(6)
    start = start_weights(module)
    norms = torch.linspace(0.5, 2.0, len(start), dtype=torch.float64)
    plain, _ = optimise(module, [Contribution(data, 1.0)], radius=None, steps=1, rate=0.1)
    found, _ = optimise(module, [Contribution(data, 1.0, norms)], radius=None, steps=1, rate=0.1)
    for norm, name in zip(norms, start, strict=True):
        moved, free = found[name] - start[name], plain[name] - start[name]
        if free.norm() < 1e-7:  # a bias before a norm layer has no slope, and no direction
            continue
        assert float(moved.norm()) == pytest.approx(0.1 * float(norm), rel=1e-3)
        assert float(torch.dot(moved.flatten(), free.flatten()) / (moved.norm() * free.norm())) == pytest.approx(1)


# The stage.


@pytest.fixture(scope="module")
def sent(make_federation, tmp_path_factory):
    """Three clients' sets, with counts and norms, and radii set to 0.02, 0.05 and 0.4."""
    made = make_federation(tmp_path_factory.mktemp("sent"))
    made.sets = []
    for name, radius, count in (("00", 0.02, 24), ("01", 0.05, 12), ("02", 0.4, 4)):
        made.client(name, classes=(int(name), 5), count=count)
        path = made.encode(name, tell_examples=True, calibrate=True)
        found = tensors_file.read(path)
        tensors_file.write(path, {**found.tensors, "radius": np.array(radius, np.float32)}, found.metadata, force=True)
        made.sets.append(path)
    return made


def again(path, folder, **changed):
    """The set with these tensors in place of its own; None leaves one out."""
    found = tensors_file.read(path)
    tensors = {name: value for name, value in {**found.tensors, **changed}.items() if value is not None}
    out = folder / "00/outbox" / path.name
    out.parent.mkdir(parents=True, exist_ok=True)
    tensors_file.write(out, tensors, dataclasses.replace(found.metadata, client="00"))
    return out


def stated(federation, tmp_path, **given):
    metrics = tmp_path / "descent.json"
    made = federation.aggregate(federation.sets, metrics=metrics, out=tmp_path / "model-0001.safetensors", **given)
    return made.path, json.loads(metrics.read_text())


@pytest.mark.parametrize(
    ("given", "radius"),
    [
        ({"strategy": "min"}, 0.02),
        ({"strategy": "median"}, 0.05),
        ({"strategy": "max"}, 0.4),
        ({"strategy": "max", "radius": 0.1}, 0.1),
        ({"strategy": "min", "radius": None}, 0.02),
    ],
)
def test_the_strategy_chooses_the_radius_and_the_result_is_inside(sent, tmp_path, read, given, radius):
    path, descent = stated(sent, tmp_path, learning_rate=0.005, server_steps=400, **given)
    assert descent["radius"] == pytest.approx(radius)
    assert descent["radii"] == pytest.approx({"00": 0.02, "01": 0.05, "02": 0.4})
    start, end = read(sent.model).tensors, read(path).tensors
    away = math.sqrt(sum(float(np.sum((end[n].astype(np.float64) - start[n]) ** 2)) for n in start))
    assert away == pytest.approx(descent["distance"])
    assert radius / 2 < away <= radius
    assert descent["steps"] == len(descent["trace"]) < 400


def test_fixed_takes_all_its_steps_wherever_they_lead(sent, tmp_path):
    _, descent = stated(sent, tmp_path, strategy="fixed", radius=None, server_steps=7, learning_rate=1.0)
    assert (descent["radius"], descent["steps"]) == (None, 7)
    assert descent["distance"] > 0.4


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_the_stage_weighs_clients_by_what_they_declare(sent, tmp_path, read, weights, slow_gradient):
    from stages.models.file import read_model, to_module

    path, _ = stated(sent, tmp_path, strategy="fixed", radius=None, server_steps=1, weights=weights, learning_rate=0.5)
    module = to_module(read_model(sent.model), torch.device("cpu")).eval()
    shares = [1 / 3] * 3 if weights == "uniform" else [24 / 40, 12 / 40, 4 / 40]
    start, expected = start_weights(module), start_weights(module)
    for file, share in zip(sent.sets, shares, strict=True):
        images, labels = (torch.from_numpy(read(file).tensors[name].copy()) for name in ("images", "labels"))
        for name, part in slow_gradient(module, start, images, labels).items():
            expected[name] = expected[name] - 0.5 * share * part
    found = {name: torch.from_numpy(tensor.copy()) for name, tensor in read(path).tensors.items()}
    assert distance(found, expected) < 1e-6 < distance(found, start)


def test_a_set_that_brings_no_radius_counts_with_the_servers_own(sent, tmp_path):
    """Under DP r_k = r; here beside two sets with radii of their own."""
    bare = again(sent.sets[0], tmp_path, radius=None)
    metrics = tmp_path / "descent.json"
    sent.aggregate([bare, *sent.sets[1:]], metrics=metrics, strategy="median", radius=0.3, out=tmp_path / "model-0001")
    descent = json.loads(metrics.read_text())
    assert descent["radii"] == {"00": None, "01": pytest.approx(0.05), "02": pytest.approx(0.4)}
    assert descent["radius"] == pytest.approx(0.3)


def test_norms_that_no_gradient_has_are_refused(sent, tmp_path):
    """One such set would make every step too long, and the round would be still."""
    norms = np.full(len(tensors_file.read(sent.model).tensors), 1e30, np.float32)
    bad = again(sent.sets[0], tmp_path, norms=norms)
    made = sent.aggregate([bad, *sent.sets[1:]], calibrated=True, out=tmp_path / "model-0001")
    (why,) = made.stated["left_out"]
    assert "no lengths of gradients" in why


def test_a_model_that_did_not_change_is_said_to_be_unchanged(sent, tmp_path):
    made = sent.aggregate(sent.sets, out=tmp_path / "model-0001", learning_rate=1e3, radius=None)
    assert made.stated["steps"] == 0
    assert "the first step would leave the radius of 0.02" in made.stated["unchanged"]
    assert "client '00'" in made.stated["unchanged"]
    assert "unchanged" not in sent.aggregate(sent.sets, out=tmp_path / "model-0002", learning_rate=1e-3).stated


def test_the_order_on_the_command_line_is_free(sent, tmp_path):
    made = [
        sent.aggregate(order, out=tmp_path / f"model-000{n}.safetensors").path.read_bytes()
        for n, order in enumerate((sent.sets, sent.sets[::-1]))
    ]
    assert made[0] == made[1]


def test_the_stage_calibrates_each_client_by_its_own_norms(sent, tmp_path, read, slow_gradient):
    """Eq. 18, layer by layer: Σ N_k/N · norm_k · g_k/‖g_k‖, whatever the order on the command line."""
    from stages.models.file import read_model, to_module

    options = {"strategy": "fixed", "radius": None, "server_steps": 1, "weights": "examples", "learning_rate": 0.5}
    out = tmp_path / "model-0001.safetensors"
    order = [sent.sets[number] for number in (1, 2, 0)]
    found = read(sent.aggregate(order, out=out, calibrated=True, **options).path).tensors
    module = to_module(read_model(sent.model), torch.device("cpu")).eval()
    start = start_weights(module)
    moved, norms = {name: torch.zeros_like(weight) for name, weight in start.items()}, []
    for file, share in zip(sent.sets, (24 / 40, 12 / 40, 4 / 40), strict=True):
        images, labels, lengths = (torch.tensor(read(file).tensors[name]) for name in ("images", "labels", "norms"))
        norms.append(lengths)
        for (name, part), length in zip(slow_gradient(module, start, images, labels).items(), lengths, strict=True):
            moved[name] += share * length * part / math.sqrt(float(part.square().sum()))
    for one, other in itertools.combinations(norms, 2):
        assert float((one / other - 1).abs().max()) > 0.01, "the clients measured different lengths"
    for name, weight in start.items():
        torch.testing.assert_close(torch.tensor(found[name]), weight - 0.5 * moved[name], rtol=0, atol=1e-6)
