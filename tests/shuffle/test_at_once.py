"""Two shuffles into one outbox at once: its parts are those of one of them, with the record of that one."""

import multiprocessing
import time

import pytest

from artifacts.errors import InputError
from artifacts.ledgers import lineage
from stages import shuffle as module
from stages.shuffle import shuffle


def both(federation, seeds, *, force):
    """Shuffle with each seed at the same moment; returns who succeeded."""

    def one(seed, start, done):
        publish, begun = module.publish_staged, []

        def slowly(*arguments, **options):
            """One is slow between its parts; the other comes between them, if it can."""
            if seed == 2 and not begun:
                time.sleep(0.1)
            begun.append(publish(*arguments, **options))
            if seed == 1:
                time.sleep(0.2)

        module.publish_staged = slowly
        start.wait()
        try:
            module.shuffle(federation.sent, federation.outbox, parts=3, seed=seed, force=force)
            done.put(seed)
        except InputError:
            done.put(None)

    context = multiprocessing.get_context("fork")
    start, done = context.Barrier(len(seeds)), context.Queue()
    processes = [context.Process(target=one, args=(seed, start, done)) for seed in seeds]
    for process in processes:
        process.start()
    found = {done.get() for _ in processes} - {None}
    for process in processes:
        process.join()
    return found


@pytest.mark.parametrize("force", [True, False])
def test_parts_are_never_mixed(federation, new_federation, forge, force):
    federation.send_all(30, 40, 50)
    alone = {}
    for seed in (1, 2):
        other = new_federation().send_all(30, 40, 50)
        shuffle(other.sent, other.outbox, parts=3, seed=seed)
        alone[seed] = forge.snapshot(other.outbox)
    for _ in range(2):
        succeeded = both(federation, (1, 2), force=force)
        assert forge.snapshot(federation.outbox) in [alone[seed] for seed in succeeded]
        assert len(succeeded) == 1 + force
        for path in federation.parts():
            path.unlink()
        assert len(lineage.read_record(federation.private / "synthetic-00.lineage.json")) == 3
