"""FedLAP-DP and FedDM-DP for people: what one person moves, what the file says, what is refused."""

import dataclasses
import math

import numpy as np
import pytest

import stages.methods.feddm as feddm
import stages.privacy.clipping as clipping
from artifacts.errors import InputError
from stages.account import account
from stages.methods.private_gradients import SecretStreams
from stages.privacy.accountant import epsilon, planned

METHODS = ["fedlap", "feddm"]
STEPS = {"fedlap": 2, "feddm": 3}
WHOSE = np.array([0] * 11 + [1] + [2] * 7 + [3] * 5)


@pytest.fixture
def hospital(federation):
    """Client 00, whose twenty-four digits are of four people."""
    rows = np.flatnonzero(np.isin(federation.digits.labels, (0, 1)))[:24]
    content = dataclasses.replace(federation.digits.take(rows), units=WHOSE)
    federation.content = content
    federation.write(federation.client("00"), content)
    return federation


@pytest.fixture
def sums_of(hospital, monkeypatch):
    """What the looks of one encoding hand to the mechanism, if everybody is drawn in each."""

    def of(method, content, **given):
        sums = []

        def noisy_mean(total, *_):
            sums.append({name: np.array(tensor) for name, tensor in total.items()})
            return {name: np.zeros(tensor.shape, np.float32) for name, tensor in total.items()}

        for place in (clipping, feddm):
            monkeypatch.setattr(place, "noisy_mean", noisy_mean)
        data = hospital.write(hospital.client("00").with_name(f"some-{len(content)}.parquet"), content)
        hospital.noisy(method=method, data=data, sampling_rate=1.0, clip_norm=0.7, **given)
        return sums[0]

    return of


def moved(first, second):
    return math.sqrt(sum(float(np.square(first[name] - second[name]).sum()) for name in first))


@pytest.mark.parametrize("method", METHODS)
def test_a_person_moves_a_look_by_the_clip_at_most(hospital, sums_of, method):
    content = hospital.content
    whole = sums_of(method, content, unit="person")
    for person in range(4):
        less = sums_of(method, content.take(np.flatnonzero(person != WHOSE)), unit="person")
        assert 0.69 < moved(whole, less) <= 0.7
    less = content.take(np.flatnonzero(WHOSE != 0))
    assert moved(sums_of(method, content, unit="record"), sums_of(method, less, unit="record")) > 0.8


def test_one_record_each_is_record_level(hospital, sums_of):
    """Up to the rounding of lengths, by 1e-10. FedDM draws its weights by the parameters: `privacy/test_people.py`."""
    each = dataclasses.replace(hospital.content, units=np.arange(24))
    records, people = (sums_of("fedlap", each, unit=unit) for unit in ("record", "person"))
    assert moved(records, people) < 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_the_file_says_person(hospital, method, read, monkeypatch):
    drawn = []
    sample = SecretStreams.sample

    def watched(self, *given):
        rows, people = sample(self, *given)
        drawn.append((rows.tolist(), people.tolist()))
        return rows, people

    monkeypatch.setattr(SecretStreams, "sample", watched)
    found = read(hospital.noisy(method=method, unit="person"))
    (event,) = found.metadata.privacy
    assert (event["unit"], event["sampling_rate"], event["steps"]) == ("person", 0.3, STEPS[method])
    assert "unit" not in found.metadata.inputs[1].to_json() and found.metadata.params["unit"] == "person"
    assert hospital.charges()[0]["unit"] == "person"
    assert all(WHOSE[rows].tolist() == people for rows, people in drawn) and len(drawn) == STEPS[method]
    units = {row["unit"]: row["epsilon"]["pld"] for row in
             account([hospital.root / "clients/00"], delta=1e-5, person=True)["units"]}  # fmt: skip
    cost = epsilon([planned(sampling_rate=0.3, noise_multiplier=1.0, steps=STEPS[method])], delta=1e-5).pld
    assert (units["person"], units["client"]) == (cost, "inf")


@pytest.mark.parametrize("method", METHODS)
def test_data_that_does_not_say_whose_it_is_is_refused(federation, method):
    with pytest.raises(InputError, match="does not say whose its records are"):
        federation.noisy(method=method, unit="person")
    assert federation.charges() == []
