"""How far a command is: a line a minute without a terminal, and a time that knows that steps are not alike."""

from stages.recipes.recipe import load_recipe
from stages.recipes.step import Step
from stages.recipes.tally import Tally
from stages.words import human_time


def test_a_log_gets_a_line_a_minute(capsys):
    from fedsynth_cli.console import Minutes

    now = [0.0]
    report = Minutes("train-generator", says_time=False, clock=lambda: now[0])
    for second in range(181):
        now[0] = float(second)
        report(second, 600, "loss 0.5")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "train-generator: 60/600, loss 0.5, 9 min left",
        "train-generator: 120/600, loss 0.5, 8 min left",
        "train-generator: 180/600, loss 0.5, 7 min left",
    ]


def test_what_takes_less_than_a_minute_says_nothing(capsys):
    from fedsynth_cli.console import Minutes

    report = Minutes("encode", says_time=False)
    for step in range(100):
        report(step, 100, "")
    assert capsys.readouterr().err == ""


def _step(command, number):
    return Step(command=command, owner="00", round=1, inputs=(), out=f"private/{command}-{number}")


def test_the_time_left_is_that_of_the_steps_that_are_left(tmp_path):
    """Two generators of 80 s and four uploads of 1 s: after the first of each, 80 s and 3 s on one worker."""
    said = []
    tally = Tally(load_recipe("fedavg"), tmp_path, lambda *found: said.append(found), workers=1)
    steps = [_step("train-generator", n) for n in range(2)] + [_step("encode", n) for n in range(4)]
    tally.expect(steps, [])
    assert said[-1][:2] == (0, 6), "the total is known before the first step is done"
    tally.add(steps[0], 80.0)
    assert said[-1][2].endswith("at least 80 s left"), "nobody has seen how long an upload takes"
    tally.add(steps[2], 1.0)
    assert said[-1][:2] == (2, 6) and said[-1][2].endswith(", 83 s left")
    for step in (steps[1], *steps[3:]):
        tally.add(step, 1.0)
    assert said[-1][:2] == (6, 6) and "left" not in said[-1][2]


def test_times_as_people_read_them():
    assert [human_time(s) for s in (0.2, 45.4, 89, 91, 720, 12_000)] == [
        "1 s",
        "45 s",
        "89 s",
        "2 min",
        "12 min",
        "3 h 20 min",
    ]
