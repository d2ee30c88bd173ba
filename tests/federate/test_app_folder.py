"""The app folder: Flower bundles it, its bytes follow from the terms alone, and nothing in it asks for a download."""

import subprocess
import sys
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from stages.federate.app_folder import terms_in_app, write_app
from stages.federate.flower import environment
from stages.federate.terms import read_terms


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_terms_give_the_same_bytes(small_terms, tmp_path):
    write_app(small_terms, tmp_path / "one")
    write_app(small_terms, tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    write_app(replace(small_terms, seed=8), tmp_path / "other")
    assert contents(tmp_path / "other") != contents(tmp_path / "one")


def test_flower_bundles_it_with_the_terms_inside(small_terms, tmp_path):
    write_app(small_terms, tmp_path / "app")
    flwr = Path(sys.executable).with_name("flwr")
    words = [flwr, "build", "--app", tmp_path / "app"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path / "home"), capture_output=True)
    assert done.returncode == 0, done.stderr
    (bundle,) = tmp_path.glob("*.fab")
    with zipfile.ZipFile(bundle) as archive:
        (tmp_path / "inside.yaml").write_bytes(archive.read("fedsynth_app/federation.yaml"))
        project = tomllib.loads(archive.read("pyproject.toml").decode())
    assert read_terms(tmp_path / "inside.yaml") == small_terms
    assert project["project"]["dependencies"] == []


def test_the_command_writes_terms_that_can_be_read(fedsynth_json, fedsynth, tmp_path):
    out = tmp_path / "app"
    words = ["federate", "app", "fedavg", "--rounds", "3", "--set", "train-client.learning_rate=0.05"]
    said = fedsynth_json(
        *words, "--clients", "north,south", "--least-clients", "1", "--wait", "90", "--signed", "-o", out
    )
    terms = read_terms(terms_in_app(out))
    assert (terms.clients, terms.least_clients, terms.wait, terms.signed) == (("north", "south"), 1, 90.0, True)
    assert (terms.recipe.rounds, terms.recipe.section("train-client")["learning_rate"]) == (3, 0.05)
    assert said["terms_sha256"] == terms.digest
    code, _, err = fedsynth(*words, "--clients", "2", "-o", out)
    assert code == 3
    assert "already exists" in err
    fedsynth_json(*words, "--clients", "2", "--force", "-o", out)
    assert read_terms(terms_in_app(out)).clients == ("00", "01")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--clients", "a,a"], "each once"),
        (["--clients", "a,../b"], "client name"),
        (["--clients", "a,b", "--least-clients", "3"], "least_clients"),
        (["--clients", "a,b", "--wait", "0"], "wait"),
        (["--clients", "a,b", "--set", "nonsense=1"], "stage.key=value"),
    ],
)
def test_terms_that_make_no_sense_are_refused(fedsynth, tmp_path, words, said):
    code, _, err = fedsynth("federate", "app", "fedavg", *words, "-o", tmp_path / "app")
    assert code == 2
    assert said in err
    assert not (tmp_path / "app").exists()
