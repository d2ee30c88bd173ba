"""Whole recipes audited by canaries, rightly and with a sensitivity that is wrong on purpose."""

import stages.charging.updates as private_updates
import stages.methods.feddm as feddm
from stages.methods.merf import Merf
from stages.privacy import clipped_total
from stages.recipes.recipe import change, load_recipe
from stages.trials.empirical import audit_empirically

NET = ["init-model.arch=mlp", "init-model.depth=null"]
NOISE = ["target_epsilon=null", "delta=null", "privacy_rounds=null"]


def audited(name, canaries, settings=(), seed=0, rounds=2):
    return audit_empirically(
        change(load_recipe(name), list(settings), rounds), delta=1e-5, canaries=canaries, seed=seed
    )


def wrong_by(factor, monkeypatch):
    """Whatever a unit contributes is so many times too long, for records and for clients."""
    length, features, clipped = clipped_total.clipped_length, feddm.features_length, private_updates.clipped
    embedded = Merf.embedded
    monkeypatch.setattr(clipped_total, "clipped_length", lambda clip: factor * length(clip))
    monkeypatch.setattr(feddm, "features_length", lambda clip, share: factor * features(clip, share))
    monkeypatch.setattr(Merf, "embedded", lambda *given: factor * embedded(*given))
    monkeypatch.setattr(private_updates, "clipped", lambda update, clip: clipped(update, factor * clip))
