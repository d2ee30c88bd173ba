"""Privacy of whole clients: what `aggregate` and `encode` refuse, before anything is charged."""

import numpy as np
import pytest

from artifacts.formats import tensors_file
from artifacts.ledgers import lineage, spend
from stages.privacy.accountant import planned

SHARED = {"clip_norm": 1.0, "noise_multiplier": 0.5, "least_clients": 3}


AGGREGATE = [
    "--rule",
    "dp-mean",
    "--clip-norm",
    "1",
    "--noise-multiplier",
    "1",
    "--sampling-rate",
    "0.5",
    "--clients",
    "4",
]


def without(option):
    at = AGGREGATE.index(option)
    return [*AGGREGATE[:at], *AGGREGATE[at + 2 :]]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        *((without(o), 2, f"{o} needs a value") for o in AGGREGATE[2::2]),
        (without("--rule"), 2, "goes with --rule dp-mean"),
        *(([*AGGREGATE, "--noise-multiplier", s], 2, "noise") for s in ("0", "-1", "nan", "inf", "1e-5", "1e7")),
        ([*AGGREGATE, "--noise-multiplier", "900000"], 2, "too many"),
        *(([*AGGREGATE, "--sampling-rate", q], 2, "sampling") for q in ("0", "1.01", "nan", "1e-15")),
        *(([*AGGREGATE, "--clip-norm", c], 2, "clip") for c in ("0", "-1", "nan", "inf")),
        ([*AGGREGATE, "--clients", "0"], 2, "--clients"),
        ([*AGGREGATE, "--clients", "1"], 3, "2 clients sent something"),
        ([*AGGREGATE, "--weights", "examples"], 2, "--weights goes with --rule mean"),
        ([*AGGREGATE, "--keep", "0.5"], 2, "--keep goes with --sparsify"),
        ([*AGGREGATE, "--sparsify", "rand-k", "--keep", "0"], 2, "above 0 and at most 1"),
        ([*AGGREGATE, "--state", "no.state"], 2, "--state does not go with --rule dp-mean"),
        ([*AGGREGATE, "--key", "no.key"], 3, "no key at"),
        ([*AGGREGATE, "MESSAGE"], 3, "both from client"),
        ([*AGGREGATE, "SHARE"], 3, "a share of the round's noise"),
        ([*AGGREGATE, "RECORD"], 3, "noise of its own"),
        ([*AGGREGATE, "UPDATE"], 3, "never leaves its client"),
    ],
)  # fmt: skip
def test_bad_aggregates_charge_nothing(fedsynth, forge, federation, words, code, said):
    messages = [federation.message(name, np.ones(10)) for name in ("00", "01")]
    names = {
        "MESSAGE": messages[0],
        "SHARE": federation.message("02", np.ones(10), **SHARED),
        "UPDATE": federation.update("03", np.ones(10)),
        "RECORD": forge.write_tensors(
            federation.client("04") / "outbox/message-0001.safetensors", federation.tensors, kind="message",
            client="04", round=1, privacy=(planned(sampling_rate=0.1, noise_multiplier=1.0, steps=1).to_json(),),
            disclosures=(), inputs=(lineage.by_digest(tensors_file.read(federation.start), "model"),),
        ),
    }  # fmt: skip
    out = federation.server / "outbox/model-0001.safetensors"
    found, _, err = fedsynth("aggregate", federation.start, *messages, *(names.get(w, w) for w in words), "-o", out)
    assert (found, said in err) == (code, True), err
    assert not out.exists()
    assert not federation.charged()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--noise-multiplier", "1", "--least-clients", "2"], 2, "--clip-norm needs a value"),
        (["--noise-multiplier", "1", "--clip-norm", "1"], 2, "--least-clients needs a value"),
        (["--least-clients", "2"], 2, "goes with --noise-multiplier"),
        (["--colluders", "1"], 2, "goes with --noise-multiplier"),
        ([*(shares := ["--noise-multiplier", "1", "--clip-norm", "1", "--least-clients", "2"]), "--colluders", "2"], 2,
         "less than --least-clients"),
        ([*shares, "--colluders", "-1"], 2, "--colluders"),
        ([*shares, "--least-clients", "0"], 2, "--least-clients"),
        *(([*shares, "--noise-multiplier", sigma], 2, "noise") for sigma in ("0", "nan", "inf", "1e-5")),
        ([*shares, "--noise-multiplier", "0.01", "--least-clients", "1000"], 2, "noise_multiplier"),
        ([*shares, "--clip-norm", "inf"], 2, "clip"),
        ([*shares, "--tell-examples"], 2, "without noise"),
        ([*shares, "--method", "state"], 2, "--method delta"),
        ([*shares, "--key", "no.key"], 3, "no key at"),
    ],
)  # fmt: skip
def test_bad_shares_charge_nothing(fedsynth, federation, words, code, said):
    update = federation.update("00", np.ones(10))
    out = federation.client("00") / "outbox/m.safetensors"
    found, _, err = fedsynth("encode", federation.start, update, "-o", out, *words)
    assert (found, said in err, out.exists()) == (code, True, False), err
    assert not federation.charged("00")


def test_keys_and_ledgers_that_are_not_in_order(fedsynth, federation):
    out, key = federation.server / "outbox/m.safetensors", federation.server / "private/server.key"
    command = ["aggregate", federation.start, "-o", out, *AGGREGATE]
    key.chmod(0o644)
    assert fedsynth(*command)[0] == 3
    key.chmod(0o600)
    ledger = spend.beside(key)
    kept = ledger.read_bytes()
    ledger.unlink()
    code, _, err = fedsynth(*command)
    assert (code, "no spend ledger" in err) == (3, True)
    ledger.write_bytes(kept.replace(b"opened", b"Opened"))
    ledger.chmod(0o600)
    assert fedsynth(*command)[0] == 5
    assert not out.exists()


def test_a_message_never_names_a_private_model_by_its_digest(federation, fedsynth):
    """`decode --apply` at a client gives one."""
    message = federation.message("00", np.ones(10))
    mine = federation.client("00") / "private/model-0001.safetensors"
    assert fedsynth("decode", federation.start, message, "--apply", "-o", mine)[0] == 0
    update = federation.update("00", np.ones(10), mine)
    code, _, err = fedsynth("encode", mine, update, "-o", federation.client("00") / "outbox/m.safetensors")
    assert (code, "is private" in err) == (3, True)
