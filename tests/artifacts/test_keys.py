"""Keys come from the operating system; a simulation's come from its seed, and say so. Neither is ever shown."""

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.digests import sha256_hex
from artifacts.errors import InputError
from artifacts.identity import keys
from artifacts.identity.commitments import commit, opens
from artifacts.identity.keys import Key
from artifacts.metadata import InputRef

SEEDS = st.integers(0, 2**63)
DIGESTS = st.binary(max_size=8).map(sha256_hex)


def test_a_generated_key_is_32_bytes_from_the_operating_system(monkeypatch):
    asked = []

    def urandom(size):
        asked.append(size)
        return b"SIMULATE" + bytes(24) if len(asked) == 1 else bytes(range(size))

    monkeypatch.setattr(keys.secrets, "token_bytes", urandom)
    assert keys.generate().secret == bytes(range(32)), "a random key that looks simulated is drawn again"
    assert asked == [32, 32]


def test_generated_keys_differ_and_never_look_simulated():
    made = [keys.generate() for _ in range(200)]
    assert len({key.secret for key in made}) == 200 and not any(key.simulation for key in made)


@given(seed=SEEDS, other=SEEDS, owner=st.sampled_from(["server", "client 00", "client 01"]))
def test_a_simulated_key_follows_from_seed_and_owner_and_says_so(seed, other, owner):
    key = keys.simulated(seed, owner)
    assert key == keys.simulated(seed, owner) and key.simulation and len(key.secret) == 32
    assert (keys.simulated(other, owner) == key) == (seed == other)
    assert keys.simulated(seed, "client 02") != key


def test_no_two_purposes_share_a_derived_key():
    key = keys.generate()
    labels = ["commitment", "commitment salt", "noise", "sampling", "event"]
    assert len({key.derive(label) for label in labels} | {key.secret}) == 6
    assert key.derive("noise") == Key(key.secret).derive("noise") != keys.generate().derive("noise")


def test_the_secret_is_not_in_what_is_printed():
    key = keys.generate()
    for text in (repr(key), str(key), f"{key}", f"{[key]}", repr({"key": key})):
        assert repr(key.secret)[2:-1] not in text and key.secret.hex() not in text
    assert repr(keys.simulated(1, "x")) == "Key(simulation)"


def test_a_key_is_written_for_its_owner_alone_and_read_back(tmp_path):
    key, path = keys.generate(), tmp_path / "private" / "client.key"
    old = os.umask(0)
    try:
        keys.write(path, key)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_bytes() == key.secret
    assert keys.read(path) == key
    assert [p.name for p in path.parent.iterdir()] == ["client.key"]


def test_an_existing_key_is_never_replaced_by_accident(tmp_path):
    path, key = tmp_path / "client.key", keys.generate()
    keys.write(path, key)
    with pytest.raises(InputError, match="already holds a key, which was left as it is") as refused:
        keys.write(path, keys.generate())
    assert "--force" not in str(refused.value)
    assert keys.read(path) == key
    keys.write(path, keys.generate(), force=True)
    assert keys.read(path) != key and stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o601, 0o610, 0o777])
def test_a_key_that_others_could_have_read_is_refused(tmp_path, mode):
    path = tmp_path / "client.key"
    keys.write(path, keys.generate())
    path.chmod(mode)
    with pytest.raises(InputError, match=rf"can be read by others \(mode {mode:04o}\)\. Run: chmod 600"):
        keys.read(path)


@pytest.mark.parametrize("size", [0, 1, 31, 33, 64, 100_000])
def test_a_key_of_another_length_is_refused_without_telling_its_bytes(tmp_path, size):
    path = tmp_path / "client.key"
    path.write_bytes(b"K" * size)
    path.chmod(0o600)
    with pytest.raises(InputError, match="must hold exactly 32 bytes") as caught:
        keys.read(path)
    assert "KK" not in str(caught.value)


def test_what_is_no_file_is_no_key(tmp_path):
    with pytest.raises(InputError, match=r"no key at .*Make one with: fedsynth keygen -o"):
        keys.read(tmp_path / "none.key")
    with pytest.raises(InputError, match="not a regular file"):
        keys.read(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InputError, match="not a regular file"):
        keys.read(tmp_path / "pipe")


@given(secret=st.binary(min_size=32, max_size=32), data=DIGESTS, other=DIGESTS, round=st.integers(1, 5))
def test_a_commitment_opens_with_its_key_and_its_file_only(secret, data, other, round):
    key = Key(secret)
    reference = commit(key, role="data", kind="dataset", sha256=data, context={"round": round})
    reference.check()
    assert opens(key, reference, data)
    assert opens(key, reference, other) == (other == data)
    assert not opens(Key(secret[:-1] + bytes([secret[-1] ^ 1])), reference, data)
    assert data not in (reference.commitment, reference.salt) and reference.sha256 is None


def test_a_commitment_is_the_same_each_time_and_another_in_each_round():
    """Equal commitments would tell that the data did not change; a replay must give equal bytes."""
    key, data = keys.simulated(1, "client 00"), sha256_hex(b"data")
    made = [commit(key, role="data", kind="dataset", sha256=data, context={"round": r}) for r in (1, 2, 1)]
    assert made[0] == made[2]
    assert made[0].salt != made[1].salt and made[0].commitment != made[1].commitment
    other = commit(keys.simulated(1, "client 01"), role="data", kind="dataset", sha256=data, context={"round": 1})
    assert other.salt != made[0].salt and other.commitment != made[0].commitment


def test_a_reference_by_digest_does_not_open():
    assert not opens(keys.generate(), InputRef(role="data", kind="dataset", sha256="a" * 64), "a" * 64)
