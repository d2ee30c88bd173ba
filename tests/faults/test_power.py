"""Power is cut while a command is at work: whatever the disk has kept, each file is as before or as after.

The command again ends with the bytes of an undisturbed run; once it has ended, nothing of it can be lost. That all that
was done is kept, is what a killed process leaves.
"""

import random

import pytest

# A run is made of commands that are all met by themselves.
LONG = {"run": 12, "run of a sweep": 60, "tune": 60, "audit, replayed": 12, "train-generator": 5, "partition": 4}


@pytest.fixture(scope="session")
def disk(helper):
    """The module disk.py."""
    return helper("faults/disk.py")


def cut(trials, disk, draws, every=1):
    """All different states that cuts of power leave, after each operation or every so many."""
    states = {}

    class Recorder(disk.Disk):
        def after(self, operation):
            super().after(operation)
            if self.moments % every == 0:
                for state in self.states(rng, draws):
                    states.setdefault(hash(frozenset(state.items())), state)

    rng = random.Random(0)
    last = trials.watch(Recorder)
    return list(states.values()), next(last.states(rng, 0))


def check(trials, disk, draws, every=1):
    """Returns how many states there were."""
    states, least = cut(trials, disk, draws, every)
    found = []
    for state in states:
        disk.restore(state, trials.folder)
        wrong = trials.check_state()
        if wrong:
            changed = [
                name for name, data in state.items() if trials.before.get(name[len(str(trials.folder)) + 1 :]) != data
            ]
            found.append(f"{', '.join(sorted(wrong))}: {changed}. Again: {trials.again}")
    kept = {name[len(str(trials.folder)) + 1 :]: data for name, data in least.items() if data is not None}
    drawn = trials.case.is_random  # other bytes each time
    lost = [name for name, data in trials.after.items() if name not in kept or not (drawn or kept[name] == data)]
    if lost:
        found.append(f"it had ended, and a cut lost {lost}")
    assert not found, f"{trials.case.name}: {len(found)} of {len(states)} states:\n" + "\n".join(found)
    return len(states)


def test_what_a_power_cut_leaves_is_completed(bench, small_worlds, disk, command):
    check(bench(command, small_worlds), disk, draws=0)


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_what_a_power_cut_leaves_of_any_command_is_completed(bench, worlds, disk, command, record_property):
    record_property("states", check(bench(command, worlds), disk, draws=3, every=LONG.get(command, 1)))
