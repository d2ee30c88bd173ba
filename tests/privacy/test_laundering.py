"""Detours by which a file could lose what it cost or told: decoded, begun from an earlier file, aggregated again."""

import dataclasses

import numpy as np
import pytest

from artifacts.formats import tensors_file
from stages.account import account
from stages.decode import decode
from stages.encode import encode
from stages.methods.params.encoding import DeltaEncoding
from stages.methods.params.tofu import TofuEncoding
from stages.proxies.encoder import encode_proxy

SHARED = {"clip_norm": 1.0, "noise_multiplier": 0.5, "least_clients": 3}
COMPLETE = {**SHARED, "least_clients": 1}  # all of the noise in one message, which may be used alone


def about(path):
    return tensors_file.read(path).metadata


def test_a_model_that_a_message_was_applied_to_keeps_its_past(federation):
    """Its events, once each, and what rounds before told without noise."""
    first = federation.aggregate([federation.message("00", np.ones(10))])
    message = federation.message("00", np.ones(10), first, **COMPLETE)
    out = federation.server / "outbox/model-0002.safetensors"
    decode(first, message, out, apply=True)
    ids = {event.id for event in (*federation.events(first), *federation.events(message))}
    assert len(ids) == 2 == len(federation.events(out))
    assert {event.id for event in federation.events(out)} == ids
    stated = federation.aggregate([federation.message("00", np.ones(10))], name="plain", rule="mean", **dict.fromkeys(
        ("clip_norm", "noise_multiplier", "sampling_rate", "clients")))  # fmt: skip
    assert about(stated).disclosures == ("update",)
    private = federation.message("00", np.ones(10), stated, **COMPLETE)
    decode(stated, private, out, apply=True, force=True)
    assert (about(out).disclosures, len(about(out).privacy)) == (("update",), 1)
    (row,) = account([out], delta=1e-3)["clients"]
    assert (row["epsilon"]["pld"], row["rest"]["pld"] < 100) == ("inf", True)


def test_the_same_messages_under_another_rate_were_not_drawn_again(federation):
    """The rate, and of how many, is what the server says: a round has one draw, whatever it claims."""
    messages = [federation.message(name, np.ones(10)) for name in ("00", "01")]
    federation.aggregate(messages)
    federation.aggregate(messages, name="again", sampling_rate=0.25)
    federation.aggregate(messages, name="of more", clients=16)
    assert [event["sampling_rate"] for event in federation.charged()] == [0.5, 1.0, 1.0]


def test_what_an_update_told_without_noise_its_message_tells(federation):
    update = federation.update("00", np.ones(10))
    made = tensors_file.read(update)
    noised = federation.events(federation.message("00", np.ones(10), **SHARED))
    stated = dataclasses.replace(
        made.metadata, privacy=tuple(event.to_json() for event in noised), disclosures=("derived_images", "local_steps")
    )
    tensors_file.write(update, made.tensors, stated, force=True)
    out = federation.client("00") / "outbox/message-0001.safetensors"
    encode(federation.start, update, out, params=DeltaEncoding(), force=True)
    assert about(out).disclosures == ("derived_images",)
    assert account([out], delta=1e-3)["clients"][0]["epsilon"]["pld"] == "inf"


@pytest.mark.parametrize("first_is_private", [True, False])
def test_a_proxy_that_began_as_an_earlier_one_costs_both(client, first_is_private):
    """Few iterations leave the images as they were. What an earlier proxy told without noise, this one tells."""
    params = TofuEncoding(images=2, iterations=2, least_cosine=0)
    outbox = client.root / "clients/00/outbox"
    plain = {} if first_is_private else {"noise_multiplier": None, "sampling_rate": None, "delta": None}
    before, after = outbox / "proxy-0001.safetensors", outbox / "proxy-0002.safetensors"
    encode_proxy(client.model, client.train(seed=1, **plain), before, params=params)
    update = client.train(seed=2)
    encode_proxy(client.model, update, after, params=params)
    assert about(after).privacy == about(update).privacy
    assert about(after).disclosures == ()
    begun = dataclasses.replace(params, init="previous")
    encode_proxy(client.model, update, after, params=begun, previous=before, force=True)
    ids = {event["id"] for path in (update, before) for event in about(path).privacy}
    assert {event["id"] for event in about(after).privacy} == ids
    assert len(ids) == 1 + first_is_private
    assert about(after).disclosures == about(before).disclosures
    (row,) = account([after], delta=1e-5)["clients"]
    assert (row["epsilon"]["pld"] == "inf") == (not first_is_private)
