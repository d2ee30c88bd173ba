"""Noise in shares under secure aggregation (privacy contract, rule 23)."""

import numpy as np
import pytest

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from stages.account import account
from stages.aggregate import aggregate
from stages.encode import encode
from stages.methods.params.aggregation import MeanRule
from stages.methods.params.encoding import DeltaEncoding


@pytest.fixture
def noisy(begin):
    play = begin()
    for name in play.names:
        play.noised(name)
    return play


def test_the_sum_is_exactly_that_of_the_noised_messages(noisy):
    noisy.whole(range=None)
    total = noisy.sum()
    for name, tensor in total.tensors.items():
        sent = [tensors_file.read(path).tensors[name].astype(np.float64) for path in noisy.updates.values()]
        assert (tensor == np.sum(sent, axis=0).astype(np.float32)).all()


def test_the_event_goes_with_the_sum(noisy):
    noisy.whole(range=None)
    total, masked = noisy.sum(), tensors_file.read(noisy.up("a", "masked"))
    (event,), (own,) = total.metadata.privacy, masked.metadata.privacy
    assert (event["trust"], event["unit"], event["shares"], total.metadata.disclosures) == (
        "aggregate",
        "client",
        2,
        (),
    )
    assert {**event, "id": own["id"]} == own
    assert masked.metadata.disclosures == ()
    assert own == tensors_file.read(noisy.updates["a"]).metadata.privacy[0]
    (row,) = account([noisy.place("a")], delta=1e-5)["clients"]
    assert row["events"] == 1 and row["uncovered"] == [] and row["epsilon"]["pld"] < 10


def test_the_threshold_must_cover_the_noise(begin):
    play = begin()
    play.noised("a", least_clients=3)
    play.keys(range=None)
    play.shares()
    with pytest.raises(InputError, match=r"noise of 3 clients, but the round may end with 2.*--threshold 3"):
        play.mask("a")


def test_noise_and_plain_values_do_not_mix(begin):
    play = begin()
    play.noised("a")
    play.keys()
    play.shares()
    with pytest.raises(InputError, match="Collect the keys without --range"):
        play.mask("a")
    bare = begin()
    bare.keys(range=None)
    bare.shares()
    with pytest.raises(InputError, match="declares no range"):
        bare.mask("a")


def test_different_noise_is_refused(begin):
    play = begin()
    play.noised("a")
    play.noised("b", noise_multiplier=0.5)
    play.noised("c")
    play.keys(range=None)
    play.shares()
    with pytest.raises(InputError, match="Mask all updates of a round alike"):
        play.masks()


def test_a_message_that_leaves_by_itself_is_not_masked(begin):
    play = begin()
    out = play.place("a") / "outbox/message-0001.safetensors"
    encode(play.model, play.updates["a"], out, params=DeltaEncoding(clip_norm=1.0))
    play.updates["a"] = out
    play.keys()
    play.shares()
    with pytest.raises(InputError, match="leaves by itself"):
        play.mask("a")


def test_a_private_message_is_no_message_to_the_server(begin):
    play = begin()
    with pytest.raises(InputError, match="private message, which never leaves"):
        aggregate(play.model, [play.noised("a")], play.root / "server/outbox/m.safetensors", params=MeanRule())
