"""A person with all of their records as one contribution: drawn as one, summed, clipped once."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from stages.data.images import LabelledImages, counted
from stages.data.people import one_row_each, rows_of
from stages.methods.feddm import clipped_class_sums
from stages.methods.private_gradients import SecretStreams
from stages.methods.surrogate_nets import LabelledSet, start_weights
from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.privacy.clipping import clipped_sum, noisy_gradient
from stages.privacy.mechanism import GaussianMechanism
from stages.registry import NETWORKS

PEOPLE = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3])
SHAPE = InputShape(channels=1, height=8, width=8, num_classes=3)
FLAT = {"a": torch.zeros(2), "b": torch.zeros(3)}


def linear(weights, image):
    """Its gradient is the image itself, to the last bit."""
    return sum((weights[name] * part).sum() for name, part in zip("ab", image.split([2, 3]), strict=True))


def flat(tensors):
    return torch.cat([torch.as_tensor(t).double().ravel() for t in tensors.values()])


def small(seed=0):
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))

    def loss(weights, image, label):
        return nn.functional.cross_entropy(functional_call(module, weights, (image[None],)), label[None])

    images = torch.randn(13, 1, 4, 4) * 3
    return loss, {n: w.detach() for n, w in module.named_parameters()}, images, torch.randint(3, (13,))


def by_hand(loss, weights, images, labels, people, clip):
    """The gradient of each person's summed loss, by one backward pass, clipped."""
    total = torch.zeros_like(flat(weights))
    for person in people.unique():
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        mine = [loss(leaves, images[row], labels[row]) for row in (people == person).nonzero().flatten()]
        own = flat(dict(zip(leaves, torch.autograd.grad(sum(mine), list(leaves.values())), strict=True)))
        total += own * min(1.0, clip / float(own.norm()))
    return total


@pytest.mark.parametrize("clip", [0.3, 4.0])
@pytest.mark.parametrize("chunk", [None, 1, 2, 5])
def test_against_a_loop_over_people(clip, chunk):
    """Whether all records of a person are in one chunk or in several."""
    loss, weights, *data = small()
    found = clipped_sum(loss, weights, data, clip_norm=clip, chunk_size=chunk, people=PEOPLE)
    torch.testing.assert_close(flat(found), by_hand(loss, weights, *data, PEOPLE, clip), rtol=1e-5, atol=1e-6)
    records = clipped_sum(loss, weights, data, clip_norm=clip, chunk_size=chunk)
    assert (flat(found) - flat(records)).norm() > clip / 10, "record by record it is another sum"


values = st.lists(st.floats(width=32) | st.sampled_from([3.4e38, -3.4e38, 1e-45]), min_size=5, max_size=5)
somebody = st.lists(values, min_size=1, max_size=9)


@settings(max_examples=150)
@given(st.lists(somebody, max_size=3), somebody, st.integers(0, 3), st.floats(1e-5, 1e5))
def test_a_person_with_many_records_never_moves_the_sum_by_more_than_the_clip(others, one, place, clip):
    """D and D' differ by one person, whatever the gradients are and wherever the person is among the others."""
    place = min(place, len(others))

    def summed(people):
        rows = torch.tensor([row for own in people for row in own], dtype=torch.float32).reshape(-1, 5)
        whose = torch.tensor([number for number, own in enumerate(people) for _ in own], dtype=torch.int64)
        return flat(clipped_sum(linear, FLAT, (rows,), clip_norm=clip, chunk_size=4, people=whose))

    moved = (summed([*others[:place], one, *others[place:]]) - summed(others)).tolist()
    assert math.sqrt(math.fsum(x * x for x in moved)) <= clip


def test_the_bound_is_reached_and_record_by_record_it_is_broken():
    """The planted error: each of fifty records clipped alone moves the sum by fifty times the clip."""
    rows, people = torch.ones(50, 5), torch.zeros(50, dtype=torch.int64)
    moved = flat(clipped_sum(linear, FLAT, (rows,), clip_norm=2.0, people=people)).norm()
    assert 2.0 * (1 - 1e-5) < moved <= 2.0
    assert flat(clipped_sum(linear, FLAT, (rows,), clip_norm=2.0)).norm() > 99


def test_one_record_of_a_person_moves_the_sum_by_twice_the_clip():
    """Why a guarantee for people holds for records with half the noise (`for_unit`): −20 taken away from 10 − 20."""
    rows = torch.tensor([[10.0, 0, 0, 0, 0], [-20.0, 0, 0, 0, 0]])
    both, one = (
        flat(clipped_sum(linear, FLAT, (rows[:n],), clip_norm=1.0, people=torch.zeros(n, dtype=torch.int64)))
        for n in (2, 1)
    )
    assert (both - one).norm() == pytest.approx(2.0, rel=1e-5)


def test_others_keep_their_bits_when_a_person_leaves():
    """Their records move to other places and other chunks of the batch."""
    module = build(
        NETWORKS.from_mapping({"arch": "convnet", "width": 4, "depth": 1}),
        SHAPE,
    )
    initialise(module, torch.Generator().manual_seed(1))
    weights = {name: tensor.detach() for name, tensor in module.named_parameters()}

    def loss(own, image, label):
        return nn.functional.cross_entropy(functional_call(module, own, (image[None],)), label[None])

    images, labels = torch.randn(13, 1, 8, 8), torch.randint(3, (13,))
    rest, alone = PEOPLE != 0, PEOPLE == 0

    def summed(rows):
        people = torch.from_numpy(counted(PEOPLE[rows].numpy()))
        return flat(clipped_sum(loss, weights, (images[rows], labels[rows]), clip_norm=1e-3, people=people))

    gap = summed(torch.ones(13, dtype=torch.bool)) - summed(rest) - summed(alone)
    assert gap.abs().max() < 1e-17, "float64's rounding of numbers of a thousandth, and no float32's"


