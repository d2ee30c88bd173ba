"""Once a round, --force or not: one list of keys, one masked update, one survivor list, one answer."""

import json
import shutil

import numpy as np
import pytest

from artifacts.errors import InputError, VerificationError
from artifacts.formats import tensors_file
from stages.secagg import client_steps
from stages.secagg.collect import collect
from stages.secagg.terms import SecaggTerms
from stages.secagg.unmask import confirm, unmask


def test_a_second_masking_is_refused_the_same_one_is_free(begin):
    play = begin()
    play.keys()
    play.shares()
    play.mask("a")
    before = play.up("a", "masked").read_bytes()
    play.mask("a", force=True)
    assert play.up("a", "masked").read_bytes() == before
    play.up("a", "masked").unlink()
    play.mask("a")
    assert play.up("a", "masked").read_bytes() == before
    play.mask("a")
    assert play.up("a", "masked").read_bytes() == before
    play.update("a")
    for force in (False, True):
        with pytest.raises(VerificationError, match="masked another update"):
            play.mask("a", force=force)
    play.up("a", "masked").unlink()
    with pytest.raises(VerificationError, match="masked another update in round 1 already"):
        play.mask("a", force=True)
    assert not play.up("a", "masked").exists()


def test_other_peers_are_another_masking(begin):
    """The difference of two maskings with different peers is a mask that the server may know."""
    play = begin(5)
    play.keys()
    play.shares()
    play.mask("a")
    play.collect("shares", ("a", "b", "c"), force=True)
    with pytest.raises(VerificationError, match="once, --force notwithstanding"):
        play.mask("a", force=True)
    kept = json.loads((play.place("a") / "private/secagg-0001.json").read_text())
    assert sorted(kept["received"]) == ["a", "b", "c", "d", "e"]


def test_new_keys_do_not_begin_a_masked_round_anew(begin):
    play = begin()
    play.keys()
    client_steps.keys(play.up("a", "keys"), round=1, force=True)  # before masking it is allowed
    files = [play.up(name, "keys") for name in play.names]
    collect(files, play.down("keys"), roster=play.roster, params=SecaggTerms(range=1.0), force=True)
    play.shares()
    play.mask("a")
    with pytest.raises(VerificationError, match="masked its update in round 1 already"):
        client_steps.keys(play.up("a", "keys"), round=1, force=True)


def test_keys_are_not_replaced_without_force(begin):
    """Whoever lost the file makes the same again, from the secrets that are kept."""
    play = begin()
    play.keys()
    sent, private = play.up("a", "keys").read_bytes(), play.place("a") / "private"
    before = {name: (private / name).read_bytes() for name in ("secagg-0001.json", "secagg.jsonl")}
    play.up("a", "keys").unlink()
    for _ in range(2):
        client_steps.keys(play.up("a", "keys"), round=1)
        assert play.up("a", "keys").read_bytes() == sent
        assert {name: (private / name).read_bytes() for name in before} == before
    client_steps.keys(play.up("a", "keys"), round=1, force=True)
    assert play.up("a", "keys").read_bytes() != sent


def test_one_list_of_keys(begin):
    play = begin()
    play.keys()
    play.shares()
    first = play.up("a", "shares").read_bytes()
    client_steps.shares(play.down("keys"), play.up("a", "shares"), roster=play.roster, force=True)
    assert play.up("a", "shares").read_bytes() == first
    files = [play.up(name, "keys") for name in ("a", "b")]
    collect(files, play.down("keys"), roster=play.roster, params=SecaggTerms(range=1.0), force=True)
    with pytest.raises(VerificationError, match="answered another list of keys"):
        client_steps.shares(play.down("keys"), play.up("a", "shares"), roster=play.roster, force=True)


