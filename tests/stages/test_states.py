"""Control variates as files: what is refused, what they disclose, and that the files do what the paper says."""

import numpy as np
import pytest

from artifacts.formats import tensors_file
from stages.recipes.recipe import change, load_recipe

SMALL = ["partition.clients=3", "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null"]


@pytest.fixture(scope="module")
def scaffold_run(tmp_path_factory, run_on_one_worker):
    folder = tmp_path_factory.mktemp("scaffold") / "run"
    run_on_one_worker(change(load_recipe("scaffold"), [*SMALL, "train-client.local_epochs=1"], 2), folder, seed=0)
    return folder


def tensors(path):
    return tensors_file.read(path).tensors


def test_the_servers_state_is_the_mean_of_the_clients(scaffold_run):
    """c = mean c_i after every round with all clients, because both start at zero (Algorithm 1)."""
    for round in ("0001", "0002"):
        server = tensors(scaffold_run / f"server/outbox/state-{round}.safetensors")
        clients = [tensors(path) for path in sorted(scaffold_run.glob(f"clients/*/private/state-{round}.safetensors"))]
        assert len(clients) == 3
        for name, value in server.items():
            np.testing.assert_allclose(value, np.mean([c[name] for c in clients], axis=0), rtol=1e-4, atol=1e-6)


def test_the_sent_state_is_the_change_of_the_kept_one_and_is_declared(scaffold_run):
    place = scaffold_run / "clients/01"
    sent = tensors_file.read(place / "outbox/state-0002.safetensors")
    assert sent.metadata.disclosures == ("local_steps", "update")
    assert sent.metadata.counts == {}
    assert {r.role for r in sent.metadata.inputs if r.commitment} == {"state", "previous"}
    new, old = (tensors(place / f"private/state-{round}.safetensors") for round in ("0002", "0001"))
    for name, value in sent.tensors.items():
        np.testing.assert_array_equal(value, new[name] - old[name])


def test_the_first_variate_is_the_update_over_steps_and_rate(scaffold_run):
    place = scaffold_run / "clients/00/private"
    update, state = tensors_file.read(place / "update-0001.safetensors"), tensors(place / "state-0001.safetensors")
    steps, rate = update.metadata.counts["local_steps"], update.metadata.params["learning_rate"]
    for name, value in state.items():
        np.testing.assert_allclose(value, update.tensors[name] / (steps * rate), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("clients", "share"), [(1, 1.0), (4, 0.25)])
def test_the_servers_variates_move_by_the_share_of_the_clients(fedsynth_json, scaffold_run, tmp_path, clients, share):
    """c + |S|/N · mean Δc: of one client in four, a quarter. A federation in which all take part would not show it."""
    sent, out = scaffold_run / "clients/00/outbox/state-0001.safetensors", tmp_path / "server/outbox/state.safetensors"
    model = scaffold_run / "public/model-0000.safetensors"
    fedsynth_json("aggregate", model, sent, "--rule", "variates", "--clients", clients, "-o", out)
    found, change = tensors(out), tensors(sent)
    assert found.keys() == change.keys()
    for name, value in change.items():
        assert np.abs(value).max() > 0
        np.testing.assert_allclose(found[name], share * value, rtol=1e-6)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["train-client", "MODEL0", "DATA", "--algorithm", "scaffold", "-o", "OUT"], 2, "needs --state-out"),
        (["train-client", "MODEL0", "DATA", "--state-out", "OUT2", "-o", "OUT"], 2, "keeps no state"),
        (["train-client", "MODEL0", "DATA", "--state", "STATE1", "-o", "OUT"], 2, "no use for --state"),
        (["train-client", "MODEL0", "DATA", "--algorithm", "scaffold", "--state", "UPDATE1", "--state-out", "OUT2",
          "-o", "OUT"], 3, "it is a update, but a state is needed"),
        (["encode", "MODEL1", "STATE2", "--method", "state", "-o", "SENT"], 2, "--previous"),
        (["encode", "MODEL1", "STATE2", "--method", "state", "--previous", "STATE2", "-o", "SENT"], 3, "not the state"),
        (["encode", "MODEL1", "UPDATE2", "--previous", "STATE1", "-o", "SENT"], 2, "does not go with --method delta"),
        (["aggregate", "MODEL0", "SENT1", "--rule", "variates", "-o", "DOWN"], 2, "--clients needs a value"),
        (["aggregate", "MODEL0", "SENT1", "--rule", "variates", "--clients", "1", "--state", "DOWN1", "-o", "DOWN"], 3,
         "is of round 1"),
        (["aggregate", "MODEL0", "MESSAGE1", "--rule", "variates", "--clients", "1", "-o", "DOWN"], 3,
         "a state is needed"),
        (["aggregate", "MODEL0", "SENT1", "-o", "DOWN"], 3, "residuals or compressed is needed"),
        (["aggregate", "MODEL0", "MESSAGE1", "--rule", "fednova", "-o", "DOWN"], 3, "--tell-steps"),
        (["aggregate", "MODEL0", "MESSAGE1", "--rule", "feddyn", "-o", "DOWN"], 2, "--clients"),
        (["aggregate", "MODEL0", "MESSAGE1", "--rule", "feddyn", "--clients", "3", "-o", "DOWN"], 2, "--state-out"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(fedsynth, scaffold_run, tmp_path, command, code, said):
    place = scaffold_run / "clients/00"
    names = {
        "MODEL0": scaffold_run / "public/model-0000.safetensors",
        "MODEL1": scaffold_run / "server/outbox/model-0001.safetensors",
        "DATA": place / "private/data.parquet",
        "STATE1": place / "private/state-0001.safetensors",
        "STATE2": place / "private/state-0002.safetensors",
        "UPDATE1": place / "private/update-0001.safetensors",
        "UPDATE2": place / "private/update-0002.safetensors",
        "MESSAGE1": place / "outbox/message-0001.safetensors",
        "SENT1": place / "outbox/state-0001.safetensors",
        "DOWN1": scaffold_run / "server/outbox/state-0001.safetensors",
        "OUT": tmp_path / "00/private/update.safetensors",
        "OUT2": tmp_path / "00/private/state.safetensors",
        "SENT": tmp_path / "00/outbox/state.safetensors",
        "DOWN": tmp_path / "server/outbox/model.safetensors",
    }
    found, _, err = fedsynth(*(names.get(word, word) for word in command))
    assert (found, said in err) == (code, True), err
    assert not list(tmp_path.rglob("*.safetensors"))
