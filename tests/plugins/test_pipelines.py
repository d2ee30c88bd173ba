"""A recipe with a plug-in as a shell script, a Makefile, a Snakefile and for DVC: every command names the plug-in."""

import subprocess

import pytest
import yaml

RECIPE = """extends: fedavg
plugins: ["my_net.py"]
rounds: 1
partition: {clients: 2}
init-model: {arch: tied, width: null, depth: null}
train-client: {local_epochs: 1}
"""


@pytest.fixture
def recipe(tmp_path, network_source):
    """In a folder whose name needs quotes."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "my_net.py").write_text(network_source)
    (folder / "own.yaml").write_text(RECIPE)
    return folder / "own.yaml"


@pytest.mark.parametrize("style", ["sh", "make", "snakemake", "dvc"])
def test_every_invocation_names_it(style, recipe, fedsynth, tmp_path):
    out = tmp_path / "out"
    code, _, err = fedsynth("recipe", recipe, "--format", style, "-o", out)
    assert code == 0, err
    called = f"fedsynth --plugin '{recipe.with_name('my_net.py')}' "
    text = (out / "dvc.yaml" if style == "dvc" else out).read_text()
    if style == "make":
        assert f"FEDSYNTH ?= {called.strip()}\n" in text and "\tfedsynth" not in text
        return
    lines = text.splitlines()
    if style == "dvc":  # a stage has one command, or a list of them
        found = [stage["cmd"] for stage in yaml.safe_load(text)["stages"].values()]
        lines = [line for said in found for line in ([said] if isinstance(said, str) else said)]
    calls = [line for line in lines if "fedsynth " in line and not line.startswith(("#", "test "))]
    assert len(calls) >= 5 and all(called in line for line in calls)


@pytest.mark.slow
def test_the_script_runs(recipe, fedsynth, tmp_path, command_path):
    script = tmp_path / "run.sh"
    assert fedsynth("recipe", recipe, "--format", "sh", "-o", script)[0] == 0
    done = subprocess.run(
        ["sh", script, tmp_path / "run"], env={"PATH": command_path, "WORKERS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/server/outbox/model-0001.safetensors").exists()
    code, _, err = fedsynth("audit", tmp_path / "run", "--replay", "--plugin", recipe.with_name("my_net.py"))
    assert code == 0, err