def test_one_record_each_is_record_level(stream_of):
    """The same coins, the same noise, the same bytes; by chance another cell of the grid has less than 1e-9."""
    loss, weights, images, labels = small()
    mechanism = GaussianMechanism(clip_norm=1.0, noise_multiplier=1.0, expected_size=4)
    streams = SecretStreams(sampling=stream_of("sampling"), examples=stream_of("examples"), noise=stream_of("noise"))
    found = []
    for units in (None, torch.arange(13)):
        rows, people = streams.sample(3, 0.5, 13, units)
        # A chunk of two, as all gradients are formed then: a product's length is rounded up by 1e-10.
        found.append((
            rows.tolist(),
            noisy_gradient(loss, weights, (images[rows], labels[rows]), mechanism=mechanism, chunk_size=2,
                           noise=streams.noise.at(3), people=people),
        ))  # fmt: skip
    (record_rows, records), (person_rows, people) = found
    assert record_rows == person_rows and len(record_rows) > 2
    assert all(torch.equal(records[name], people[name]) for name in records)


def test_people_are_drawn_whole_with_the_public_rate(stream_of):
    """4,000 coins of five people: each as often as q says, independently, and all records of whoever is drawn."""
    units = torch.tensor([0, 1, 0, 2, 3, 1, 0, 4, 2])
    streams = SecretStreams(sampling=stream_of("sampling"), examples=stream_of("examples"), noise=stream_of("noise"))
    times, pairs = torch.zeros(5), 0
    for step in range(4000):
        rows, people = streams.sample(step, 0.3, 9, units)
        drawn = people.unique()
        assert sorted(rows.tolist()) == [row for row in range(9) if units[row] in drawn]
        assert people.tolist() == sorted(people.tolist()) == units[rows].tolist(), "side by side"
        times[drawn] += 1
        pairs += int({0, 1} <= set(drawn.tolist()))
    # Six standard deviations; the key is a fixed one.
    assert (times - 1200).abs().max() < 6 * math.sqrt(4000 * 0.3 * 0.7)
    assert abs(pairs - 360) < 6 * math.sqrt(4000 * 0.09 * 0.91)


def test_nobody_there_is_nobody_drawn(stream_of):
    streams = SecretStreams(sampling=stream_of("sampling"), examples=stream_of("examples"), noise=stream_of("noise"))
    rows, people = streams.sample(1, 0.5, 0, torch.zeros(0, dtype=torch.int64))
    assert len(rows) == len(people) == 0
    found = clipped_sum(linear, FLAT, (torch.zeros(0, 5),), clip_norm=1.0, people=people)
    assert not flat(found).any()


# FedDM: features by class.


def test_feddm_a_person_adds_at_most_the_clip_over_all_classes():
    module = build(NETWORKS.from_mapping({"arch": "mlp", "width": 6}), SHAPE)
    initialise(module, torch.Generator().manual_seed(1))
    images, labels = torch.randn(13, 1, 8, 8) * 50, torch.arange(13) % 3
    common = {"num_classes": 3, "clip_norm": 0.8, "count_share": 0.4}

    def sums(rows, people):
        batch = LabelledSet(images[rows], labels[rows])
        return clipped_class_sums(module, start_weights(module), batch, **common, people=people)

    everyone = torch.arange(13)
    whole = sums(everyone, PEOPLE)
    for person in range(4):
        rest = everyone[person != PEOPLE]
        assert 0.79 < (whole - sums(rest, PEOPLE[rest])).norm() <= 0.8
    assert (sums(everyone, None) - sums(everyone[PEOPLE != 2], None)).norm() > 0.8, "record by record it is more"
    # One record each: as for records.
    torch.testing.assert_close(sums(everyone, everyone), sums(everyone, None), rtol=1e-12, atol=1e-15)
    own = sums(everyone[PEOPLE == 2], PEOPLE[PEOPLE == 2])
    assert own[:, -1].count_nonzero() == 3, "a person may have records of all classes"


# Who is who.


def test_people_are_numbers_in_the_order_of_their_first_rows():
    assert counted(np.array(["p9", "a", "p9", "b", "a"])).tolist() == [0, 1, 0, 2, 1]
    images, labels = np.zeros((6, 1, 2, 2), np.uint8), np.array([0, 1, 1, 0, 1, 1])
    data = LabelledImages(images, labels, ("x", "y"), units=np.array([0, 1, 0, 1, 0, 2]))
    assert data.take(np.array([5, 1, 3])).units.tolist() == [0, 1, 1], "numbers say who is who, and no more"
    people = one_row_each(data)
    assert people.labels.tolist() == [1, 0, 1], "the label that most of a person's rows have; the lower of a tie"
    assert rows_of(data, np.array([0, 2])).tolist() == [0, 2, 4, 5]


def test_a_person_at_two_places_is_refused():
    images, labels = np.zeros((2, 1, 2, 2), np.uint8), np.zeros(2, np.int64)
    data = LabelledImages(images, labels, ("x",), ids=("a", "b"), units=np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="would go to two clients"):
        one_row_each(data)
