"""What is private is for its owner alone: as it is made, whatever the umask, and as it is read."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from artifacts.errors import InputError
from artifacts.identity import keys
from artifacts.identity.owner import refuse_foreign

NOBODY = 65534
PRIVATE = ("private", "pending", "simulation")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def is_private(path):
    return bool({*path.parts} & {*PRIVATE}) or path.name in ("egress.jsonl",)


def too_open(run):
    """What others may read or enter and should not."""
    return [str(path) for path in run.rglob("*") if is_private(path.relative_to(run)) and mode(path) & 0o077]


def test_a_run_keeps_to_itself_what_is_private(finished_run):
    assert too_open(finished_run) == []
    files = [path for path in finished_run.rglob("*") if path.is_file()]
    assert {mode(path) for path in files if not is_private(path.relative_to(finished_run))} == {0o644}
    assert sum(is_private(path.relative_to(finished_run)) for path in files) > 20


def test_whatever_the_umask(tmp_path, in_child, command_line, forge):
    def made():
        os.umask(0)
        client = tmp_path / "run/clients/00"
        codes = [
            command_line("partition", "digits", "--clients", "2", "-o", tmp_path / "run")[0],
            command_line("keygen", "-o", tmp_path / "one/private/client.key")[0],
        ]
        (client / "private/policy.yaml").write_text("rules: []\n")
        (client / "private/policy.yaml").chmod(0o600)
        forge.write_tensors(client / "outbox/a.safetensors", kind="message", round=1)
        forge.write_tensors(client / "outbox/b.safetensors", kind="message", round=1)
        release = ["release", "--not-seen-private", client / "pending/a.safetensors"]
        codes.append(command_line(*release, "--reject")[0])
        return codes

    assert in_child(made) == [0, 0, 0]
    assert too_open(tmp_path) == []
    held = tmp_path / "run/clients/00"
    assert mode(held / "private/rejected") == mode(held / "pending") == 0o700
    assert [mode(path) for path in (held / "private/rejected").iterdir()] == [0o600]
    assert [mode(path) for path in (held / "pending").iterdir()] == [0o600]


def test_what_was_held_can_be_carried_off_when_it_is_released(tmp_path, fedsynth, forge):
    client = tmp_path / "clients/00"
    keys.write(client / "private/client.key", keys.generate())
    forge.write_tensors(client / "pending/a.safetensors", kind="message", round=1)
    assert fedsynth("release", client, "--yes", "--not-seen-private")[0] == 0
    assert mode(client / "outbox/a.safetensors") == 0o644


def test_private_files_in_any_folder(run_copy, tmp_path, fedsynth):
    """By custody, where no folder says so: updates, metrics, pictures, who took part."""
    private, model = run_copy / "clients/00/private", run_copy / "public/model-0000.safetensors"
    out = tmp_path / "elsewhere"
    lines = [
        ["train-client", model, private / "data.parquet", "--client", "00", "--local-steps", "1",
         "-o", out / "u.safetensors"],
        ["evaluate", model, private / "data.parquet", "-o", out / "e.json", "--confusion", out / "c.png"],
        ["inspect", private / "data.parquet", "--images", out / "s.png"],
        ["sample-clients", "00", "01", "--round", "1", "--sampling-rate", "0.5", "--key",
         run_copy / "server/private/server.key", "-o", out / "w.json"],
    ]  # fmt: skip
    for line in lines:
        code, _, err = fedsynth(*line, "-q")
        assert code == 0, err
    found = {path.name: mode(path) for path in out.iterdir()}
    assert len(found) >= 5 and set(found.values()) == {0o600}, found
    assert fedsynth("evaluate", model, run_copy / "public/test.parquet", "-o", out / "public.json", "-q")[0] == 0
    assert mode(out / "public.json") == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_reads_nothing_private(finished_run, in_child):
    def read():
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        seen = set()
        for path in paths:
            try:
                _ = list(path.iterdir()) if path in folders else path.read_bytes()
                seen.add(path)
            except PermissionError:
                continue
        return seen

    with tempfile.TemporaryDirectory() as there:  # others may not enter pytest's own folders
        run = Path(shutil.copytree(finished_run, Path(there) / "run"))
        run.parent.chmod(0o755)
        paths = list(run.rglob("*"))
        folders = {path for path in paths if path.is_dir()}
        seen = in_child(read)
        private = {path for path in paths if is_private(path.relative_to(run))}
        assert not seen & private
        assert seen == set(paths) - private, "what leaves and what is public they may read"


def test_a_ledger_that_others_can_read_is_refused_with_what_to_do(run_copy, commands, refused):
    arguments, _ = commands(run_copy)["encode-update"]
    book = run_copy / "clients/00/egress.jsonl"
    book.chmod(0o640)
    refused(run_copy, *arguments, said=[f"the ledger {book} can be read by others (mode 0640). Run: chmod 600"])
    book.chmod(0o600)
    model, private = run_copy / "public/model-0000.safetensors", run_copy / "clients/00/private"
    (private / "spend.jsonl").chmod(0o604)
    words = ["train-client", model, private / "data.parquet", "--noise-multiplier", "1", "--sampling-rate", "0.1",
             "--batch-size", "16", "--local-steps", "1", "-o", private / "noised.safetensors"]  # fmt: skip
    refused(run_copy, *words, said=[f"chmod 600 {private / 'spend.jsonl'}"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_audits_the_files_of_another_user_and_does_not_work_on_them(run_copy, commands, refused, fedsynth):
    for path in (run_copy, *run_copy.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    assert fedsynth("audit", run_copy, "--replay", "-q")[0] == 0
    arguments, _ = commands(run_copy)["encode-update"]
    book = run_copy / "clients/00/egress.jsonl"
    err = refused(run_copy, *arguments, said=[book])
    assert "belongs to" in err and f"chown 0 {book}" in err
    with pytest.raises(InputError, match="belongs to"):
        refuse_foreign(book.stat(), book, "the key")


def test_an_audit_says_what_others_can_read(run_copy, fedsynth):
    private = run_copy / "clients/01/private"
    (private / "data.parquet").chmod(0o644)
    assert "other users" not in fedsynth("audit", run_copy)[1], "the folder is closed"
    private.chmod(0o755)
    code, out, _ = fedsynth("audit", run_copy)
    assert code == 0 and "other users of this machine can read data.parquet" in out
    assert f"chmod -R go= {private}" in out
    (run_copy / "clients/01/egress.jsonl").chmod(0o622)
    code, out, _ = fedsynth("audit", run_copy)
    assert code == 5 and "others can write to it" in out
