"""What makes two runs incomparable is said."""

from stages.evaluate.comparable import differences

BASE = {"name": "fedavg", "partition": {"source": "digits", "clients": 5}, "init-model": {"arch": "convnet"}}


def test_runs_that_differ_by_the_method_alone_are_comparable():
    other = {**BASE, "name": "fedlap", "encode": {"method": "fedlap"}, "seed": 3}
    assert differences({"a": BASE, "b": other}, {"a": 6, "b": 6}) == []


def test_another_network_other_data_and_other_rounds_are_named_with_their_owners():
    other = {**BASE, "partition": {"source": "mnist", "clients": 5, "root": "data"}, "init-model": {"arch": "lenet5"}}
    assert differences({"a": BASE, "b": BASE, "c": other}, {"a": 6, "b": 6, "c": 3}) == [
        "rounds is 6 in a and b, 3 in c",
        "partition.root is not given in a and b, data in c",
        "partition.source is digits in a and b, mnist in c",
        "init-model.arch is convnet in a and b, lenet5 in c",
    ]


def test_a_folder_without_a_recipe_says_nothing_but_its_rounds():
    assert differences({"a": BASE, "b": {}}, {"a": 6, "b": 6}) == []
    assert differences({"a": BASE, "b": {}}, {"a": 6, "b": 5}) == ["rounds is 6 in a, 5 in b"]
