"""TOFU's communication efficiency, by the cells of the paper's tables and on a run's own files."""

import pytest

from stages.evaluate.communication import Communication
from stages.evaluate.efficiency import efficiency, with_efficiency

LENET, VGG = 64_122, 9_416_010
MNIST, CIFAR = 32 * 32 + 10, 3 * 32 * 32 + 10


HALF = 0.05 + 1e-9  # half a unit of the last printed digit
# Cells that do not follow from the rounds beside them, with what does: cut off in place of rounded, or one unit high.
ODD = {
    (VGG, 1057, 32, 0): 10.478, (VGG, 439, 128, 5): 7.096, (VGG, 439, 128, 15): 4.971, (LENET, 83, 96, 0): 3.549,
    (LENET, 142, 64, 3): 3.049,
}  # fmt: skip


def cell(model, numbers, baseline, rounds, images, full=0, *, down=True):
    """As the paper counts: a proxy up and, with several clients, one down in each round; then whole updates."""
    each = images * numbers
    proxies = dict.fromkeys(range(1, rounds + 1), (each, each if down else 0))
    fedavg = Communication(model=model, states=0, synthetic=0, transfers=())
    tofu = Communication(model=model, states=0, synthetic=0, transfers=(), proxies=proxies)
    return efficiency(fedavg, baseline, tofu, rounds + full)


def check(row, printed, full=0, *, down=True):
    model, _, _, rounds, images = row
    found = cell(*row, full, down=down)
    odd = ODD.get((model, rounds, images, full))
    assert found == pytest.approx(printed if odd is None else odd, abs=HALF if odd is None else 5e-4)


# Table 4 (one device): rounds of the baseline, of TOFU, images, what is printed.
SINGLE = [
    (LENET, MNIST, 495, 1194, 32, 0.8), (LENET, MNIST, 495, 512, 64, 0.9), (LENET, MNIST, 495, 853, 96, 0.4),
    (LENET, MNIST, 495, 890, 128, 0.3), (LENET, MNIST, 495, 1587, 64, 0.3), (LENET, MNIST, 495, 540, 64, 0.9),
    (LENET, MNIST, 495, 413, 64, 1.2), (VGG, CIFAR, 116, 1057, 32, 10.4), (VGG, CIFAR, 116, 783, 64, 7.1),
    (VGG, CIFAR, 116, 613, 96, 6.0), (VGG, CIFAR, 116, 529, 128, 5.2), (VGG, CIFAR, 116, 787, 64, 7.0),
    (VGG, CIFAR, 116, 786, 64, 7.0), (VGG, CIFAR, 116, 722, 64, 7.7),
]  # fmt: skip
# Tables 5 and 8: also what is printed after some full rounds.
FEDERATED = [
    (LENET, MNIST, 456, 129, 32, {0: 6.9, 3: 6.6}), (LENET, MNIST, 456, 104, 64, {0: 4.2, 3: 4.1}),
    (LENET, MNIST, 456, 83, 96, {0: 3.6, 3: 3.5}), (LENET, MNIST, 456, 53, 128, {0: 4.2, 3: 4.1}),
    (LENET, MNIST, 456, 130, 64, {0: 3.4, 3: 3.3}), (LENET, MNIST, 456, 56, 64, {0: 7.9, 3: 7.5}),
    (LENET, MNIST, 456, 142, 64, {0: 3.1, 3: 3.1}),
    (VGG, CIFAR, 166, 593, 32, {0: 26.7, 5: 14.8, 10: 10.2, 15: 7.8}),
    (VGG, CIFAR, 166, 477, 64, {0: 16.6, 5: 11.1, 10: 8.3, 15: 6.6}),
    (VGG, CIFAR, 166, 526, 96, {0: 10.0, 5: 7.7, 10: 6.3, 15: 5.3}),
    (VGG, CIFAR, 166, 439, 128, {0: 9.0, 5: 7.0, 10: 5.8, 15: 4.9}),
    (VGG, CIFAR, 166, 414, 64, {0: 19.1, 5: 12.1, 10: 8.9, 15: 7.0}),
    (VGG, CIFAR, 166, 511, 64, {0: 15.5, 5: 10.6, 10: 8.0, 15: 6.5}),
]  # fmt: skip
# Tables 6 and 7, at equal accuracy: rounds with proxies, full rounds.
STRICT = [
    (LENET, MNIST, 12, 121, 32, 0, 0.2), (LENET, MNIST, 12, 55, 64, 0, 0.2), (LENET, MNIST, 12, 60, 96, 0, 0.1),
    (LENET, MNIST, 12, 53, 128, 0, 0.1), (LENET, MNIST, 48, 129, 32, 3, 0.7), (VGG, CIFAR, 25, 477, 64, 0, 2.5),
    (VGG, CIFAR, 25, 461, 96, 0, 1.7), (VGG, CIFAR, 25, 403, 128, 0, 1.5), (VGG, CIFAR, 82, 477, 64, 6, 5.1),
    (VGG, CIFAR, 82, 526, 96, 6, 3.6), (VGG, CIFAR, 82, 439, 128, 6, 3.4),
]  # fmt: skip


@pytest.mark.parametrize("row", SINGLE)
def test_one_device(row):
    check(row[:-1], row[-1], down=False)


@pytest.mark.parametrize("row", FEDERATED)
def test_federations(row):
    for full, printed in row[-1].items():
        check(row[:-1], printed, full)


@pytest.mark.parametrize("row", STRICT)
def test_at_equal_accuracy(row):
    check(row[:5], row[-1], row[5])


def test_a_run_that_gets_nothing_down_is_compared_with_what_the_baseline_sends_up():
    counts = {"bytes_to_best": 8, "parameters_to_target": None, "parameters_up_to_target": None, "bytes_to_target": 1}
    fedavg = {"label": "fedavg", "one_way": False, "parameters_to_best": 40, "parameters_up_to_best": 20} | counts
    single = {"label": "single", "one_way": True, "parameters_to_best": 10, "parameters_up_to_best": 10} | counts
    both = {"label": "both", "one_way": False, "parameters_to_best": 20, "parameters_up_to_best": 10} | counts
    found = with_efficiency([fedavg, single, both], "fedavg")
    assert [group["efficiency"]["parameters_to_best"] for group in found] == [1.0, 2.0, 2.0]


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_the_command_names_a_baseline_whatever_the_number_of_seeds(fedsynth, fedsynth_json, runs, tmp_path, seeds):
    paths = [runs(f"{name}/seed={s}", seed=s, name=name) for name in ("fedavg", "other") for s in seeds]
    words = ["evaluate", *paths, *(w for p in paths for w in ("--name", "/".join(p.parts[-2:])))]
    stated = fedsynth_json(*words, "--baseline", "fedavg", "-o", tmp_path / "found.json")
    assert [group["efficiency"]["parameters_to_best"] for group in stated["groups"]] == [1.0, 1.0]
    code, _, err = fedsynth(*words, "--baseline", "nobody", "-o", tmp_path / "none.json")
    assert (code, "no run is called that" in err) == (2, True)
