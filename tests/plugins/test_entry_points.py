"""An installed distribution with an entry point in each group: networks, algorithms, generators, encoders, sources."""

import json
import sys

import pytest

from artifacts.formats import tensors_file
from fedsynth_cli.app import run as run_command_line
from stages.plugins import families

HEAD = """
from dataclasses import dataclass
from typing import ClassVar, Literal
from stages.hyperparameters import hyper
"""
SOURCES = {
    "networks": """
from stages.nets.params import Network
from stages.registry import NETWORKS

@NETWORKS.register
@dataclass(frozen=True, kw_only=True)
class Theirs(Network):
    arch: Literal["their-net"] = hyper("their-net", "their-net: one layer")

    @staticmethod
    def build(shape):
        from torch import nn
        return nn.Sequential(nn.Flatten(), nn.Linear(shape.channels * shape.height * shape.width, shape.num_classes))
""",
    "algorithms": """
from stages.methods.params.local_training import BatchTraining
from stages.registry import ALGORITHMS

@ALGORITHMS.register
@dataclass(frozen=True, kw_only=True)
class Theirs(BatchTraining):
    algorithm: Literal["their-algorithm"] = hyper("their-algorithm", "their-algorithm: plain")
""",
    "generators": """
from stages.methods.params.vae import VaeTraining
from stages.registry import GENERATORS

@GENERATORS.register
@dataclass(frozen=True, kw_only=True)
class Theirs(VaeTraining):
    family: Literal["their-vae"] = hyper("their-vae", "their-vae: as ours")
""",
    "encoders": """
from stages.methods.params.encoding import DeltaEncoding
from stages.registry import ENCODERS

@ENCODERS.register
@dataclass(frozen=True, kw_only=True)
class Theirs(DeltaEncoding):
    method: Literal["their-method"] = hyper("their-method", "their-method: as it is")
""",
    "sources": """
import numpy as np
from stages.data.images import LabelledImages
from stages.data.named_source import NamedSource
from stages.registry import SOURCES

@SOURCES.register
@dataclass(frozen=True, kw_only=True)
class Theirs(NamedSource):
    source: Literal["their-images"] = hyper("their-images", "their-images: stripes")

    def read(self, asked):
        rows = np.arange(60)
        images = np.zeros((60, 1, 8, 8), np.uint8)
        images[rows, 0, rows % 8] = 200
        images[rows, 0, :, rows % 7] += (rows % 50).astype(np.uint8)[:, None]
        return LabelledImages(images, rows % 2, ("even", "odd")), None
""",
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """As pip would leave it: a module, and its dist-info."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))
    made = []

    def make(family, name=None, module=None, text=None):
        name, module = name or f"their-{family}", module or f"their_{family}"
        info = site / f"{name.replace('-', '_')}-2.0.dist-info"
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(HEAD + SOURCES[family] if text is None else text)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
        (info / "entry_points.txt").write_text(f"[fedsynth.{family}]\ntheirs = {module}:Theirs\n")
        made.append(module)
        return name

    yield make
    for module in made:
        sys.modules.pop(module, None)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Data, a model and an update of fedsynth's own, in the places of one client."""
    run = tmp_path_factory.mktemp("entry points") / "run"
    model, private = run / "public/model.safetensors", run / "clients/00/private"
    update = private / "update.safetensors"
    for words in (
        ["partition", "digits", "--clients", "20", "-o", run],
        ["init-model", "--arch", "softmax", "--like", run / "public/test.parquet", "-o", model],
        ["train-client", model, private / "data.parquet", "--local-steps", "1", "-o", update],
    ):
        assert run_command_line([*map(str, words), "--quiet"]) == 0
    return run, model, private, update


WORDS = {
    "networks": "their-net",
    "algorithms": "their-algorithm",
    "generators": "their-vae",
    "encoders": "their-method",
    "sources": "their-images",
}


def command(family, begun):
    """A real command that uses the plug-in's member, by which option, and the file that it writes."""
    run, model, private, update = begun
    data, own = private / "data.parquet", private / f"{family}.safetensors"
    train = ["train-client", model, data, "--local-steps", "1"]
    return {
        "networks": (["init-model", "--like", run / "public/test.parquet"], "--arch", run / "public/own.safetensors"),
        "algorithms": (train, "--algorithm", own),
        "generators": (["train-generator", data, "--steps", "1", "--filters", "4"], "--family", own),
        "encoders": (["encode", model, update], "--method", run / "clients/00/outbox/own.safetensors"),
        "sources": (["partition"], None, run.with_name("stripes")),
    }[family]


def line(family, begun):
    words, option, out = command(family, begun)
    return [*words, *([option] if option else []), WORDS[family], *(["--clients", "2"] if not option else [])], out


def test_these_are_all_groups():
    assert {f"fedsynth.{name}" for name in SOURCES} <= set(families())


@pytest.mark.parametrize("family", SOURCES)
def test_a_distribution_brings_one(family, install, begun, fedsynth):
    name = install(family)
    words, out = line(family, begun)
    code, _, err = fedsynth(*words, "-o", out)
    assert code in (2, 3) and "their" in err, "nothing is loaded because it is installed"
    code, _, err = fedsynth(*words, "-o", out, "--plugin", name)
    assert code == 0, err
    if family == "sources":
        record = json.loads((out / "simulation/partition.json").read_text())["plugin"]
    else:
        params = tensors_file.read_header(out)[0].params
        record = params["net_plugin" if family == "networks" else "plugin"]
    assert record.startswith(f"{name} 2.0 sha256:")
    assert f"their_{family}" not in sys.modules, "and afterwards it is gone"


def test_two_distributions_of_one_name_are_refused(install, fedsynth):
    one, other = install("networks"), install("networks", "other-networks", "other_networks")
    code, _, err = fedsynth("init-model", "--help", "--plugin", one, "--plugin", other)
    assert code == 3 and f"--arch their-net is declared by the plug-in {one} 2.0" in err


def test_a_distribution_whose_module_is_gone(install, fedsynth, tmp_path):
    name = install("networks")
    (tmp_path / "site/their_networks.py").unlink()
    code, _, err = fedsynth("init-model", "--help", "--plugin", name)
    assert code == 3 and "their_networks is not there" in err


def test_a_distribution_that_fails_on_import_leaves_nothing(install, fedsynth):
    name = install("networks", text=HEAD + SOURCES["networks"] + "\n1 / 0\n")
    code, _, err = fedsynth("init-model", "--help", "--plugin", name)
    assert code == 3 and "ZeroDivisionError" in err
    code, out, _ = fedsynth("init-model", "--help")
    assert code == 0 and "their-net" not in out


def test_a_model_whose_tensors_do_not_fit_its_network(install, begun, fedsynth, monkeypatch):
    """The file is whole; but the plug-in's network has other tensors today than it had when it was made."""
    run, *_ = begun
    bias = "shape.num_classes, bias='NO_BIAS' not in __import__('os').environ)"
    name = install("networks", text=HEAD + SOURCES["networks"].replace("shape.num_classes)", bias))
    words, out = line("networks", begun)
    out = out.with_name("fitting.safetensors")
    assert fedsynth(*words, "-o", out, "--plugin", name)[0] == 0
    monkeypatch.setenv("NO_BIAS", "1")
    metrics = run / "metrics.json"
    code, _, err = fedsynth("evaluate", out, run / "public/test.parquet", "-o", metrics, "--plugin", name)
    assert code == 3 and "does not fit the model" in err and not metrics.exists()
