"""Conventions that people and pipelines expect of any command line."""

import json
import subprocess
import sys

import pytest

from artifacts.errors import InputError


@pytest.mark.parametrize("words", [["-h"], ["evaluate", "-h"], ["secagg", "-h"], ["account", "-h"]])
def test_h_is_help(fedsynth, words):
    code, out, _ = fedsynth(*words)
    assert code == 0
    assert "Usage: fedsynth" in out


@pytest.mark.parametrize(
    ("words", "code"),
    [(["inspect", "nowhere.safetensors"], InputError.exit_code), (["inspect"], 2), (["evaluate", "x", "--gapp"], 2)],
)
def test_an_error_is_json_too_where_json_is_asked_for(fedsynth, tmp_path, monkeypatch, words, code):
    monkeypatch.chdir(tmp_path)
    found, out, err = fedsynth(*words, "--json")
    said = json.loads(out)
    assert (found, said["code"]) == (code, code)
    assert said["error"] in err


def test_an_error_without_json_leaves_stdout_empty(fedsynth, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, out, err = fedsynth("inspect", "nowhere.safetensors")
    assert out == ""
    assert "nowhere.safetensors" in err


def test_a_reader_that_stops_reading_is_no_failure():
    """As `fedsynth recipe list | head -1`: the pipe is closed before anything is written."""
    code = "import sys; from fedsynth_cli.app import main; sys.argv = ['fedsynth', 'recipe', '--help']; main()"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child.stdout.close()
    _, err = child.communicate()
    assert (child.returncode, err) == (0, "")


def test_a_table_in_a_pipe_has_one_line_a_row(fedsynth, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    code, out, _ = fedsynth("recipe", "list")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert len(names) == len(set(names))
    assert "fedssyn-comparison" in names
