"""A real client whose spend ledger is put back: the next training is refused, and the audit says so."""

import shutil

import pytest

from artifacts.ledgers import remembered

TRAIN = ["--noise-multiplier", 1, "--sampling-rate", 0.1, "--batch-size", 16, "--local-steps", 1]


@pytest.fixture
def client(finished_run, tmp_path, fedsynth):
    """Of a home with a real key, after one training with noise; and the spend ledger as it was before."""
    home = tmp_path / "run"
    shutil.copytree(finished_run / "public", home / "public")
    private = home / "clients/00/private"
    private.mkdir(parents=True, mode=0o700)
    shutil.copy(finished_run / "clients/00/private/data.parquet", private)
    assert fedsynth("keygen", "-o", private / "client.key", "-q")[0] == 0
    assert train(home / "clients/00", fedsynth, 1) == (0, "", "")
    shutil.copy(private / "spend.jsonl", tmp_path / "backup.jsonl")
    assert train(home / "clients/00", fedsynth, 2)[0] == 0
    return home / "clients/00"


def train(client, fedsynth, seed):
    model, update = client.parents[1] / "public/model-0000.safetensors", client / f"private/update-{seed}.safetensors"
    words = [model, client / "private/data.parquet", *TRAIN, "--seed", seed]
    code, out, err = fedsynth("train-client", *words, "-o", update, "-q")
    if code == 0:
        code, out, err = fedsynth("encode", model, update, "-o", client / f"outbox/message-{seed:04}.safetensors", "-q")
    return code, out, err


def budget_of(fedsynth_report):
    return [line for line in fedsynth_report.splitlines() if " budget " in line and line[:1].isupper()]


def put_back(client, tmp_path):
    shutil.copy(tmp_path / "backup.jsonl", client / "private/spend.jsonl")


def test_training_after_a_restored_backup_is_refused_until_the_newest_is_back(client, fedsynth, tmp_path):
    newest = (client / "private/spend.jsonl").read_bytes()
    put_back(client, tmp_path)
    code, _, err = train(client, fedsynth, 3)
    assert code == 5 and "put back, cut or made anew" in err and "Put the newest ledger back" in err
    assert not (client / "private/update-3.safetensors").exists()
    (client / "private/spend.jsonl").write_bytes(newest)
    assert train(client, fedsynth, 3)[0] == 0


def test_the_audit_of_a_clean_client_passes_and_of_one_put_back_fails(client, fedsynth, tmp_path):
    code, out, _ = fedsynth("audit", client)
    assert code == 0, out
    # What left after the backup is gone too: only what is remembered shows that the ledger is an old one.
    put_back(client, tmp_path)
    (client / "private/update-2.safetensors").unlink()
    (client / "outbox/message-0002.safetensors").unlink()
    code, out, _ = fedsynth("audit", client)
    assert code == 5 and any("older than what this user remembers" in line for line in budget_of(out))


def test_an_older_copy_elsewhere_is_incomplete_unless_the_client_s_memory_is_given(
    client, fedsynth, tmp_path, monkeypatch
):
    copy = tmp_path / "elsewhere"
    shutil.copytree(client.parents[1], copy)
    put_back(copy / "clients/00", tmp_path)
    (copy / "clients/00/outbox/message-0002.safetensors").unlink()
    (copy / "clients/00/private/update-2.safetensors").unlink()
    code, out, _ = fedsynth("audit", copy / "clients/00")
    assert code == 6 and "the newest spend ledger of 00 (5 entries)" in out
    memory = shutil.copytree(remembered.folder(), tmp_path / "memory")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "the auditor's"))
    assert fedsynth("audit", copy / "clients/00")[0] == 0
    assert fedsynth("audit", copy / "clients/00", "--remembered", memory)[0] == 5
    assert fedsynth("audit", client, "--remembered", memory)[0] == 0
    code, out, _ = fedsynth("audit", client, "--remembered", tmp_path)
    assert code == 6 and "has nothing" in out


def test_a_replay_neither_notes_nor_asks(client, fedsynth):
    before = {one.path: one.path.read_bytes() for one in remembered.known(_key(client))}
    assert len(before) == 1
    code, out, _ = fedsynth("audit", client, "--replay")
    assert code == 0, out
    assert {one.path: one.path.read_bytes() for one in remembered.known(_key(client))} == before


def _key(client):
    from artifacts.identity import keys

    return keys.read(client / "private/client.key")
