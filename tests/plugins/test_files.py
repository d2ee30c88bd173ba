"""A plug-in in one file: its network in every command, its digest in every file, and what is refused."""

import hashlib
from pathlib import Path

import pytest

from artifacts.errors import UsageError
from artifacts.formats import tensors_file
from stages.federate.terms import agreed, read_terms
from stages.plugins import using
from stages.recipes.recipe import load_recipe, recipe_of
from stages.registry import NETWORKS

LATE = """\
                self.calls = getattr(self, "calls", 0) + 1
                if self.calls > 6:
                    self.mean.add_(0.001)
"""
SETTINGS = ["--set", "partition.clients=2", "--rounds", "2"]


@pytest.fixture
def made(tmp_path, fedsynth_json, plugin):
    """A divided dataset and a model of the plug-in's network."""
    fedsynth_json("partition", "digits", "--clients", "2", "-o", tmp_path / "run")
    model = tmp_path / "run/public/model-0000.safetensors"
    like = tmp_path / "run/public/test.parquet"
    fedsynth_json("init-model", "--plugin", plugin, "--arch", "tied", "--units", "7", "--like", like, "-o", model)
    return model


def record(path):
    return f"{path.stem} sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_the_model_states_its_network_and_the_plugins_digest(made, plugin):
    params = tensors_file.read_header(made)[0].params
    assert (params["net_arch"], params["net_units"], params["net_plugin"]) == ("tied", 7, record(plugin))


def test_a_tied_weight_is_in_the_file_once_and_a_buffer_too(made):
    names = set(tensors_file.read(made).tensors)
    assert {"mean", "first.weight", "second.weight", "second.bias", "last.bias"} <= names
    assert not {"third.weight", "passing"} & names


def test_its_parameters_are_options_only_while_it_is_loaded(fedsynth, plugin):
    code, out, _ = fedsynth("init-model", "--help", "--plugin", plugin)
    assert code == 0 and "--units" in out and "tied" in out
    code, out, _ = fedsynth("init-model", "--help")
    assert code == 0 and "--units" not in out and "tied" not in NETWORKS.words


def test_a_file_that_asks_for_it_is_refused_without_it_and_with_another(made, fedsynth, plugin, tmp_path):
    command = ["evaluate", made, made.parent / "test.parquet", "-o", tmp_path / "metrics.json"]
    code, _, err = fedsynth(*command)
    assert code == 3 and record(plugin) in err and "--plugin" in err
    before = record(plugin)
    plugin.write_text(plugin.read_text() + "\n# changed\n")
    code, _, err = fedsynth(*command, "--plugin", plugin)
    assert code == 3 and before in err and record(plugin) in err
    assert not (tmp_path / "metrics.json").exists()


