"""The Snakemake form of a recipe, read and run by Snakemake itself."""

import re

import pytest

from stages.recipes.recipe import change, load_recipe
from stages.recipes.snakemake_format import snakefile


@pytest.fixture(scope="module")
def tools(helper):
    return helper("recipes/tools.py")


@pytest.fixture(scope="module")
def snakemake(tools, command_path):
    program = tools.found("snakemake")
    if program is None:
        pytest.skip("Snakemake is not installed (pip install 'fedsynth[pipelines]')")

    def call(folder, *words):
        alone = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / ".cache")}
        return tools.call([program, *words], folder, command_path, **alone)

    return call


def test_each_rule_says_what_it_reads_writes_and_needs():
    text = snakefile(change(load_recipe("scaffold"), ["partition.clients=3"], 2), seed=0, workers=2, out="run")
    rules = dict(re.findall(r"^rule (\w+):\n((?:    .*\n)+)", text, re.MULTILINE))
    assert list(rules) == [
        "all", "partition", "init_model", "evaluate", "round_0001_clients", "round_0001_aggregate",
        "round_0001_evaluate", "round_0002_clients", "round_0002_aggregate", "round_0002_evaluate",
    ]  # fmt: skip
    for name, body in rules.items():
        if name != "all":
            declared = r"threads: \d+\n +resources:\n +mem_mb=\d+,\n +runtime=\d+,\n +gpu=(GPU|0),\n"
            assert re.search(declared, body), name
    assert "threads: 2" in rules["round_0001_clients"] and "threads: 1" in rules["round_0001_aggregate"]
    assert "--workers {threads}" in rules["round_0002_clients"]


@pytest.mark.parametrize("name", [pytest.param("scaffold", marks=pytest.mark.slow), "tofu"])
def test_snakemake_finds_every_file_made(snakemake, fedsynth, tmp_path, name):
    code, _, err = fedsynth("recipe", name, "--rounds", 2, "--format", "snakemake", "-o", tmp_path / "Snakefile")
    assert code == 0, err
    stated = snakemake(tmp_path, "--dry-run", "--cores", "2")
    rules = re.findall(r"^rule (\w+):", (tmp_path / "Snakefile").read_text(), re.MULTILINE)
    assert re.search(rf"^total\s+{len(rules)}$", stated, re.MULTILINE), stated


@pytest.mark.slow
def test_snakemake_gives_the_same_bytes_and_then_has_nothing_to_do(
    snakemake, fedsynth, tools, run_on_one_worker, tmp_path
):
    asked = ["fedavg", *tools.SMALL, "--format", "snakemake", "-o", tmp_path / "Snakefile"]
    assert fedsynth("recipe", *asked)[0] == 0
    snakemake(tmp_path, "--cores", "2", "--config", "run=a folder")
    run_on_one_worker(change(load_recipe("fedavg"), tools.SETTINGS, 1), tmp_path / "by-run", seed=5)
    assert tools.digests(tmp_path / "a folder") == tools.digests(tmp_path / "by-run")
    assert "Nothing to be done" in snakemake(tmp_path, "--cores", "2", "--config", "run=a folder")
    (tmp_path / "a folder/metrics/round-0001.json").unlink()
    stated = snakemake(tmp_path, "--cores", "2", "--config", "run=a folder")
    assert set(re.findall(r"rule (\w+):", stated)) == {"round_0001_evaluate", "all"}, stated
    assert tools.digests(tmp_path / "a folder") == tools.digests(tmp_path / "by-run")
