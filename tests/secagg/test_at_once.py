"""The same step of one client in several processes at once: what it keeps belongs to what it sent."""

import multiprocessing

import numpy as np

from artifacts.errors import FedsynthError
from stages.secagg import client_steps
from stages.secagg.collect import collect
from stages.secagg.terms import SecaggTerms


def at_once(step, *arguments, **options):
    """Four processes; returns how many did it."""

    def one(start, done):
        start.wait()
        try:
            step(*arguments, **options)
            done.put(1)
        except FedsynthError:
            done.put(0)

    context = multiprocessing.get_context("fork")
    start, done = context.Barrier(4), context.Queue()
    processes = [context.Process(target=one, args=(start, done)) for _ in range(4)]
    for process in processes:
        process.start()
    found = sum(done.get() for _ in processes)
    for process in processes:
        process.join()
    return found


def test_keys_and_shares_fit_together(begin):
    for _ in range(2):
        play = begin()
        assert at_once(client_steps.keys, play.up("a", "keys"), round=1) == 4
        for name in ("b", "c"):
            client_steps.keys(play.up(name, "keys"), round=1)
        sent = [play.up(name, "keys") for name in play.names]
        collect(sent, play.down("keys"), roster=play.roster, params=SecaggTerms(range=1.0))
        shares = client_steps.shares
        assert at_once(shares, play.down("keys"), play.up("a", "shares"), roster=play.roster) >= 1
        for name in ("b", "c"):
            shares(play.down("keys"), play.up(name, "shares"), roster=play.roster)
        play.collect("shares")
        play.masks()
        play.confirm()
        play.unmask()
        totals, step = play.plain_sum()
        for name, value in play.sum().tensors.items():
            np.testing.assert_allclose(value, totals[name].astype(np.float64) * step, atol=1e-6)
