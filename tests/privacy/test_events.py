"""Events: what they say is checked word for word; anything unknown is an error, never zero."""

import math

import pytest

from artifacts.metadata import _EVENT_FIELDS, Metadata
from stages.privacy.events import PrivacyEvent, distinct, event_id

FIELDS = {
    "id": "ab" * 32, "unit": "record", "adjacency": "add-or-remove", "mechanism": "sampled-gaussian",
    "sampling": "poisson", "sampling_rate": 0.0256, "noise_multiplier": 1.0, "clip_norm": 1.0, "steps": 200,
    "trust": "nobody", "shares": 1,
}  # fmt: skip
PLAIN = {"mechanism": "gaussian", "sampling": "none", "sampling_rate": 1.0}


def test_round_trip_through_the_metadata():
    event = PrivacyEvent.from_json(FIELDS)
    assert event.to_json() == FIELDS
    assert set(FIELDS) | {"draw", "update_noise", "count_noise", "federation"} == _EVENT_FIELDS
    metadata = Metadata(
        kind="message", stage="encode", custody="outbound", client="03", versions={}, privacy=(event.to_json(),)
    )
    assert PrivacyEvent.from_json(metadata.privacy[0]) == event
    assert type(PrivacyEvent.from_json(FIELDS | PLAIN | {"sampling_rate": 1}).sampling_rate) is float


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"unit": "patient"}, "unit of a privacy event must be one of record, person, client; found 'patient'"),
        ({"adjacency": "zero-out"}, "adjacency"),
        ({"mechanism": "laplace"}, "mechanism of a privacy event must be one of gaussian, sampled-gaussian"),
        ({"mechanism": None}, "mechanism"),
        ({"sampling": "shuffled"}, "sampling"),
        ({"trust": "everyone"}, "trust"),
        ({"id": "ab"}, "id"),
        ({"id": "AB" * 32}, "id"),
        ({"id": 7}, "id"),
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"sampling_rate": 1.01}, "sampling_rate"),
        ({"sampling_rate": "0.1"}, "sampling_rate of a privacy event must be a finite number"),
        ({"sampling_rate": True}, "sampling_rate"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": math.inf}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"clip_norm": -1.0}, "clip_norm"),
        ({"steps": 0}, "steps"),
        ({"steps": 1.0}, "steps"),
        ({"steps": True}, "steps"),
        ({"steps": 10**10}, "steps"),
        ({"sampling": "none"}, "sampling of a privacy event must be 'poisson' for the mechanism sampled-gaussian"),
        ({"mechanism": "gaussian", "sampling": "none"}, "must be 1 where nothing is sampled"),
        ({"mechanism": "gaussian"}, "sampling"),
        ({"unit": "client"}, "'server' where amplification by sampling clients is claimed"),
        ({"unit": "client", "trust": "aggregate", "shares": 50}, "amplification"),
        ({"shares": 0}, "shares"),
        ({"shares": 2.0}, "shares"),
        ({"shares": 2}, "'aggregate' where the noise comes in shares, and only there"),
        ({"trust": "aggregate"}, "'aggregate' where the noise comes in shares, and only there"),
        ({"colour": "red"}, "unknown field 'colour'"),
    ],
)
def test_what_is_not_understood_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        PrivacyEvent.from_json(FIELDS | changes)


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_is_refused(name):
    with pytest.raises(ValueError, match=f"lacks '{name}'"):
        PrivacyEvent.from_json({k: v for k, v in FIELDS.items() if k != name})


def test_client_level_events():
    PrivacyEvent.from_json(FIELDS | {"unit": "client", "trust": "server"})
    PrivacyEvent.from_json(FIELDS | PLAIN | {"unit": "client", "trust": "aggregate", "shares": 50})


def test_ids_name_context_and_output_and_tell_nothing(context):
    key, digest = bytes(range(32)), "12" * 32
    first = event_id(key, context, digest)
    assert first == event_id(key, dict(reversed(context.items())), digest), "a replay has the same id"
    others = [
        event_id(bytes(32), context, digest),
        event_id(key, context | {"round": 3}, digest),
        event_id(key, context, "13" * 32),
    ]
    assert len({first, *others}) == 4
    assert PrivacyEvent.from_json(FIELDS | {"id": first}).id == first
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        event_id(key, context, "12")


def test_distinct_keeps_the_order_and_refuses_conflicts():
    a, b = (PrivacyEvent.from_json(FIELDS | {"id": digit * 64}) for digit in "ba")
    assert distinct([a, b, a, b]) == [a, b]
    conflict = PrivacyEvent.from_json(FIELDS | {"id": a.id, "steps": 7})
    with pytest.raises(ValueError, match="steps is 200 and 7"):
        distinct([a, b, conflict])
