"""examples/own_network, which docs/own-network.md explains: as one loose file, and as an installed distribution."""

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

from artifacts.formats import tensors_file

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/own_network"
SMALL = ["--rounds", "2", "--set", "partition.clients=2", "--workers", "1"]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As pip would leave it: the module, and a dist-info with the entry points of the pyproject."""
    import tomllib

    site = tmp_path / "site"
    info = site / "own_network-0.1.0.dist-info"
    info.mkdir(parents=True)
    (site / "own_network.py").write_bytes((EXAMPLE / "own_network.py").read_bytes())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-network\nVersion: 0.1.0\n")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in found.items())
        for group, found in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points))
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("own_network", None)


def test_the_recipe_runs_audits_and_replays(fedsynth, fedsynth_json, tmp_path):
    run = tmp_path / "run"
    summary = fedsynth_json("run", EXAMPLE / "own_network.yaml", "-o", run, *SMALL)
    assert summary["accuracy"] > 0.3  # of ten digits, by three of the four parts of the file
    (message,) = (run / "clients/00/outbox").rglob("*0002*.safetensors")
    artifact = tensors_file.read(message)
    record = f"own_network sha256:{hashlib.sha256((EXAMPLE / 'own_network.py').read_bytes()).hexdigest()}"
    assert (artifact.metadata.method, artifact.metadata.params["plugin"]) == ("rounded", record)
    for tensor in artifact.tensors.values():
        assert np.abs(tensor / 0.0005 - np.round(tensor / 0.0005)).max() < 1e-3
    assert list((run / "clients/00/private").rglob("*state*")), "each client keeps its velocity"
    code, _, err = fedsynth("audit", run, "--replay", "--plugin", EXAMPLE / "own_network.py")
    assert code == 0, err
    # Without it nothing is wrong, and not everything could be looked at: the audit says what it needs.
    for options in ([], ["--replay"]):
        code, out, err = fedsynth("audit", run, *options)
        assert code == 6 and "FAILURE" not in out, out
        assert "needs the plug-in own_network, sha256:" in out and "nothing that was looked at is wrong" in err
    model = run / "server/outbox/model-0001.safetensors"
    code, _, err = fedsynth("evaluate", model, run / "public/test.parquet", "-o", tmp_path / "metrics.json")
    assert code == 3 and f"the plug-in {record} is needed" in err


def test_installed_it_is_named_by_its_distribution(installed, fedsynth, fedsynth_json, tmp_path):
    fedsynth_json("partition", "digits", "--clients", "2", "-o", tmp_path / "run")
    model, like = tmp_path / "m.safetensors", tmp_path / "run/public/test.parquet"
    command = ["init-model", "--arch", "patches", "--like", like, "-o", model]
    fedsynth_json(*command, "--plugin", "own-network")
    record = tensors_file.read_header(model)[0].params["net_plugin"]
    assert record.startswith("own-network 0.1.0 sha256:")
    code, _, err = fedsynth("evaluate", model, like, "-o", tmp_path / "metrics.json")
    assert code == 3 and record in err
    with (installed / "own_network.py").open("a") as file:
        file.write("# another version of the same number\n")
    code, _, err = fedsynth("evaluate", model, like, "-o", tmp_path / "metrics.json", "--plugin", "own-network")
    assert code == 3 and record in err and err.count("own-network 0.1.0 sha256:") == 2


def test_a_distribution_without_entry_points_is_no_plugin(fedsynth):
    code, _, err = fedsynth("init-model", "--help", "--plugin", "numpy")
    assert code == 3 and "numpy is no plug-in" in err


def test_the_example_stays_small():
    lines = [line for line in (EXAMPLE / "own_network.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 80
