"""`aggregate` refuses by name whatever does not belong to the round, and then writes nothing."""

import numpy as np
import pytest

from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.metadata import InputRef


@pytest.fixture
def round_one(run_copy):
    """The model, the three messages, and the place of the next model, which is free."""
    model = run_copy / "public/model-0000.safetensors"
    messages = [run_copy / f"clients/0{n}/outbox/message-0001.safetensors" for n in range(3)]
    for name in ("outbox/model-0001.safetensors", "private/model-0001.lineage.json"):
        (run_copy / "server" / name).unlink()
    return model, messages, run_copy / "server/outbox/model-0001.safetensors"


def rewrite(path, forge, **changes):
    data = path.read_bytes()
    path.write_bytes(forge.forge_tensors(data, fields=lambda about: about.update(changes)))


def test_the_messages_of_a_round_are_aggregated_in_any_order(round_one, fedsynth):
    model, messages, out = round_one
    assert fedsynth("aggregate", model, *messages, "-o", out)[0] == 0
    first = out.read_bytes()
    assert fedsynth("aggregate", model, *messages[::-1], "-o", out, "--force")[0] == 0
    assert out.read_bytes() == first


def test_a_message_given_twice_is_refused(run_copy, round_one, refused):
    model, messages, out = round_one
    text = refused(run_copy, "aggregate", model, *messages, messages[0], "-o", out, said=[messages[0]])
    assert "a client counts once" in text


def test_two_messages_of_one_client_are_refused(run_copy, round_one, refused, forge):
    model, messages, out = round_one
    rewrite(messages[1], forge, client="00")
    refused(run_copy, "aggregate", model, *messages, "-o", out, said=[messages[0], messages[1], "client '00'"])


@pytest.mark.parametrize("round", [0, 2, 1_000_000])
def test_a_message_of_another_round_is_refused(run_copy, round_one, refused, forge, round):
    model, messages, out = round_one
    rewrite(messages[2], forge, round=round)
    refused(run_copy, "aggregate", model, *messages, "-o", out, said=[messages[2], f"round {round}"])


def test_a_late_message_is_refused(run_copy, round_one, refused):
    """Round 1's model is aggregated from round 2's messages only if someone mixes them up."""
    model, messages, out = round_one
    late = run_copy / "clients/02/outbox/message-0002.safetensors"
    refused(run_copy, "aggregate", model, *messages[:2], late, "-o", out, said=[late, "round 2"])


def test_a_message_for_another_model_is_refused(run_copy, round_one, refused, forge):
    model, messages, out = round_one
    other = [{"role": "model", "kind": "model", "sha256": "b" * 64}]
    rewrite(messages[1], forge, inputs=other)
    text = refused(run_copy, "aggregate", model, *messages, "-o", out, said=[messages[1]])
    assert "another model" in text


def test_a_message_of_another_federation_is_refused(run_copy, round_one, refused, forge, tmp_path):
    """Right names, shapes and round, but trained from another start."""
    model, messages, out = round_one
    stranger = tmp_path / "other/model.safetensors"
    tensors = {name: array + 1 for name, array in tensors_file.read(model).tensors.items()}
    tensors_file.write(stranger, tensors, tensors_file.read(model).metadata)
    refused(run_copy, "aggregate", stranger, *messages, "-o", out, said=[messages[0], "another model"])


def test_a_private_update_is_refused(run_copy, round_one, refused):
    model, messages, out = round_one
    update = run_copy / "clients/02/private/update-0001.safetensors"
    refused(run_copy, "aggregate", model, *messages[:2], update, "-o", out, said=[update, "never leaves its client"])


def test_a_message_without_a_count_is_refused_where_counts_are_the_weights(run_copy, round_one, refused, forge):
    model, messages, out = round_one

    def silence(about):
        about.pop("counts")
        about["disclosures"] = ["update"]

    messages[1].write_bytes(forge.forge_tensors(messages[1].read_bytes(), fields=silence))
    command = ["aggregate", model, *messages, "--weights", "examples", "-o", out]
    refused(run_copy, *command, said=[messages[1], "--tell-examples"])


def test_a_message_of_no_examples_is_refused(run_copy, round_one, refused, forge):
    model, messages, out = round_one
    rewrite(messages[1], forge, counts={"num_examples": 0})
    refused(run_copy, "aggregate", model, *messages, "--weights", "examples", "-o", out, said=[messages[1]])


