"""Each operation of a command fails once, at each position: it says so, breaks nothing, and the next try completes."""

import os

import pytest

# Commands made of others, whose operations are met elsewhere as well: every so many of theirs.
STRIDES = {"run": 3, "run of a sweep": 20, "tune": 20, "audit, replayed": 3}


def test_a_failing_operation_is_reported_and_repaired(bench, small_worlds, injector, command):
    """A sample: each kind of operation, the first and the last of it."""
    trials = bench(command, small_worlds)
    kinds = {}
    for number, operation in enumerate(trials.operations):
        kinds.setdefault((operation.kind, operation.writing), []).append(number)
    chosen = sorted({number for numbers in kinds.values() for number in (numbers[0], numbers[-1])})
    for place, number in enumerate(chosen):
        check(trials, number, injector.ERRORS[place % 3])


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_every_operation_of_every_command_fails_once(bench, worlds, injector, command, record_property):
    trials = bench(command, worlds)
    numbers = range(0, len(trials.operations), STRIDES.get(command, 1))
    found = []
    for number in numbers:
        for error in injector.ERRORS:
            try:
                check(trials, number, error)
            except AssertionError as wrong:
                found.append(str(wrong))
    record_property("faults", 3 * len(numbers))
    assert not found, f"{len(found)} of {3 * len(numbers)} faults:\n" + "\n".join(found)


def check(trials, number, error):
    wrong, said = trials.trial(number, error)
    where = f"{os.strerror(error)} at {number}, {trials.failed}"
    assert not wrong, f"{trials.case.name}: {where}: {', '.join(sorted(wrong))}. It said: {said} Again: {trials.again}"
