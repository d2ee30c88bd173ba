"""Every check of the audit has a case that it catches, and says which check caught it."""

import json
import shutil

import numpy as np
import pytest

from artifacts.formats import dataset_file, tensors_file
from artifacts.identity import keys
from artifacts.metadata import InputRef, Metadata
from stages.audit import audit
from stages.data.png import encode_png


def failures(folder):
    return {(f.check, f.where.rsplit("/", 1)[-1]) for f in audit(folder).findings if f.level == "failure"}


def notes(folder):
    return {f.check for f in audit(folder).findings if f.level == "note"}


@pytest.fixture
def client(run_copy):
    return run_copy / "clients/01"


MESSAGE = "message-0001.safetensors"


def rewrite(path, **changes):
    """The file again, valid in itself, with other metadata: what a dishonest client could write."""
    artifact = tensors_file.read(path)
    about = {name: getattr(artifact.metadata, name) for name in Metadata.__dataclass_fields__} | changes
    tensors_file.write(path, artifact.tensors, Metadata(**about), force=True)


def test_an_honest_run_passes(finished_run):
    report = audit(finished_run)
    assert report.passed
    assert "PASS" in report.verdict
    assert "simulation" in report.verdict
    sent = {s.name: s for s in report.sent}
    assert (sent["00"].files, sent["server"].files) == (2, 2)
    assert sent["00"].bytes == sum(p.stat().st_size for p in (finished_run / "clients/00/outbox").iterdir())
    assert report.to_json()["sent"][0]["epsilon"] == "inf"
    assert notes(finished_run) == {"anchor"}


def test_one_clients_folder_can_be_audited_alone(client):
    report = audit(client)
    assert report.passed
    assert [s.name for s in report.sent] == ["01"]


def test_a_file_that_nobody_recorded(client, run_copy):
    shutil.copy(client / "outbox" / MESSAGE, client / "outbox/extra.safetensors")
    assert failures(run_copy) == {("ledger", "extra.safetensors")}


def test_a_flipped_bit(client, run_copy):
    path = client / "outbox" / MESSAGE
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert failures(run_copy) == {("digest", MESSAGE)}


def test_whole_files_swapped_between_rounds(client, run_copy):
    one, two = client / "outbox" / MESSAGE, client / "outbox/message-0002.safetensors"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert failures(run_copy) == {("digest", MESSAGE), ("digest", "message-0002.safetensors")}


def test_a_message_of_another_client(client, run_copy):
    shutil.copy(run_copy / "clients/00/outbox" / MESSAGE, client / "outbox" / MESSAGE)
    found = failures(run_copy)
    assert ("digest", MESSAGE) in found
    assert ("custody", MESSAGE) in found


def test_a_message_that_declares_nothing(client, run_copy):
    rewrite(client / "outbox" / MESSAGE, disclosures=(), counts={})
    assert ("disclosures", MESSAGE) in failures(run_copy)


def test_a_private_file_in_an_outbox(client, run_copy):
    shutil.copy(client / "private/update-0001.safetensors", client / "outbox/update-0001.safetensors")
    found = failures(run_copy)
    assert ("custody", "update-0001.safetensors") in found
    assert ("ledger", "update-0001.safetensors") in found


def test_a_private_input_named_by_its_digest(client, run_copy):
    update = tensors_file.read(client / "private/update-0001.safetensors")
    message = tensors_file.read(client / "outbox" / MESSAGE)
    model = next(reference for reference in message.metadata.inputs if reference.role == "model")
    rewrite(client / "outbox" / MESSAGE, inputs=(model, InputRef(role="update", kind="update", sha256=update.sha256)))
    assert ("lineage", MESSAGE) in failures(run_copy)


def test_a_commitment_that_opens_to_nothing(client, run_copy):
    (client / "private/update-0001.safetensors").unlink()
    assert ("lineage", MESSAGE) in failures(run_copy)


def test_a_model_that_the_server_never_sent(client, run_copy):
    (run_copy / "public/model-0000.safetensors").unlink()
    assert ("lineage", MESSAGE) in failures(run_copy)


def test_the_key_inside_an_outbound_file(client, run_copy):
    secret = keys.read(client / "private/client.key").secret
    message = tensors_file.read(client / "outbox" / MESSAGE)
    tensors = {name: tensor.copy() for name, tensor in message.tensors.items()}
    flat = next(iter(tensors.values())).reshape(-1)
    flat[:8] = np.frombuffer(secret, np.float32)
    tensors_file.write(message.path, tensors, message.metadata, force=True)
    assert ("secrets", MESSAGE) in failures(run_copy)


def test_a_key_that_others_can_read(client, run_copy):
    (client / "private/client.key").chmod(0o644)
    assert ("secrets", "client.key") in failures(run_copy)


def test_a_picture_with_a_hidden_chunk(client, run_copy):
    png = bytearray(encode_png(np.zeros((8, 8, 1), np.uint8)))
    import zlib

    body = b"tEXt" + b"patient\x00Mueller"
    chunk = (len(body) - 4).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    png[33:33] = chunk  # after IHDR
    about = Metadata(
        kind="dataset", stage="synthesize", custody="outbound", client="01", versions={"fedsynth": "0"},
        disclosures=("class_set", "derived_images"),
        method="vae",
        params={"num_classes": 10, "channels": 1, "height": 8, "width": 8, "labels": "uniform",
                "class_names": [str(digit) for digit in range(10)]},
    )  # fmt: skip
    dataset_file.write(client / "outbox/synthetic.parquet", [bytes(png)], np.zeros(1, np.int64), about)
    assert ("images", "synthetic.parquet") in failures(run_copy)


@pytest.mark.parametrize("damage", ["edit", "delete", "reorder", "repeat", "not json"])
def test_a_changed_ledger(client, run_copy, damage, fedsynth):
    path = client / "egress.jsonl"
    first, second = path.read_text().splitlines()
    edited = json.loads(first) | {"bytes": 1}
    lines = {
        "edit": [json.dumps(edited, sort_keys=True, separators=(",", ":")), second],
        "delete": [second],
        "reorder": [second, first],
        "repeat": [first, first, second],
        "not json": ["{", second],
    }[damage]
    path.write_text("\n".join(lines) + "\n")
    assert ("chain", "egress.jsonl") in failures(run_copy)
    code, _, err = fedsynth("audit", run_copy)
    assert code == 5
    assert "FAIL" in err


def test_a_deleted_ledger(client, run_copy):
    (client / "egress.jsonl").unlink()
    assert failures(run_copy) == {("ledger", MESSAGE), ("ledger", "message-0002.safetensors")}


def test_a_file_that_was_sent_away_is_a_note(client, run_copy):
    (client / "outbox" / MESSAGE).unlink()
    assert failures(run_copy) == set()
    assert "ledger" in notes(run_copy)


def test_without_the_key_commitments_stay_closed_and_it_says_so(client, run_copy):
    (client / "private/client.key").unlink()
    assert failures(run_copy) == set()
    report = audit(run_copy)
    assert ("lineage", "the key of 01") in {(f.check, f.what) for f in report.findings if f.level == "unchecked"}


def test_a_symlink_in_an_outbox(client, run_copy):
    (client / "outbox/link.safetensors").symlink_to(client / "private/update-0001.safetensors")
    assert ("outbox", "link.safetensors") in failures(run_copy)