def test_the_environment_names_plugins_too(made, fedsynth, plugin, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSYNTH_PLUGINS", str(plugin))
    code, _, err = fedsynth("evaluate", made, made.parent / "test.parquet", "-o", tmp_path / "metrics.json")
    assert code == 0, err


def test_a_params_file_names_plugins_from_its_own_folder(made, fedsynth_json, plugin, tmp_path):
    params = tmp_path / "params.yaml"
    params.write_text("plugins: [my_net.py]\ninit-model: {arch: tied, units: 7}\n")
    again = tmp_path / "again.safetensors"
    fedsynth_json("init-model", "--params", params, "--like", made.parent / "test.parquet", "-o", again)
    assert again.read_bytes() == made.read_bytes()


@pytest.mark.slow
def test_a_run_with_workers_audits_and_replays(fedsynth, fedsynth_json, plugin, tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text("extends: fedavg\nplugins: [my_net.py]\ninit-model: {arch: tied, width: null, depth: null}\n")
    run = tmp_path / "run"
    fedsynth_json("run", recipe, "-o", run, *SETTINGS, "--workers", "2")
    models = sorted((run / "server/outbox").rglob("model-*.safetensors"))
    assert tensors_file.read_header(models[-1])[0].params["net_plugin"] == record(plugin)
    code, _, err = fedsynth("audit", run, "--replay", "--plugin", plugin)
    assert code == 0, err
    assert fedsynth("audit", run, "--replay")[0] == 6


EMPTY = """
from dataclasses import dataclass
from typing import Literal
from stages.hyperparameters import hyper
from stages.nets.params import Network
from stages.registry import NETWORKS

@NETWORKS.register
@dataclass(frozen=True, kw_only=True)
class Empty(Network):
    arch: Literal["empty"] = hyper("empty", "empty: nothing to train")

    @staticmethod
    def build(shape):
        from torch import nn
        return nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(shape.num_classes))
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import not_there\n", "ModuleNotFoundError: No module named 'not_there'"),
        ("this is no python\n", "SyntaxError"),
        ("x = 1\n", "registers nothing"),
        ("raise SystemExit(0)\n", "SystemExit: 0"),
    ],
)
def test_a_plugin_that_cannot_be_loaded(text, said, fedsynth, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(text)
    code, _, err = fedsynth("init-model", "--plugin", path, "--help")
    assert code == 3 and said in err and str(path) in err


def test_a_plugin_that_fails_halfway_leaves_nothing_behind(fedsynth, network_source, tmp_path):
    path = tmp_path / "halfway.py"
    path.write_text(network_source + "\nraise RuntimeError('halfway')\n")
    code, _, err = fedsynth("init-model", "--plugin", path, "--help")
    assert code == 3 and "RuntimeError: halfway" in err
    assert "tied" not in NETWORKS.words


def test_the_name_of_a_built_in_is_refused(fedsynth, network_source, tmp_path):
    path = tmp_path / "clash.py"
    path.write_text(network_source.replace('"tied"', '"mlp"'))
    code, _, err = fedsynth("init-model", "--plugin", path, "--help")
    assert code == 3 and "--arch mlp is declared by fedsynth itself" in err


def test_of_a_buffer_nothing_leaves_under_privacy_whatever_the_network_does(made, fedsynth, plugin, tmp_path):
    """A buffer that begins to change late passes every trial; how often it was called follows from the records."""
    late = plugin.read_text().replace(
        "                h = torch.relu(self.first", LATE + "                h = torch.relu(self.first", 1
    )
    assert late != plugin.read_text()
    plugin.write_text(late)
    client = tmp_path / "run/clients/00/private"
    like = made.parent / "test.parquet"
    code, _, err = fedsynth("init-model", "--plugin", plugin, "--arch", "tied", "--like", like, "-o", made, "--force")
    assert code == 0, err
    noise = ["--noise-multiplier", "1", "--clip-norm", "1", "--sampling-rate", "0.1", "--local-steps", "9"]
    for name, options, changes in (("plain", ["--local-steps", "30"], True), ("private", noise, False)):
        update = client / f"{name}.safetensors"
        command = ["train-client", made, client / "data.parquet", *options, "-o", update, "--plugin", plugin]
        code, _, err = fedsynth(*command)
        assert code == 0, err
        tensors = tensors_file.read(update).tensors
        assert tensors["mean"].any() == changes and tensors["first.weight"].any()


def test_a_network_without_parameters_is_refused_and_nothing_is_lost(made, fedsynth, tmp_path):
    path, before = tmp_path / "empty.py", made.read_bytes()
    path.write_text(EMPTY)
    like = made.parent / "test.parquet"
    code, _, err = fedsynth("init-model", "--plugin", path, "--arch", "empty", "--like", like, "-o", made, "--force")
    assert code == 2 and "--arch empty: the network has no parameters" in err
    assert made.read_bytes() == before


def test_two_plugins_of_one_name_are_refused(fedsynth, plugin, network_source, tmp_path):
    other = tmp_path / "other.py"
    other.write_text(network_source)
    code, _, err = fedsynth("init-model", "--plugin", plugin, "--plugin", other, "--help")
    assert code == 3 and f"--arch tied is declared by the plug-in {record(plugin)}" in err


def test_a_plugin_that_is_not_there(fedsynth, tmp_path):
    code, _, err = fedsynth("init-model", "--plugin", tmp_path / "no.py", "--help")
    assert code == 3 and "no.py" in err
    code, _, err = fedsynth("init-model", "--plugin", "not-installed", "--help")
    assert code == 3 and "'not-installed'" in err
    code, _, err = fedsynth("init-model", "--plugin")
    assert code == 2 and "--plugin needs a value" in err


def test_a_name_that_files_cannot_state_is_refused(fedsynth, network_source, tmp_path):
    path = tmp_path / "my net.py"
    path.write_text(network_source)
    code, _, err = fedsynth("init-model", "--plugin", path, "--help")
    assert code == 3 and "Rename it" in err


@pytest.mark.parametrize(
    ("line", "beside", "named"),
    [
        ("import helper", "helper.py", "helper"),
        ("from helper.parts import x", "helper/parts.py", "helper.parts"),
        ("def late():\n    from helper import x", "helper.py", "helper"),
        ("from .helper import x", "helper.py", ".helper"),
    ],
)
@pytest.mark.parametrize("is_found", [True, False])
def test_what_lies_beside_it_is_not_imported(line, beside, named, is_found, fedsynth, plugin, monkeypatch):
    """A digest of one file says nothing of another, which might change between two rounds."""
    other = plugin.parent / beside
    other.parent.mkdir(exist_ok=True)
    other.write_text("x = 1\n")
    if is_found:
        monkeypatch.syspath_prepend(str(plugin.parent))
    plugin.write_text(f"{plugin.read_text()}\n{line}\n")
    code, _, err = fedsynth("init-model", "--plugin", plugin, "--help")
    assert code == 3 and f"imports {named}, which lies beside it" in err and "entry points" in err


def test_a_folder_of_a_librarys_name_beside_it_is_no_reason(fedsynth, plugin):
    plugin.with_name("torch").mkdir()
    plugin.with_name("stages").mkdir()
    assert fedsynth("init-model", "--plugin", plugin, "--help")[0] == 0


def test_the_same_file_twice_is_one(fedsynth, plugin, monkeypatch):
    monkeypatch.setenv("FEDSYNTH_PLUGINS", str(plugin))
    assert fedsynth("init-model", "--plugin", plugin, "--help")[0] == 0


def test_terms_with_a_path_load_nothing(plugin):
    """Terms come from somebody else: they name a plug-in by its digest, and the operator loads it."""
    values = {"rounds": 1, "plugins": [str(plugin)], "init-model": {"arch": "softmax"}}
    with pytest.raises(UsageError, match="names no plug-in"):
        recipe_of(values, Path("federation.yaml"))
    assert "tied" not in NETWORKS.words


def test_terms_pin_the_plugin(plugin, tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text("extends: fedavg\nplugins: [my_net.py]\ninit-model: {arch: tied, width: null, depth: null}\n")
    terms = tmp_path / "federation.yaml"
    with using([]):
        agreed_on = agreed(load_recipe(str(recipe)), ("00", "01"), seed=0, wait=1.0, most_bytes=1000)
        terms.write_text(agreed_on.to_yaml())
    before = record(plugin)
    with pytest.raises(UsageError, match="--plugin"):
        read_terms(terms)
    with using([str(plugin)]):
        assert read_terms(terms).digest == agreed_on.digest
    plugin.write_text(plugin.read_text() + "\n# changed\n")
    with using([str(plugin)]), pytest.raises(UsageError) as refused:
        read_terms(terms)
    assert before in str(refused.value) and record(plugin) in str(refused.value)