@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_damaged_message_among_good_ones_stops_all(run_copy, round_one, refused, forge, position):
    """Its header is fine; the damage is met after others were added up. Still nothing is written."""
    model, messages, out = round_one
    data = messages[position].read_bytes()
    messages[position].write_bytes(forge.flip(data, len(data) - 100, 0))
    refused(run_copy, "aggregate", model, *messages, "-o", out, said=[messages[position], "do not match their digest"])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_message_with_nan_stops_all(run_copy, round_one, refused, forge, value):
    model, messages, out = round_one
    data = messages[2].read_bytes()
    payload = forge.take_apart(data)[2][:-4] + np.float32(value).tobytes()
    messages[2].write_bytes(forge.forge_tensors(data, payload=payload))
    refused(run_copy, "aggregate", model, *messages, "-o", out, said=[messages[2], "NaN or infinity"])


def test_no_message_at_all_is_a_wrong_command_line(run_copy, round_one, refused):
    model, _, out = round_one
    refused(run_copy, "aggregate", model, "-o", out, code=2)


def test_an_update_of_another_client_is_not_encoded(run_copy, refused):
    model, update = run_copy / "public/model-0000.safetensors", run_copy / "clients/01/private/update-0001.safetensors"
    out = run_copy / "clients/00/outbox/new.safetensors"
    refused(run_copy, "encode", model, update, "-o", out, said=[update, "'01'", "'00'"])


def test_an_update_of_another_round_is_not_encoded(run_copy, refused):
    model, update = run_copy / "public/model-0000.safetensors", run_copy / "clients/00/private/update-0002.safetensors"
    out = run_copy / "clients/00/outbox/new.safetensors"
    refused(run_copy, "encode", model, update, "-o", out, said=[update, "was not trained from"])


KEY_DAMAGE = {
    "missing": (lambda path: path.unlink(), "fedsynth keygen"),
    "short": (lambda path: path.write_bytes(b"short"), "32 bytes"),
    "long": (lambda path: path.write_bytes(bytes(33)), "32 bytes"),
    "readable by others": (lambda path: path.chmod(0o644), "chmod 600"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "not a regular file"),
}


@pytest.mark.parametrize("damage", KEY_DAMAGE)
def test_a_bad_key_stops_encode(run_copy, refused, commands, damage):
    change, words = KEY_DAMAGE[damage]
    path = run_copy / "clients/00/private/client.key"
    change(path)
    arguments, _ = commands(run_copy)["encode-update"]
    refused(run_copy, *arguments, said=[path, words])


def test_no_seed_no_private_digest_and_the_word_simulation_in_what_leaves(finished_run):
    """Of a whole run: each outbound file, by its metadata and by its bytes."""
    private = {
        tensors_file.sha256_hex(path.read_bytes())
        for path in finished_run.glob("clients/*/private/*")
        if path.suffix in (".safetensors", ".parquet")
    }
    sent = [*finished_run.glob("clients/*/outbox/*"), *finished_run.glob("server/outbox/*")]
    assert len(sent) == 8 and len(private) == 9
    for path in sent:
        data, metadata = path.read_bytes(), tensors_file.read(path).metadata
        assert metadata.seed is None and metadata.simulation
        assert b'"seed"' not in data and str(finished_run).encode() not in data
        assert not [digest for digest in private if digest.encode() in data]


def test_commitments_of_one_client_differ_from_round_to_round_and_open_with_its_key(finished_run):
    from artifacts.identity.commitments import opens

    client = finished_run / "clients/00"
    key = keys.read(client / "private/client.key")
    assert key.simulation and key == keys.simulated(7, "client 00")
    seen = set()
    for number in (1, 2):
        metadata = tensors_file.read(client / f"outbox/message-000{number}.safetensors").metadata
        (reference,) = [r for r in metadata.inputs if r.role == "update"]
        update = tensors_file.read(client / f"private/update-000{number}.safetensors")
        assert opens(key, reference, update.sha256) and isinstance(reference, InputRef)
        assert not opens(keys.simulated(7, "client 01"), reference, update.sha256)
        seen |= {reference.commitment, reference.salt}
    assert len(seen) == 4
