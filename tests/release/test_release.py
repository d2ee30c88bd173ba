"""The gate: everything waits, leaves as it was held, and is entered when it leaves."""

import io
import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from artifacts import publish
from artifacts.errors import BudgetError, InputError, VerificationError
from artifacts.ledgers import chain, gate
from artifacts.places import Place
from stages import release

APPROVED = {"by": "person", "seen_private": False}


def decisions(client):
    lines = (client.root / "private/gate.jsonl").read_text().splitlines()
    return [(e["entry"], e["by"], e["seen_private"]) for e in map(json.loads, lines)]


def test_behind_a_policy_everything_waits(client, message, fedsynth_json):
    assert client.names("outbox") == [] and client.names("pending") == ["message.safetensors"]
    assert client.entries() == []
    assert (client.root / "pending").stat().st_mode & 0o077 == 0
    (row,) = fedsynth_json("release", client.root, "--list")["files"]
    assert (row["decision"], row["kind"], row["epsilon"]) == ("waiting", "message", "∞")
    assert row["disclosures"] == ["update"] and row["policy"] == "no rule for a message"
    assert client.names("pending") == ["message.safetensors"]


def test_a_person_lets_it_leave(client, message, fedsynth_json):
    before = message.read_bytes()
    (row,) = fedsynth_json("release", message, "--yes", "--not-seen-private")["files"]
    assert row["decision"] == "released by a person"
    assert client.outbox().read_bytes() == before and client.names("pending") == []
    (entry,) = client.entries()
    assert (entry.file, entry.picked, entry.disclosures) == ("message.safetensors", False, ["update"])
    assert decisions(client) == [("held", "", False), ("released", "person", False)]
    assert [p for p in (client.root / "private").iterdir() if p.name.startswith(".")] == []


def test_whoever_saw_private_data_costs_the_file_its_epsilon(client, forge, fedsynth_json):
    event = noised_event()
    for name in ("unseen.safetensors", "seen.safetensors"):
        forge.write_tensors(client.outbox(name), kind="message", round=1, privacy=(event,), disclosures=())
    fedsynth_json("release", client.pending("unseen.safetensors"), "--yes", "--not-seen-private")
    (row,) = fedsynth_json("account", client.root, "--delta", "1e-5")["clients"]
    assert row["uncovered"] == []
    fedsynth_json("release", client.pending("seen.safetensors"), "--yes", "--seen-private")
    assert [entry.picked for entry in client.entries()] == [False, True]
    (row,) = fedsynth_json("account", client.root, "--delta", "1e-5")["clients"]
    assert [one["file"] for one in row["uncovered"]] == ["00/seen.safetensors"]
    assert "seen private data" in row["uncovered"][0]["why"]


def noised_event():
    from stages.privacy.events import PrivacyEvent

    event = PrivacyEvent.planned(
        unit="record", sampling_rate=0.01, noise_multiplier=2.0, clip_norm=1.0, steps=10, trust="nobody"
    )
    return event.to_json() | {"id": "1" * 64}


def test_under_a_budget_nobody_who_saw_private_data_releases(client, message):
    (client.root / "private/budget.yaml").write_text("epsilon: 8.0\ndelta: 1.0e-5\nunit: record\n")
    with pytest.raises(BudgetError, match="would cost ∞"):
        release.let_out(release.look(message), by="person", seen_private=True)
    assert client.entries() == [] and message.exists()


def test_a_person_must_say_what_they_saw(client, message, fedsynth):
    code, _, err = fedsynth("release", message, "--yes")
    assert code == 2 and "--seen-private or --not-seen-private" in err
    assert client.names("outbox") == []


