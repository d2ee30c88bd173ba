"""Arithmetic in recipes: what it computes, and that it is nothing but arithmetic."""

from __future__ import annotations

import pytest

from artifacts.errors import UsageError
from stages.recipes.expressions import evaluated
from stages.recipes.recipe import change, load_recipe

NAMES = {
    "partition.clients": 40,
    "participation": 0.2,
    "rounds": 7,
    "train-client.batch_size": 16,
    "encode.method": "x",
}


def value_of(name):
    if name not in NAMES:
        raise ValueError(f"there is no parameter {name!r}")
    return NAMES[name]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("= 50000 / N", 1250), ("=50000//N", 1250), ("= 1 / N", 0.025), ("= C * N", 8), ("= rounds ** 2 - 1", 48),
        ("= train_client.batch_size * 2", 32), ("= max(1, round(N / 3))", 13), ("= -(2 + 3) % 4", 3),
        ("= min(partition.clients, 10) / 4", 2.5), ("= round(2.345, 1)", 2.3),
    ],
)  # fmt: skip
def test_values(text, expected):
    found = evaluated(text, value_of)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "= __import__('os').system('true')", "= ().__class__", "= [1]", "= 'a' * 9", "= N if 1 else 2", "= lambda: 1",
        "= open", "= N.real.real", "= 1 +", "=", "= 9 ** 9 ** 9", "= 1 / 0", "= (-1) ** 0.5", "= True", "= min()",
        "= min(3)", "= encode.method", "= Q", "= (x := 1)", "= 1; 2", "= " + "1+" * 200 + "1", "= 2.0 ** 64 ** 60",
    ],
)  # fmt: skip
def test_all_else_is_refused(text):
    with pytest.raises(ValueError):
        evaluated(text, value_of)


def test_it_follows_what_is_set_afterwards_and_the_run_records_the_value():
    recipe = change(load_recipe("fedssyn", "paper"), ["partition.clients=40"], None)
    assert recipe.section("synthesize")["count"] == 1250
    assert "count: 1250" in recipe.to_yaml()


def test_a_circle_and_a_missing_name_are_told():
    circle = change(load_recipe("fedavg"), ["partition.clients== encode.x", "encode.x== N"], None)
    with pytest.raises(UsageError, match="goes round in a circle"):
        circle.section("partition")
    with pytest.raises(UsageError, match=r"synthesize.count: = 3 / Q: there is no parameter 'Q'"):
        change(load_recipe("fedssyn"), ["synthesize.count== 3 / Q"], None).section("synthesize")
