"""What is in a file that leaves, opened with plain safetensors: nothing private, nothing undeclared."""

import json

import pytest
from safetensors import safe_open

from artifacts.digests import sha256_file
from artifacts.formats import tensors_file
from artifacts.identity import commitments, keys


def plain_metadata(path):
    with safe_open(path, framework="numpy") as file:
        text = file.metadata()
    assert set(text) == {"fedsynth"}
    return json.loads(text["fedsynth"])


def outbound(run):
    return sorted([*run.glob("clients/*/outbox/*"), *run.glob("server/outbox/*")])


def test_no_seed_count_path_time_or_private_digest_leaves(finished_run):
    private = {sha256_file(path) for path in finished_run.glob("clients/*/private/*")}
    payloads = {tensors_file.read(p).payload_sha256 for p in finished_run.glob("clients/*/private/*.safetensors")}
    for path in outbound(finished_run):
        about = plain_metadata(path)
        text = json.dumps(about)
        assert "seed" not in about
        assert not any(digest in text for digest in private)
        assert str(finished_run) not in text
        assert set(about) <= {
            "schema", "kind", "stage", "method", "custody", "client", "round", "params", "counts", "inputs",
            "privacy", "disclosures", "simulation", "versions", "payload_sha256", "seal_sha256",
        }  # fmt: skip
        if about["kind"] == "message":
            # The full update is disclosed, so its payload digest tells nothing more; its file's digest would.
            assert about["payload_sha256"] in payloads
            assert about["simulation"] is True
            assert about["counts"].keys() <= set(about["disclosures"])
        else:
            assert "counts" not in about


def test_downlinks_do_not_say_who_took_part(finished_run):
    messages = {sha256_file(path) for path in finished_run.glob("clients/*/outbox/*")}
    for path in finished_run.glob("server/outbox/*"):
        about = plain_metadata(path)
        assert [reference["role"] for reference in about["inputs"]] == ["model"]
        assert "client" not in about
        record = json.loads((finished_run / f"server/private/{path.stem}.lineage.json").read_text())
        assert {reference["sha256"] for reference in record["inputs"]} <= messages
        assert len(record["inputs"]) == 3


def test_commitments_differ_from_round_to_round_and_open_with_the_key(finished_run):
    place = finished_run / "clients/00"
    key = keys.read(place / "private/client.key")
    seen = set()
    for round in ("0001", "0002"):
        message = tensors_file.read(place / f"outbox/message-{round}.safetensors")
        reference = next(r for r in message.metadata.inputs if r.role == "update")
        assert commitments.opens(key, reference, sha256_file(place / f"private/update-{round}.safetensors"))
        assert not commitments.opens(
            keys.generate(), reference, sha256_file(place / f"private/update-{round}.safetensors")
        )
        seen |= {reference.commitment, reference.salt}
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["encode", "MODEL", "UPDATE", "-o", "elsewhere.safetensors", "--client", "00"], "folder named outbox/"),
        (["train-client", "MODEL", "DATA", "-o", "clients/00/outbox/u.safetensors"], "may not be in an outbox"),
        (["keygen", "-o", "clients/00/outbox/client.key"], "a key may not be in an outbox"),
        (["evaluate", "MODEL", "DATA", "-o", "clients/00/outbox/m.json"], "may not be in an outbox"),
        (["decode", "MODEL", "MESSAGE", "-o", "clients/00/outbox/d.safetensors"], "may not be in an outbox"),
    ],
)
def test_nothing_private_gets_into_an_outbox_and_nothing_leaves_elsewhere(
    fedsynth, run_copy, monkeypatch, command, said
):
    monkeypatch.chdir(run_copy)
    names = {
        "MODEL": "public/model-0000.safetensors",
        "UPDATE": "clients/00/private/update-0001.safetensors",
        "DATA": "clients/00/private/data.parquet",
        "MESSAGE": "clients/00/outbox/message-0001.safetensors",
    }
    before = sorted(run_copy.rglob("*"))
    code, _, err = fedsynth(*(names.get(word, word) for word in command))
    assert code == 2
    assert said in err
    assert sorted(run_copy.rglob("*")) == before


def test_a_private_update_cannot_be_aggregated(fedsynth, run_copy):
    update = run_copy / "clients/00/private/update-0001.safetensors"
    out = run_copy / "server/outbox/again.safetensors"
    code, _, err = fedsynth("aggregate", run_copy / "public/model-0000.safetensors", update, "-o", out)
    assert code == 3
    assert "never leaves its client" in err
    assert not out.exists()
