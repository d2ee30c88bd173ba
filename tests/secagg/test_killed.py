"""Killed at any point between the log, the secrets and the file: the step can be done again, and gives the same."""

import json

import pytest

from artifacts.errors import VerificationError
from artifacts.formats import tensors_file
from stages.secagg import client_steps
from stages.secagg import mask as mask_module
from stages.secagg import unmask as unmask_module
from stages.secagg.member import Member
from stages.secagg.unmask import confirm, unmask

STEPS = ("keys", "shares", "mask", "confirm", "unmask")


class Killed(BaseException):
    """Nothing catches it."""


@pytest.fixture
def kill(monkeypatch):
    """Arrange that the next call of a function by its owner never begins."""

    def arrange(owner, name):
        def die(*_args, **_kwargs):
            monkeypatch.undo()
            raise Killed

        monkeypatch.setattr(owner, name, die)

    return arrange


class Actor:
    """Client a at each of its steps; the others and the server do what comes between."""

    def __init__(self, play):
        self.play = play

    def upto(self, step):
        play, position = self.play, STEPS.index(step)
        if position > 0:
            play.keys()
        if position > 1:
            play.shares()
        if position > 2:
            play.masks()
        if position > 3:
            play.confirm()

    def act(self, step, force=False):
        play = self.play
        out = play.up("a", {"mask": "masked", "confirm": "survivors"}.get(step, step))
        if step == "keys":
            client_steps.keys(out, round=1, force=force)
        elif step == "shares":
            client_steps.shares(play.down("keys"), out, roster=play.roster, force=force)
        elif step == "mask":
            play.mask("a", force=force)
        elif step == "confirm":
            confirm(play.down("survivors"), out, force=force)
        else:
            unmask(play.down("confirmed"), out, force=force)
        return out


@pytest.mark.parametrize(
    ("step", "moment"),
    [(step, "before the file") for step in STEPS] + [(s, "before the secrets") for s in STEPS if s != "confirm"],
)
def test_a_killed_step_is_done_again(begin, kill, step, moment):
    play = begin()
    actor = Actor(play)
    actor.upto(step)
    if moment == "before the file":
        kill(tensors_file, "write")
    else:
        kill(Member, "keep")
    with pytest.raises(Killed):
        actor.act(step)
    # The answer is in the outbox before the secrets are forgotten; everything else is written after the log.
    answered = step == "unmask" and moment == "before the secrets"
    out = play.up("a", {"mask": "masked", "confirm": "survivors"}.get(step, step))
    assert out.exists() == answered
    assert json.loads((play.place("a") / "private/secagg.jsonl").read_text().splitlines()[-1])["entry"] == step
    before = out.read_bytes() if answered else None
    # With --force, as `run` does. New keys may replace those that nobody has seen.
    actor.act(step, force=True)
    assert before is None or out.read_bytes() == before
    finish(play, step)
    total, (expected, grid) = play.sum(), play.plain_sum()
    for name, numbers in expected.items():
        assert (total.tensors[name] == (numbers.astype(float) * grid).astype("float32")).all()


def finish(play, done):
    """The rest of the round, client a's part of `done` being in its outbox."""
    others = [name for name in play.names if name != "a"]
    position = STEPS.index(done)
    if position == 0:
        for name in others:
            client_steps.keys(play.up(name, "keys"), round=1)
        from stages.secagg.collect import collect
        from stages.secagg.terms import SecaggTerms

        sent = [play.up(name, "keys") for name in play.names]
        collect(sent, play.down("keys"), roster=play.roster, params=SecaggTerms(range=1.0))
    if position == 1:
        for name in others:
            client_steps.shares(play.down("keys"), play.up(name, "shares"), roster=play.roster)
        play.collect("shares")
    elif position < 1:
        play.shares()
    if position == 2:
        for name in others:
            play.mask(name)
        play.collect("masked", None, "survivors")
    elif position < 2:
        play.masks()
    if position == 3:
        for name in others:
            confirm(play.down("survivors"), play.up(name, "survivors"))
        play.collect("survivors", None, "confirmed")
    elif position < 3:
        play.confirm()
    play.unmask(others if position == 4 else None)


def test_a_masking_killed_before_its_file_binds_the_client(begin, kill):
    """The log has it: another update, or other peers, are refused although nothing left."""
    play = begin()
    play.keys()
    play.shares()
    kill(mask_module.tensors_file, "write")
    with pytest.raises(Killed):
        play.mask("a")
    assert not play.up("a", "masked").exists()
    play.update("a")
    with pytest.raises(VerificationError, match="masked another update"):
        play.mask("a", force=True)


def test_secrets_that_a_killed_answer_left_are_forgotten_with_the_next_keys(begin, kill):
    play = begin()
    play.keys()
    play.shares()
    play.masks()
    play.confirm()
    kill(Member, "keep")
    with pytest.raises(Killed):
        unmask_module.unmask(play.down("confirmed"), play.up("a", "unmask"))
    path = play.place("a") / "private/secagg-0001.json"
    assert json.loads(path.read_text())["seed"], "the test needs secrets that were left"
    client_steps.keys(play.place("a") / "outbox/secagg-keys-0002.safetensors", round=2)
    left = json.loads(path.read_text())
    assert not any(left[name] for name in ("seed", "mask_secret", "cipher_secret", "received", "ciphertexts"))
