"""Masks and signatures are bound to the model: a server that gives others another model learns nothing by it."""

import dataclasses
import json

import numpy as np
import pytest

from artifacts.errors import InputError, VerificationError
from artifacts.formats import tensors_file
from artifacts.metadata import Metadata
from stages.privacy.events import PrivacyEvent
from stages.secagg import client_steps, masks
from stages.secagg.collect import declared
from stages.secagg.mask import mask
from stages.secagg.roster import read_roster
from stages.secagg.session import model_reference, read_session, rows, stacked
from stages.secagg.terms import SecaggTerms, default_threshold, least_threshold
from stages.secagg.unmask import confirm, unmask


def masked_for(play, models):
    """Each client masks an update for the model that it was given; all but a's are zeros."""
    play.keys()
    play.shares()
    zeros = {name: np.zeros(shape, np.float32) for name, shape in play.shapes.items()}
    for name, model in models.items():
        play.model = model
        play.updates[name] = play.update(name, None if name == "a" else zeros)
        play.mask(name)
    return play


@pytest.fixture
def dead(begin):
    """A round, and a model of dead weights: whoever trains it moves nothing."""
    play = begin(3)
    path = play.root / "public/dead.safetensors"
    zeros = {name: np.zeros(shape, np.float32) for name, shape in play.shapes.items()}
    about = Metadata(kind="model", stage="init-model", custody="public", round=0, params={"dead": True}, versions={})
    tensors_file.write(path, zeros, about)
    return play, path


def left_of_the_sum(play, models):
    """The sum of the masked files without the clients' own masks, which the server takes off when seeds are given."""
    session = read_session(play.down("keys"), read_roster(play.roster))
    total = 0
    for name, model in models.items():
        tensors = tensors_file.read(play.up(name, "masked")).tensors
        words = masks.flat(tensors, np.dtype(np.int32)).view(np.uint32).copy()
        kept = json.loads((play.place(name) / "private/secagg-0001.json").read_text())
        bound = session.bound(tensors_file.read(model).sha256)
        masks.add_stream(words, masks.own_mask_key(bytes.fromhex(kept["seed"]), bound, name), take_away=True)
        total = total + words
    return total.view(np.int32) / (2**19 - 1)


@pytest.mark.parametrize("same", [True, False])
def test_masks_of_different_models_do_not_cancel(dead, same):
    """The attack: with dead weights for the others, the sum was one client's update, to 9e-7."""
    play, other = dead
    honest = play.model
    models = {"a": honest, "b": honest if same else other, "c": honest if same else other}
    masked_for(play, models)
    mine = masks.flat(tensors_file.read(play.updates["a"]).tensors, np.dtype(np.float32))
    error = np.abs(left_of_the_sum(play, models) - mine).max()
    # Uniform words: that all 18 numbers are so near by chance has a probability below 1e-50.
    assert error < 1e-5 if same else error > 1


def test_the_server_that_follows_the_protocol_refuses_too(dead):
    play, other = dead
    masked_for(play, {"a": play.model, "b": other, "c": other})
    with pytest.raises(InputError, match="another model"):
        play.collect("masked", None, "survivors")


def test_nobody_answers_signatures_for_another_model(dead):
    """The server writes the lists itself. Each client signs what it masked for, and sees that the others' differ."""
    play, other = dead
    honest = play.model
    masked_for(play, {"a": honest, "b": other, "c": other})
    session = read_session(play.down("keys"), read_roster(play.roster))
    about = Metadata(
        kind="secagg-survivors", stage="secagg", method="mask", custody="downlink", round=1, versions={},
        inputs=(session.reference, model_reference(tensors_file.read(honest).sha256)),
        params={"survivors": ["a", "b", "c"], "signers": []},
    )  # fmt: skip
    tensors_file.write(play.down("survivors"), {"signatures": stacked([], 64)}, about)
    signatures = []
    for name in play.names:
        confirm(play.down("survivors"), play.up(name, "survivors"))
        signatures += rows(tensors_file.read(play.up(name, "survivors")), "signatures", 64, (name,))
    signed = dataclasses.replace(about, method="confirm", params={**about.params, "signers": ["a", "b", "c"]})
    tensors_file.write(play.down("confirmed"), {"signatures": stacked(signatures, 64)}, signed)
    for name in play.names:
        with pytest.raises(VerificationError, match="signature"):
            unmask(play.down("confirmed"), play.up(name, "unmask"))
        assert not play.up(name, "unmask").exists()


@pytest.mark.parametrize(("clients", "wanted"), [(2, 2), (3, 2), (4, 3), (5, 4), (6, 4), (9, 6), (50, 34)])
def test_two_thirds_must_stay_unless_more_is_asked_for(clients, wanted):
    assert default_threshold(clients) == wanted == declared(SecaggTerms(range=1.0), clients)["threshold"]


def test_colluders_raise_the_least_threshold(begin):
    assert [least_threshold(5, colluders) for colluders in (0, 1, 2)] == [3, 4, 5]
    play = begin(5)
    for name in play.names:
        play.noised(name, least_clients=4, colluders=2)
    play.keys(range=None, threshold=4)
    play.shares()
    with pytest.raises(InputError, match="at least 5 must stay"):
        mask(play.down("shares"), play.model, play.updates["a"], play.up("a", "masked"))


def test_a_client_says_among_how_many_it_hides(begin):
    play = begin(3)
    play.keys()
    with pytest.raises(InputError, match="hides among at least 4"):
        client_steps.shares(play.down("keys"), play.up("a", "shares"), roster=play.roster, least_clients=4)


def test_what_an_update_tells_without_noise_goes_under_the_masks_with_it(begin):
    """Events cover some of an update; what they do not cover is told by the masked file and by the sum."""
    event = PrivacyEvent.planned(
        unit="record", sampling_rate=0.5, noise_multiplier=1.0, clip_norm=1.0, steps=3, trust="nobody"
    )
    play = begin(3)
    for number, name in enumerate(play.names, start=1):
        found = tensors_file.read(play.updates[name])
        spent = dataclasses.replace(event, id=f"{number:064x}").to_json()
        stated = dataclasses.replace(found.metadata, privacy=(spent,), disclosures=("derived_images", "local_steps"))
        tensors_file.write(play.updates[name], found.tensors, stated, force=True)
    play.whole()
    assert tensors_file.read(play.up("a", "masked")).metadata.disclosures == ("derived_images",)
    about = play.sum().metadata
    assert (about.disclosures, len(about.privacy)) == (("derived_images",), 1)
