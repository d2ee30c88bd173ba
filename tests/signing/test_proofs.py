"""An auditor who holds one signed tree head checks any file by it, and any later tree head, with nothing else."""

import json
import shutil
from pathlib import Path

import pytest

from artifacts.errors import IncompleteError, InputError, UsageError, VerificationError
from artifacts.ledgers import proofs
from stages.receipt import give, keep
from stages.receipt_proof import prove

ROUNDS = (1, 2, 3)


@pytest.fixture
def rounds(federation):
    """Two clients, three rounds of receipts, each kept by both."""
    before = federation.model
    for round in ROUNDS:
        if round > 1:
            before = federation.begin(federation.root / f"public/model-{round - 1:04}.safetensors", round=round - 1)
            for name in federation.names:
                federation.send(name, round=round, model=before)
        heads = [federation.ask(name, round) for name in federation.names]
        give(heads, federation.receipts(round), roster=federation.roster)
        for name in federation.names:
            kept = federation.place(name) / f"private/receipt-{round:04}.intoto.jsonl"
            keep(federation.receipts(round), kept, roster=federation.roster)
    return federation


@pytest.fixture
def auditor(rounds, tmp_path):
    """A folder with what an auditor was handed: files, a tree head, the roster; nothing of the homes."""
    folder = tmp_path / "auditor"
    folder.mkdir()

    def hand(*paths):
        return [Path(shutil.copy(path, folder)) for path in paths]

    return hand


@pytest.mark.parametrize("held", ROUNDS)
@pytest.mark.parametrize("sent", ROUNDS)
def test_every_file_is_proved_to_every_later_tree_head_and_to_no_earlier_one(
    rounds, auditor, fedsynth, tmp_path, held, sent
):
    file, out = rounds.message("a", sent), tmp_path / "proof.json"
    words = ["receipt", "prove", file, "--head", rounds.receipts(held), "--roster", rounds.roster, "-o", out, "-q"]
    code, _, err = fedsynth(*words)
    if sent > held:
        assert code == 6 and "countersigned after the tree head" in err and not out.exists()
        return
    assert code == 0, err
    message, head, roster, proof = auditor(file, rounds.receipts(held), rounds.roster, out)
    code, said, err = fedsynth("verify", message, "--proof", proof, "--head", head, "--roster", roster, "--json")
    assert code == 0, err
    (row,) = json.loads(said)["files"]
    assert row["recorded"]["client"] == "a" and row["recorded"]["file"] == file.name and row["log"]["size"] == 2 * held
    # Another file is not what was proved, though it is in the log too.
    (other,) = auditor(rounds.message("b", 1))
    code, _, err = fedsynth("verify", other, "--proof", proof, "--head", head, "--roster", roster)
    assert code == 5 and "another file" in err


@pytest.mark.parametrize(("held", "later"), [(1, 2), (1, 3), (2, 3), (2, 2)])
def test_a_later_tree_head_goes_on_from_the_one_that_is_held(rounds, auditor, fedsynth, tmp_path, held, later):
    out = tmp_path / "proof.json"
    prove(rounds.receipts(later), out, head=rounds.receipts(held), roster=rounds.roster)
    old, new, roster, proof = auditor(rounds.receipts(held), rounds.receipts(later), rounds.roster, out)
    assert fedsynth("verify", new, "--proof", proof, "--head", old, "--roster", roster, "-q")[0] == 0
    if held != later:
        code, _, err = fedsynth("verify", old, "--proof", proof, "--head", new, "--roster", roster)
        assert code == 5 and "two histories" in err
        with pytest.raises(UsageError, match="other way round"):
            prove(rounds.receipts(held), tmp_path / "other", head=rounds.receipts(later), roster=rounds.roster)


def test_a_client_proves_by_its_own_receipt_what_came_with_the_tree_head(rounds, auditor, tmp_path):
    """Without the server's log: the receipt of the very round has its proof with it; another needs the log."""
    (held,) = auditor(rounds.receipts(2))
    out, given = tmp_path / "proof.json", {"head": held, "roster": rounds.roster, "force": True}
    assert prove(rounds.message("a", 2), out, **given)["nodes"] == 2
    # By the later receipt all earlier entries are covered too, at the price of showing those between.
    few = prove(rounds.message("a", 1), out, log=rounds.place("server") / "private/receipts.jsonl", **given)["entries"]
    assert prove(rounds.message("a", 1), out, **given)["entries"] > few
    held.unlink()
    (third,) = auditor(rounds.receipts(3))
    for number in (2, 3):
        (rounds.place("a") / f"private/receipt-{number:04}.intoto.jsonl").unlink()
    alone = third.rename(third.parent / "third.intoto.jsonl")  # not beside itself under a name of receipts
    with pytest.raises(IncompleteError, match="--log"):
        prove(rounds.message("a", 1), out, head=alone, roster=rounds.roster, force=True)
    with pytest.raises(IncompleteError, match="covers entry"):
        prove(rounds.message("a", 3), out, head=alone, roster=rounds.roster, force=True)