def test_one_survivor_list_and_one_answer(begin):
    play = begin(5)
    play.keys()
    play.shares()
    play.masks()
    confirm(play.down("survivors"), play.up("a", "survivors"))
    shutil.copy(play.down("survivors"), play.root / "five.safetensors")
    play.collect("masked", ("a", "b", "c", "d"), "survivors", force=True)
    with pytest.raises(VerificationError, match="signed another survivor list"):
        confirm(play.down("survivors"), play.up("a", "survivors"), force=True)
    # The four others sign the list of four: a, which signed that of five, reveals nothing to it.
    for name in ("b", "c", "d"):
        confirm(play.down("survivors"), play.up(name, "survivors"))
    play.collect("survivors", ("b", "c", "d"), "confirmed")
    with pytest.raises(VerificationError, match="the server shows two"):
        unmask(play.down("confirmed"), play.up("a", "unmask"), force=True)
    unmask(play.down("confirmed"), play.up("b", "unmask"))
    with pytest.raises(VerificationError, match="one request to unmask a round"):
        unmask(play.down("confirmed"), play.up("b", "unmask"), force=True)
    answer = play.up("b", "unmask").read_bytes()
    unmask(play.down("confirmed"), play.up("b", "unmask"))  # the very same, which is there
    assert play.up("b", "unmask").read_bytes() == answer
    play.up("b", "unmask").unlink()
    with pytest.raises(VerificationError, match="one request to unmask a round"):
        unmask(play.down("confirmed"), play.up("b", "unmask"))
    assert not play.up("a", "unmask").exists()


def test_an_answer_needs_signatures_of_the_threshold(begin):
    play = begin(5)
    play.keys()
    play.shares()
    play.masks()
    for name in play.names:
        confirm(play.down("survivors"), play.up(name, "survivors"))
    with pytest.raises(InputError, match="signed by 0 of the survivors, 3 are needed"):
        unmask(play.down("survivors"), play.up("a", "unmask"))


def test_never_both_kinds_of_share_for_one_peer(begin):
    """Over all answers of a round, and whatever a client is asked afterwards."""
    play = begin(5)
    play.keys()
    play.shares()
    play.masks(("a", "b", "c"))
    play.confirm(("a", "b", "c"))
    play.unmask(("a", "b", "c"))
    for name in ("a", "b", "c"):
        answer = tensors_file.read(play.up(name, "unmask"))
        there, dropped = answer.metadata.params["survivors"], answer.metadata.params["dropped"]
        assert (there, dropped) == (["a", "b", "c"], ["d", "e"])
        assert (answer.tensors["seeds"].shape[0], answer.tensors["mask_keys"].shape[0]) == (3, 2)
        kept = json.loads((play.place(name) / "private/secagg-0001.json").read_text())
        assert not kept["received"] and not kept["seed"] and not kept["mask_secret"], "the secrets were not forgotten"


def test_a_deleted_book_helps_nobody(begin):
    play = begin()
    play.keys()
    play.shares()
    play.mask("a")
    (play.place("a") / "private/secagg.jsonl").unlink()
    play.update("a")
    with pytest.raises(InputError, match="no entry of `secagg shares`"):
        play.mask("a", force=True)


def test_an_edited_book_is_refused(begin):
    play = begin()
    play.keys()
    play.shares()
    play.mask("a")
    book = play.place("a") / "private/secagg.jsonl"
    lines = book.read_text().splitlines(keepends=True)
    book.write_text("".join(lines[:1] + lines[2:]))
    with pytest.raises(VerificationError, match="chain is broken"):
        play.mask("a", force=True)


def test_secret_files_are_for_their_owner_alone(begin):
    play = begin()
    play.keys()
    play.shares()
    play.mask("a")
    private = play.place("a") / "private"
    for name in ("secagg-0001.json", "secagg.jsonl", "client.key"):
        assert (private / name).stat().st_mode & 0o777 == 0o600
    (private / "secagg-0001.json").chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        play.mask("a", force=True)


def test_a_round_can_be_followed_by_the_next(begin):
    play = begin().whole()
    play.round = 2
    play.model = play.root / "public/next.safetensors"
    first = tensors_file.read(play.root / "public/model.safetensors")
    from dataclasses import replace

    tensors_file.write(play.model, first.tensors, replace(first.metadata, round=1))
    play.updates = {name: play.update(name) for name in play.names}
    play.whole()
    assert np.isfinite(play.sum().tensors["layer.bias"]).all()
