"""TOFU's recipes: three phases, everybody in step, one device, and phases that change where accuracy stops rising."""

import json

import numpy as np
import pytest

from artifacts.errors import UsageError
from artifacts.formats import tensors_file
from artifacts.places import RunFolder
from stages.evaluate.communication import read_communication
from stages.recipes.phases import Plateau, resolved
from stages.recipes.plan import plan
from stages.recipes.recipe import change, load_recipe

SMALL = [
    "partition.clients=2", "init-model.arch=mlp", "init-model.width=4", "init-model.depth=1",
    "train-client.local_epochs=null", "train-client.local_steps=2", "encode.images=4", "encode.iterations=3",
    "encode.least_cosine=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def federation(tmp_path_factory, run_on_one_worker):
    """A round in each of the three phases."""
    folder = tmp_path_factory.mktemp("tofu") / "run"
    run_on_one_worker(change(load_recipe("tofu"), [*SMALL, "switch1=2", "switch2=3"], 3), folder, seed=0)
    return folder


def test_after_every_round_all_hold_the_same_model(federation):
    for number in (1, 2):
        models = [f"{place}/private/model-{number:04}.safetensors" for place in ("server", "clients/00", "clients/01")]
        assert len({(federation / name).read_bytes() for name in models}) == 1
    assert (federation / "server/outbox/model-0003.safetensors").exists()
    assert not list(federation.glob("*/*/private/model-0003*")), "a full round's model is sent, not followed"


def test_each_round_is_of_its_phase(federation):
    def sent(number, place="clients/00"):
        return {path.name[:5] for path in (federation / place / "outbox").glob(f"*-{number:04}.safetensors")}

    assert [sent(number) for number in (1, 2, 3)] == [{"proxy"}, {"proxy"}, {"messa"}]
    assert [sent(number, "server") for number in (1, 2, 3)] == [{"proxy"}, {"proxy"}, {"model"}]
    for place in ("clients/00", "clients/01", "server"):
        proxies = [federation / place / f"outbox/proxy-{number:04}.safetensors" for number in (1, 2)]
        scaled = [tensors_file.read(path).metadata.params["scale_by_cosine"] for path in proxies]
        assert scaled == [False, True]


def test_what_a_run_sent_by_the_papers_count_and_in_bytes(federation):
    sent = read_communication(RunFolder(federation))
    assert sent.model == 64 * 4 + 4 + 4 * 10 + 10
    each_way = 4 * (64 + 10)
    assert sent.proxies == {1: (each_way, each_way), 2: (each_way, each_way)} and not sent.one_way
    assert sent.parameters(3) == 4 * each_way + 2 * sent.model
    assert sent.parameters(3, up_only=True) == 2 * each_way + sent.model
    up = sum(path.stat().st_size for path in federation.glob("clients/*/outbox/*"))
    down = sum(path.stat().st_size for path in federation.glob("server/outbox/proxy-*"))
    first = (federation / "public/model-0000.safetensors").stat().st_size
    assert sent.bytes(3, lambda file: file.up) == up
    assert sent.bytes(3, lambda file: not file.up) == 2 * (down + first)  # the last model has nobody to go to


def test_one_device_sends_up_and_nothing_comes_down(tmp_path, run_on_one_worker):
    settings = [setting for setting in SMALL if "clients" not in setting]
    run_on_one_worker(change(load_recipe("tofu-single"), settings, 2), tmp_path / "run", seed=0)
    for number in (1, 2):
        name = f"private/model-{number:04}.safetensors"
        assert (tmp_path / "run/server" / name).read_bytes() == (tmp_path / "run/clients/00" / name).read_bytes()
    assert not list((tmp_path / "run/server").glob("outbox/*"))
    assert len(list((tmp_path / "run/clients/00/outbox").glob("proxy-*"))) == 2
    sent = read_communication(RunFolder(tmp_path / "run"))
    assert sent.one_way and sent.parameters(2) == 2 * 4 * (64 + 10)


def test_full_rounds_under_masks(tmp_path, run_on_one_worker):
    """No update leaves as it is; the model is that of the mean all the same, up to the grid of the masks."""
    run = tmp_path / "run"
    settings = [*SMALL, "partition.clients=3", "switch2=2"]
    run_on_one_worker(change(load_recipe("tofu", "secure"), settings, 2), run, seed=0)
    assert not list(run.glob("clients/*/outbox/message-*"))
    updates = [tensors_file.read(path).tensors for path in sorted(run.glob("clients/*/private/update-0002*"))]
    before = tensors_file.read(run / "server/private/model-0001.safetensors").tensors
    after = tensors_file.read(run / "server/outbox/model-0002.safetensors").tensors
    assert len(updates) == 3
    for name, weight in before.items():
        mean = sum(update[name] for update in updates) / 3
        np.testing.assert_allclose(after[name], weight - mean, atol=2e-6, rtol=0)


RISES = {0: 0.1, 1: 0.5, 2: 0.7, 3: 0.7, 4: 0.71, 5: 0.8, 6: 0.9, 7: 0.9, 8: 0.9}


@pytest.mark.parametrize(("last", "reached"), [(1, False), (2, False), (3, False), (4, True)])
def test_a_plateau_by_hand(last, reached):
    """Two rounds without a gain of 0.05: after 3 they are 0.2 above the best before them, after 4 only 0.01."""
    assert Plateau(patience=2, gain=0.05).reached(RISES, 1, last) is reached


def test_switches_follow_the_accuracy_and_never_look_ahead():
    rule = ["plateau.patience=2", "plateau.gain=0.05", "plateau.full_rounds=3"]
    recipe = change(load_recipe("tofu", "plateau"), rule, 30)
    known = resolved(recipe, RISES)
    # The second phase begins with round 5; its rounds 7 and 8 are no better than 6.
    assert (known.switch1, known.switch2, known.rounds) == (5, 9, 11)
    for done in range(9):
        seen = resolved(recipe, {r: a for r, a in RISES.items() if r <= done})
        assert seen.switch1 == (5 if done >= 4 else 31) and seen.switch2 == (9 if done >= 8 else 31)


def test_a_run_finds_its_phases_and_goes_on_where_it_stopped(tmp_path, run_on_one_worker):
    """With an impossible gain every phase is one round long."""
    rule = ["plateau.patience=1", "plateau.gain=1", "plateau.full_rounds=1", "encode.iterations=1"]
    recipe = change(load_recipe("tofu", "plateau"), [*SMALL, *rule], 9)
    summary = run_on_one_worker(recipe, tmp_path / "run", seed=0)
    assert summary["rounds"] == 3
    found = json.loads((tmp_path / "run/simulation/phases.json").read_text())
    assert (found["rounds"], found["switch1"], found["switch2"]) == (3, 2, 3)
    assert (tmp_path / "run/metrics/curve.png").exists()
    again = run_on_one_worker(recipe, tmp_path / "run", seed=0)
    assert again["steps_run"] == 0 and again["accuracy"] == summary["accuracy"]


def test_a_plateau_cannot_be_laid_out_in_advance(fedsynth):
    with pytest.raises(UsageError, match="only `fedsynth run`"):
        plan(load_recipe("tofu", "plateau"), ["00", "01"], 0)
    code, _, err = fedsynth("recipe", "tofu", "--preset", "plateau", "--format", "sh")
    assert code == 2 and "Give the rounds" in err
    code, _, err = fedsynth("run", "tofu", "--set", "switch1=soon", "-o", "nowhere")
    assert code == 2 and "or plateau" in err
    code, _, err = fedsynth("run", "tofu", "--preset", "plateau", "--set", "plateau.patience=0", "-o", "nowhere")
    assert code == 2 and "patience" in err
