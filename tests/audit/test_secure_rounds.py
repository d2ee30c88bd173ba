"""Secure aggregation's files have room for what the protocol needs and no more, whatever an insider tries."""

import dataclasses

import numpy as np
import pytest
from tampering.run import Run

from artifacts.fields import Clients
from artifacts.formats import Format, tensors_file
from artifacts.formats.safetensors_layout import DTYPES
from artifacts.identity.roster import read_roster
from artifacts.kinds import KINDS, Kind, TensorRule
from stages.audit import ReplayOptions, audit
from stages.audit.secure_rounds import SecureRounds
from stages.audit.surrounding_files import Given
from stages.secagg import primitives, shamir
from stages.secagg.collect import CIPHERTEXT_BYTES
from stages.secagg.member import Member
from stages.secagg.roster import signing_key
from stages.secagg.session import signature_of, signed, survivors_statement


@pytest.fixture
def run(tampered, forge):
    return Run(tampered, forge)


def audited(run):
    return audit(run.client, received=[run.root / "public", run.root / "server/outbox"])


def failures(report):
    return {f.check for f in report.findings if f.level == "failure"}


def smuggle(run, kind, tensors=None, resign=False, **changes):
    """The file as an insider's own writer makes it: held to nothing; signed again by the client's key, if `resign`."""
    with pytest.MonkeyPatch.context() as patched:
        for check in ("_check_stated", "_check_promises"):
            patched.setattr(tensors_file, check, lambda *_: None)
        if resign:
            found, about = run.tensors(kind), dataclasses.replace(run.about(kind), **changes)
            changes["params"] = signed(about, {**found, **(tensors or {})}, signing_key(run.key))
        run.rewrite(kind, tensors, **changes)