def test_what_is_not_recorded_or_not_of_a_client_is_not_proved(rounds, tmp_path):
    out, given = tmp_path / "proof.json", {"head": rounds.receipts(3), "roster": rounds.roster}
    copy = rounds.message("a", 1).with_name("copy.safetensors")
    shutil.copy(rounds.message("a", 1), copy)
    with pytest.raises(VerificationError, match="no entry for"):
        prove(copy, out, **given)
    with pytest.raises(UsageError, match="no client's outbox"):
        prove(rounds.model, out, **given)
    with pytest.raises(UsageError, match="outbox"):
        prove(rounds.message("a", 1), rounds.place("a") / "outbox/proof.json", **given)
    other = tmp_path / "log.jsonl"
    other.write_bytes(b"".join((rounds.place("server") / "private/receipts.jsonl").read_bytes().splitlines(True)[:3]))
    with pytest.raises(VerificationError, match="not the log"):
        prove(rounds.message("a", 1), out, log=other, **given)


def changed(fields):
    """A proof with one thing in it changed, every one of them; what is signed or a digest cannot be mended."""
    yield "index", fields | {"index": fields["index"] ^ 1}
    yield "size", fields | {"size": fields["size"] - 1}
    for number, node in enumerate(fields["nodes"]):
        other = node[:-1] + ("0" if node[-1] != "0" else "1")
        yield f"node {number}", fields | {"nodes": [*fields["nodes"][:number], other, *fields["nodes"][number + 1 :]]}
        yield f"without {number}", fields | {"nodes": [n for at, n in enumerate(fields["nodes"]) if at != number]}
    yield "one node more", fields | {"nodes": [*fields["nodes"], "a" * 64]}
    for number, entry in enumerate(fields["entries"]):
        for name, value in entry.items():
            other = {str: "b" * 64, int: 7777, bool: True, list: [], type(None): 3}[type(value)]
            if other != value:
                lines = [*fields["entries"]]
                lines[number] = entry | {name: other}
                yield f"{name} of entry {number}", fields | {"entries": lines}
    yield "first entry gone", fields | {"entries": fields["entries"][1:]}
    yield "last entry gone", fields | {"entries": fields["entries"][:-1]}
    signatures = fields["receipt"]["signatures"]
    yield "one signature", fields | {"receipt": fields["receipt"] | {"signatures": signatures[:1]}}
    yield "a field more", fields | {"note": "x"}
    yield "no receipt", {name: value for name, value in fields.items() if name != "receipt"}
    yield "schema", fields | {"schema": "fedsynth.proof/2"}
    yield "a list", [fields]


def test_whatever_is_changed_in_a_proof_it_does_not_hold(rounds, fedsynth, tmp_path):
    out = tmp_path / "proof.json"
    prove(rounds.message("a", 1), out, head=rounds.receipts(3), roster=rounds.roster)
    fields = json.loads(out.read_text())
    words = [rounds.message("a", 1), "--proof", out, "--head", rounds.receipts(3), "--roster", rounds.roster, "-q"]
    assert fedsynth("verify", *words)[0] == 0
    tried = 0
    for what, other in changed(fields):
        out.write_text(json.dumps(other, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n")
        code, _, err = fedsynth("verify", *words)
        assert code == 5, (what, err)
        tried += 1
    assert tried > 25
    out.write_text(json.dumps(fields, indent=1))
    assert fedsynth("verify", *words)[0] == 5  # another spelling


def test_the_tree_head_must_be_the_server_s_and_of_this_federation(rounds, empty, fedsynth, tmp_path):
    out = tmp_path / "proof.json"
    prove(rounds.message("a", 1), out, head=rounds.receipts(3), roster=rounds.roster)
    stranger = empty("stranger")
    stranger.found(stranger.roster)
    words = ["verify", rounds.message("a", 1), "--proof", out, "--head", rounds.receipts(3), "--roster"]
    assert fedsynth(*words, stranger.roster, "-q")[0] == 5
    assert fedsynth(*words[:4], "--roster", rounds.roster)[0] == 2


def test_a_proof_reads_as_it_was_written(rounds, tmp_path):
    out = tmp_path / "proof.json"
    prove(rounds.message("a", 1), out, head=rounds.receipts(3), roster=rounds.roster)
    found = proofs.read(out)
    before = out.read_bytes()
    proofs.write(found, force=True)
    assert out.read_bytes() == before
    with pytest.raises(InputError, match="Check the path"):
        proofs.read(tmp_path / "nothing")