def test_rejected_files_are_kept_and_never_leave(client, message, fedsynth_json):
    before = message.read_bytes()
    (row,) = fedsynth_json("release", client.root, "--reject", "--seen-private")["files"]
    assert row["decision"] == "rejected"
    assert client.names("outbox") == [] and client.names("pending") == [] and client.entries() == []
    (kept,) = (client.root / "private/rejected").iterdir()
    assert kept.read_bytes() == before
    assert decisions(client)[-1] == ("rejected", "person", True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("typed", "decision", "picked"),
    [("yes\ny\n", "released by a person, picked", True), ("y\nn\n", "released by a person", False),
     ("no\nn\n", "rejected", None), ("\n", "waiting", None), ("perhaps\n", "waiting", None)],
)  # fmt: skip
def test_a_person_at_the_terminal_is_asked(client, message, fedsynth, monkeypatch, typed, decision, picked):
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    code, out, _ = fedsynth("release", client.root)
    assert code == (6 if decision == "waiting" else 0) and decision.split(",")[0].split()[0] in out
    assert [entry.picked for entry in client.entries()] == ([] if picked is None else [picked])
    assert message.exists() == (decision == "waiting")


def test_a_pipeline_sees_that_nothing_was_released(client, message, fedsynth):
    code, out, err = fedsynth("release", client.root, "--json")
    assert code == 6 and "nothing was released: 1 file waits" in err
    assert json.loads(out)["waiting"] == 1, "one object, the result"
    assert fedsynth("release", client.root, "--yes", "--not-seen-private")[0] == 0
    assert fedsynth("release", client.root)[0] == 0, "nothing waits any more"


def test_to_list_decides_nothing(client, message, fedsynth):
    code, out, _ = fedsynth("release", client.root, "--list")
    assert code == 0 and "message" in out and "update" in out
    assert client.names("pending") == ["message.safetensors"] and len(decisions(client)) == 1


def test_changed_bytes_do_not_leave(client, message, forge):
    data = message.read_bytes()
    message.write_bytes(forge.flip(data, len(data) - 1, 0))
    with pytest.raises(InputError, match="do not match their digest"):
        release.look(message)
    message.unlink()
    forge.write_tensors(client.root / "pending/other.safetensors", kind="message", round=2)
    (client.root / "pending/other.safetensors").replace(message)  # a whole artifact, but another
    with pytest.raises(VerificationError, match="changed since"):
        release.look(message)
    assert client.entries() == []


def test_what_no_stage_put_there_does_not_leave(client, message):
    stranger = client.pending("stranger.safetensors")
    stranger.write_bytes(message.read_bytes())
    with pytest.raises(VerificationError, match="put there by no stage"):
        release.look(stranger)
    stranger.unlink()
    stranger.symlink_to(message)
    with pytest.raises(InputError, match="not a regular file"):
        release.look(stranger)


def test_bytes_that_change_after_the_look_do_not_leave(client, message, forge):
    one = release.look(message)
    data = message.read_bytes()
    message.write_bytes(forge.flip(data, len(data) - 1, 0))
    with pytest.raises(VerificationError, match="changed while it was looked at"):
        release.let_out(one, **APPROVED)
    assert client.names("outbox") == [] and client.entries() == []


def test_a_log_that_was_edited_lets_nothing_out(client, message):
    log = client.root / "private/gate.jsonl"
    log.write_text(log.read_text().replace("message.safetensors", "massage.safetensors"))
    with pytest.raises(VerificationError, match="put there by no stage"):
        release.look(message)
    log.write_text(log.read_text().replace('"previous":"00', '"previous":"01'))
    with pytest.raises(VerificationError, match="chain is broken"):
        release.look(message)


@pytest.mark.parametrize("moment", ["decide", "enter", "place", "unlink"])
def test_killed_anywhere_nothing_is_lost(client, message, monkeypatch, moment):
    """The process dies before the step that is named; the next release goes on from there."""

    class Killed(BaseException):
        pass

    def die(*_, **__):
        raise Killed

    targets = {
        "decide": (gate.chain.LockedChain, "append"),
        "enter": (publish.egress.LockedLedger, "enter"), "place": (publish.atomic, "place"),
        "unlink": (release.Path, "unlink"),
    }  # fmt: skip
    before = message.read_bytes()
    one = release.look(message)
    with monkeypatch.context() as patched:
        patched.setattr(*targets[moment], die)
        with pytest.raises(Killed):
            release.let_out(one, **APPROVED)
    assert message.read_bytes() == before
    # Whatever is in the outbox has its entry.
    assert set(client.names("outbox")) <= {entry.file for entry in client.entries()}
    release.let_out(release.look(message), **APPROVED)
    assert client.outbox().read_bytes() == before and client.names("pending") == []
    assert len(client.entries()) == 1