PRIVATE = np.arange(719 * 64, dtype=np.uint8)
SMUGGLED = {
    "secagg-keys": {"cipher_keys": PRIVATE.reshape(-1, 32), "mask_keys": PRIVATE.reshape(-1, 32),
                    "signatures": np.zeros((len(PRIVATE) // 32, 64), np.uint8)},
    "secagg-shares": {"ciphertexts": PRIVATE.reshape(1, 1, -1)},
    "secagg-survivors": {"signatures": PRIVATE.reshape(-1, 64)},
    "secagg-unmask": {"seeds": PRIVATE[: 66 * 600].reshape(-1, 66)},
    "secagg-masked": {"images": np.zeros((719, 64), np.int32)},
}  # fmt: skip


@pytest.mark.parametrize("kind", SMUGGLED)
def test_a_private_dataset_does_not_leave_as_keys_or_shares(run, kind):
    smuggle(run, kind, SMUGGLED[kind])
    assert failures(audited(run)) & {"tensors", "params"}


def test_no_rule_of_a_policy_lets_it_out(run, fedsynth):
    smuggle(run, "secagg-keys", SMUGGLED["secagg-keys"])
    (run.private / "policy.yaml").write_text("rules:\n- kinds: [secagg-keys]\n  max_bytes: 1000000000\n")
    path = run.client / "pending" / run.path("secagg-keys").name
    path.parent.mkdir()
    run.path("secagg-keys").rename(path)
    code, _, errors = fedsynth("release", run.client, "-q")
    assert code != 0 and "clients" in errors
    assert not run.path("secagg-keys").exists()


def test_every_kind_that_no_replay_gives_again_is_bounded():
    fresh = [kind for kind in KINDS.values() if kind.is_fresh]
    assert len(fresh) >= 4 and all(kind.is_bounded for kind in fresh)


@pytest.mark.parametrize(
    "declared",
    [
        {"tensors": {"x": TensorRule(dtypes=("U8",), dims=("any",))}, "params": {}},
        {"tensors": {"x": TensorRule(dtypes=("U8",), dims=(32,))}},
        {"tensors": None, "params": {"who": Clients()}},
    ],
)
def test_a_new_kind_must_declare_its_sizes(declared):
    with pytest.raises(ValueError, match="exact sizes"):
        Kind(name="new", format=Format.TENSORS, custodies=("outbound",), text="new", from_data=False, **declared)


def test_the_declared_sizes_are_those_of_the_arithmetic():
    sizes = {
        ("secagg-keys", "cipher_keys"): primitives.KEY_BYTES, ("secagg-keys", "signatures"): primitives.SIGNATURE_BYTES,
        ("secagg-shares", "ciphertexts"): CIPHERTEXT_BYTES, ("secagg-shares", "commitments"): 32,
        ("secagg-unmask", "seeds"): shamir.SHARE_BYTES, ("secagg-unmask", "mask_keys"): shamir.SHARE_BYTES,
    }  # fmt: skip
    for (kind, tensor), size in sizes.items():
        assert KINDS[kind].tensors[tensor].dims[-1] == size
        assert DTYPES[KINDS[kind].tensors[tensor].dtypes[0]].itemsize == 1


# The insider signs what it changed with its own key: the session says otherwise.
SIGNED_AGAIN = {
    "shares for fewer": ("secagg-shares", {"ciphertexts": (1, 2, CIPHERTEXT_BYTES)}, {"receivers": ["00", "01"]}),
    "shares of another": ("secagg-shares", {}, {"senders": ["02"]}),
    "another grid": ("secagg-masked", {}, {"step": 1.5e-5}),
    "another bound": ("secagg-masked", {}, {"most": 4711}),
    "fewer peers": ("secagg-masked", {}, {"peers": ["01"]}),
    "strange peers": ("secagg-masked", {}, {"peers": ["00", "01", "Mueller-1968"]}),
    "noise that is none": ("secagg-masked", {}, {"encoding": {"method": "delta", "clip_norm": 4711.0}}),
    "strange survivors": ("secagg-unmask", {"seeds": (4, 66)}, {"survivors": ["00", "01", "02", "Mueller"]}),
    "both kinds of share": ("secagg-unmask", {"mask_keys": (1, 66)}, {"dropped": ["00"]}),
    "a row that is no share": ("secagg-unmask", {"seeds": (3, 66)}, {}),
}


@pytest.mark.parametrize("what", SIGNED_AGAIN)
def test_what_the_session_does_not_say_fails_though_it_is_signed(run, what):
    kind, shapes, params = SIGNED_AGAIN[what]
    tensors = {name: np.full(shape, 255, np.uint8) for name, shape in shapes.items()}
    smuggle(run, kind, tensors, resign=True, params={**run.about(kind).params, **params})
    assert failures(audited(run)) & {"params", "tensors"}


def test_a_list_of_survivors_of_ones_own_fails_though_it_is_signed(run):
    """Each client that it has or has not would be a bit."""
    kind = "secagg-survivors"
    found = tensors_file.read(run.path(kind))
    (keys,), (model,) = found.metadata.digests_of("keys"), found.metadata.digests_of("model")
    given, roster = Given.read([run.root / "public", run.root / "server/outbox"]), run.root / "public/roster.json"
    session = SecureRounds(given, read_roster(roster)).session_of(keys)
    signature = primitives.sign(signing_key(run.key), survivors_statement(session.bound(model), ("00", "01")))
    rows = np.frombuffer(signature, np.uint8).reshape(1, -1)
    run.rewrite(kind, {"signatures": rows}, params={**found.metadata.params, "survivors": ["00", "01"]})
    said = [f.what for f in audited(run).findings if f.level == "failure"]
    assert "it answers for other survivors than the server's list has" in said


@pytest.mark.parametrize("kind", ["secagg-shares", "secagg-masked", "secagg-unmask"])
def test_a_signature_that_is_not_the_clients_fails(run, kind):
    about = run.about(kind)
    smuggle(run, kind, params={**about.params, "signature": "ab" * 64})
    assert "envelopes" in failures(audited(run))


@pytest.mark.parametrize("kind", ["secagg-keys", "secagg-survivors"])
def test_a_signature_among_the_tensors_that_is_not_the_clients_fails(run, kind):
    smuggle(run, kind, {"signatures": np.full((1, 64), 7, np.uint8)})
    assert "envelopes" in failures(audited(run))


def test_a_signature_with_a_nonce_of_ones_own_is_noticed(run):
    """Valid, but not the one that the key makes: RFC 8032's nonce is a digest, an insider's can carry a message."""
    kind = "secagg-unmask"
    _, statement = signature_of(tensors_file.read(run.path(kind)))
    other = _signed_with_nonce(signing_key(run.key), statement, 4711)
    primitives.check_signature(primitives.verify_key(signing_key(run.key)), other, statement)  # it is a good one
    smuggle(run, kind, params={**run.about(kind).params, "signature": other.hex()})
    said = [f.what for f in audited(run).findings if f.check == "envelopes" and f.level == "failure"]
    assert any("not the one that the client's key makes" in what for what in said)


def test_keys_and_commitments_are_made_again_while_their_secrets_are_kept(run, fedsynth):
    """A second round is begun and not answered: the secrets are there."""
    keys = run.out / "secagg-keys-0002.safetensors"
    assert fedsynth("secagg", "keys", "--round", 2, "-o", keys, "-q")[0] == 0
    assert not failures(audited(run))
    member = Member("01", run.private / "client.key", run.key)
    kept = member.secrets(2)
    member.keep(dataclasses.replace(kept, mask_secret=primitives.new_pair().secret.hex()))
    said = [f.what for f in audited(run).findings if f.level == "failure"]
    assert said == ["its mask_keys are not those of the secrets that the client keeps"]


def test_a_commitment_to_nothing_is_found_by_the_answers_of_the_round(run):
    """32 bytes of an insider's own, signed: who has the answers of the others has the seed."""
    assert not failures(audit(run.root))
    smuggle(run, "secagg-shares", {"commitments": np.arange(32, dtype=np.uint8).reshape(1, 32)}, resign=True)
    assert not failures(audited(run)), "nobody can tell by the client's folder alone"
    said = [f.what for f in audit(run.root).findings if f.level == "failure"]
    assert "its commitment is not to the seed that the round's answers give" in said


def test_an_answer_with_a_share_of_ones_own_is_found(run):
    seeds = run.tensors("secagg-unmask")["seeds"].copy()
    seeds[0, -1] ^= 1
    smuggle(run, "secagg-unmask", {"seeds": seeds}, resign=True)
    assert not failures(audited(run))
    assert "tensors" in failures(audit(run.root))


def _signed_with_nonce(secret, statement, nonce):
    """Ed25519 by hand (RFC 8032), with a nonce of one's own."""
    import hashlib

    p, order = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
    d = -121665 * pow(121666, -1, p) % p

    def add(a, b):
        (x1, y1), (x2, y2) = a, b
        t = d * x1 * x2 * y1 * y2
        return (x1 * y2 + x2 * y1) * pow(1 + t, -1, p) % p, (y1 * y2 + x1 * x2) * pow(1 - t, -1, p) % p

    def times(k, point):
        found = (0, 1)
        while k:
            found = add(found, point) if k & 1 else found
            point, k = add(point, point), k >> 1
        return found

    y = 4 * pow(5, -1, p) % p
    x = pow((y * y - 1) * pow(d * y * y + 1, -1, p) % p, (p + 3) // 8, p)
    x = x if (x * x * (d * y * y + 1) - (y * y - 1)) % p == 0 else x * pow(2, (p - 1) // 4, p) % p
    base = (x if x % 2 == 0 else p - x, y)
    spelt = lambda point: (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")  # noqa: E731
    head = bytearray(hashlib.sha512(secret).digest()[:32])
    head[0] &= 248
    head[31] = head[31] & 127 | 64
    scalar = int.from_bytes(head, "little")
    text = primitives._labelled("statement", statement)
    first = spelt(times(nonce, base))
    h = int.from_bytes(hashlib.sha512(first + spelt(times(scalar, base)) + text).digest(), "little") % order
    return first + ((nonce + h * scalar) % order).to_bytes(32, "little")


@pytest.mark.parametrize("kind", ["secagg-keys", "secagg-shares", "secagg-masked", "secagg-unmask"])
def test_versions_of_what_no_replay_gives_again_are_not_confirmed(run, kind):
    """They could say anything; and which libraries they are of follows from the step."""
    found = dict(run.about(kind).versions)
    smuggle(run, kind, resign=kind != "secagg-keys", versions={**found, "cryptography": "19.68"})
    received = [run.root / "public", run.root / "server/outbox"]
    report = audit(run.client, received=received, replay=ReplayOptions(device="cpu"))
    said = [f.what for f in report.findings if f.check == "replay" and f.level == "unknown"]
    assert report.error.exit_code == 6 and len(said) == 1 and "cryptography 19.68" in said[0], report.findings
    smuggle(run, kind, resign=kind != "secagg-keys", versions={**found, "pillow": "1.0"})
    assert "params" in failures(audited(run))
