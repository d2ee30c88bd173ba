"""What was sent, counted by hand: from the recipe's sizes for the paper's numbers, from the disk for the bytes."""

import json

import pytest
from PIL import Image

from artifacts.places import RunFolder
from stages.evaluate.communication import Communication, read_communication
from stages.pictures.comparison import GroupCurve

SOFTMAX = 64 * 10 + 10  # parameters of a softmax model on 8×8 digits, and of its control variates


def size(*paths):
    return sum(path.stat().st_size for path in paths)


def takes_part(run, number):
    return sorted(path.parent.parent.name for path in run.glob(f"clients/*/outbox/message-{number:04}.safetensors"))


@pytest.mark.parametrize(
    ("clients", "with_it", "without", "saved", "of_numbers"),
    [(10, 4, 88, 0.950, 0.937), (10, 8, 68, 0.876, 0.859), (40, 12, 100, 0.879, 0.876)],
)
def test_the_papers_own_savings(clients, with_it, without, saved, of_numbers):
    """Fedssyn, Table A.2, from the rounds of Table A.1, FedAvg on CIFAR-10: VGG-11 and 50,000/N images of 32×32×3.

    The paper's percentages are of bytes, uint8 pixels and float32 weights; of numbers they are smaller.
    """
    vgg11, images = 9_750_922, 50_000 // clients * (3 * 32 * 32 + 1)
    fedssyn, fedavg = (Communication(model=vgg11, states=0, synthetic=s, transfers=()) for s in (images, 0))
    assert 1 - fedssyn.stored_bytes(with_it) / fedavg.stored_bytes(without) == pytest.approx(saved, abs=1e-3)
    assert 1 - fedssyn.parameters(with_it) / fedavg.parameters(without) == pytest.approx(of_numbers, abs=1e-3)


def test_numbers_of_the_paper(shuffled_run):
    sent = read_communication(RunFolder(shuffled_run))
    assert (sent.model, sent.states) == (SOFTMAX, SOFTMAX)
    assert sent.synthetic == 10 * (64 + 1)  # ten images and their labels, of one client
    assert sent.parameters(0) == 2 * 650
    assert sent.parameters(3) == 2 * 650 + 2 * 3 * (650 + 650)
    assert sent.stored_bytes(3) == 2 * 650 + 4 * 2 * 3 * (650 + 650)


def test_bytes_on_the_disk(shuffled_run):
    """Up: each file once. Down: a part to one client, model and state to those who take part in the next round."""
    sent = read_communication(RunFolder(shuffled_run))
    chosen = {number: takes_part(shuffled_run, number) for number in (1, 2, 3)}
    assert all(len(names) == 2 for names in chosen.values())
    server, public = shuffled_run / "server/outbox", shuffled_run / "public/model-0000.safetensors"
    synthetic = size(*shuffled_run.glob("clients/*/outbox/synthetic.parquet"))
    parts = size(*server.glob("synthetic-*.parquet"))
    assert sent.bytes(0) == synthetic + parts
    up, down = synthetic, parts
    for number in (1, 2, 3):
        model = public if number == 1 else server / f"model-{number - 1:04}.safetensors"
        state = [] if number == 1 else [server / f"state-{number - 1:04}.safetensors"]
        up += size(*shuffled_run.glob(f"clients/*/outbox/*-{number:04}.safetensors"))
        down += 2 * size(model, *state)
        assert sent.bytes(number, lambda file: file.up) == up
        assert sent.bytes(number, lambda file: not file.up) == down
    assert sent.bytes(3) == up + down  # the last model goes nowhere
    states = size(*shuffled_run.glob("clients/*/outbox/state-*"))
    states += 2 * size(*(server / f"state-{number:04}.safetensors" for number in (1, 2)))
    assert sent.bytes(3, lambda file: file.kind == "state") == states


def test_the_command_tells_all_of_it(fedsynth_json, shuffled_run, tmp_path):
    summary = fedsynth_json("evaluate", shuffled_run, "-o", tmp_path / "c.json")
    (run,) = summary["runs"]
    sent = read_communication(RunFolder(shuffled_run))
    assert run["bytes"] == run["bytes_up"] + run["bytes_down"] == sent.bytes(3)
    assert run["bytes_states"] > 0
    assert run["bytes_synthetic"] == sent.bytes(0)
    assert (run["model_parameters"], run["state_parameters"], run["synthetic_numbers"]) == (650, 650, 650)
    assert (run["parameters"], run["clients"], run["label"]) == (9100, 4, "shuffled")
    curve = [json.loads(p.read_text())["accuracy"] for p in sorted(shuffled_run.glob("metrics/round-*.json"))]
    assert run["curve"] == [[number, value] for number, value in enumerate(curve)]
    assert (run["accuracy"], run["best"]) == (curve[-1], max(curve))
    assert run["bytes_by_round"] == [[number, sent.bytes(number)] for number in range(4)]


def test_the_picture_has_accuracy_against_bytes_where_asked(fedsynth, finished_run, fedlap_run, tmp_path):
    sizes = {}
    for words in ((), ("--against-bytes",), ("--against-bytes", "--delta", "1e-5")):
        picture = tmp_path / "c.png"
        given = ["-o", tmp_path / "c.json", "--picture", picture, "--force", *words]
        code, _, err = fedsynth("evaluate", finished_run, fedlap_run, *given)
        assert code == 0, err
        with Image.open(picture) as drawn:
            sizes[words] = drawn.width
    plain, with_bytes, with_both = sizes.values()
    assert plain < with_bytes < with_both
    code, _, err = fedsynth("evaluate", finished_run, "--against-bytes", "-o", tmp_path / "d.json")
    assert (code, "--against-bytes needs --picture" in err) == (2, True)


def test_bytes_beside_accuracies_by_hand():
    """Two seeds: 100 and 300 bytes after the first round, 0.5 and 0.7 accurate."""
    group = GroupCurve("a", [{0: 0.1, 1: 0.5}, {0: 0.1, 1: 0.7}], sent=[{0: 0, 1: 100}, {0: 0, 1: 300}])
    assert group.against_bytes() == ([0.0, 200.0], pytest.approx([0.1, 0.6]))
    assert GroupCurve("b", [{0: 0.1}]).against_bytes() == ([], [])


def test_a_run_without_synthetic_data_or_states(finished_run):
    sent = read_communication(RunFolder(finished_run))
    assert (sent.model, sent.states, sent.synthetic) == (SOFTMAX, 0, 0)
    messages = size(*finished_run.glob("clients/*/outbox/*"))
    models = size(finished_run / "public/model-0000.safetensors", finished_run / "server/outbox/model-0001.safetensors")
    assert sent.bytes(2) == messages + 3 * models


def test_sets_in_place_of_models(fedlap_run):
    """Down 650 weights a round; up fifteen images of 64 pixels, their labels and a radius, and no model."""
    sent = read_communication(RunFolder(fedlap_run))
    assert (sent.model, sent.synthetic, sent.surrogate) == (SOFTMAX, 0, 15 * (64 + 1) + 1)
    assert sent.parameters(2) == 2 * (650 + 976)