def _release(path):
    try:
        release.let_out(release.look(path), **APPROVED)
    except Exception:
        return


def test_two_who_release_the_same_file_release_it_once(client, message):
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_release, args=(message,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert client.names("outbox") == ["message.safetensors"] and client.names("pending") == []
    assert len(client.entries()) == 1


def test_a_name_that_is_taken_is_refused(client, forge, message):
    release.let_out(release.look(message), **APPROVED)
    with pytest.raises(InputError, match="already exists"):
        forge.write_tensors(client.outbox(), kind="message", round=2)
    assert client.names("pending") == []


def test_gate_by_the_option(client, fedsynth_json, forge, message):
    """Without a policy `--gate` does the same for one file; a path in pending/ does, too."""
    (client.root / "private/policy.yaml").unlink()
    forge.write_tensors(client.pending("direct.safetensors"), kind="message", round=1)
    assert client.names("outbox") == [] and client.entries() == []
    rows = fedsynth_json("release", client.root, "--list")["files"]
    assert [row["policy"] for row in rows] == ["no rule for a message"] * 2


def test_a_sheet_shows_the_images(client, forge, fedsynth_json):
    images = np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(4, 1, 8, 8)
    tensors = {"images": images, "labels": np.array([0, 1, 2, 2])}
    forge.write_tensors(client.outbox("surrogate.safetensors"), tensors, kind="surrogate", round=1)
    (row,) = fedsynth_json("release", client.root, "--list")["files"]
    sheet = Path(row["sheets"][0])
    assert sheet.is_relative_to(client.root / "private") and sheet.read_bytes().startswith(b"\x89PNG")


def test_stages_say_that_a_file_is_held(client, fedsynth, forge, tmp_path, monkeypatch):
    from artifacts.formats import tensors_file
    from artifacts.ledgers import lineage
    from artifacts.metadata import Metadata

    model = forge.write_tensors(tmp_path / "model.safetensors", kind="model", round=0)
    about = Metadata(
        kind="update", stage="train-client", custody="private", client="00", round=1, versions={},
        inputs=(lineage.by_digest(tensors_file.read(model), "model"),),
    )  # fmt: skip
    update = client.root / "private/update.safetensors"
    tensors_file.write(update, tensors_file.read(model).tensors, about)
    code, out, err = fedsynth("encode", model, update, "-o", client.outbox())
    assert code == 0 and "held, not sent" in err and str(client.pending()) in out
    assert str(client.outbox()) not in out, "the file that there is, not the one that there will be"
    (client.root / "private/policy.yaml").unlink()
    code, _, _ = fedsynth("encode", model, update, "--gate", "-o", client.outbox("other.safetensors"))
    assert code == 0 and client.names("outbox") == [] and len(client.names("pending")) == 2
    monkeypatch.chdir(client.root / "outbox")  # a name alone, typed inside the outbox
    code, _, _ = fedsynth("encode", model, update, "--gate", "-o", "third.safetensors")
    assert code == 0 and client.names("outbox") == [] and len(client.names("pending")) == 3


def test_where_nothing_waits(client, fedsynth, tmp_path):
    code, out, _ = fedsynth("release", client.root)
    assert code == 0 and "nothing waits" in out
    code, _, err = fedsynth("release", tmp_path)
    assert code == 3 and "no participant's folder" in err
    code, _, err = fedsynth("release", client.root / "private/client.key")
    assert code == 3 and "not in a folder named pending/" in err


def test_the_log_is_a_chain(client, message):
    release.let_out(release.look(message), **APPROVED)
    log = gate.log_of(Place(client.root))
    assert len(chain.read(log, lambda _: True).entries) == 2
