"""docs/own-network.md, «your network in five minutes»: its files and commands, as a reader would type them."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

PAGE = Path(__file__).parents[2] / "docs/own-network.md"


def blocks():
    """The indented blocks of the page, in order."""
    text = PAGE.read_text()
    return [re.sub(r"^    ", "", found, flags=re.M) for found in re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.M)]


@pytest.mark.slow
def test_its_files_and_commands(fedsynth, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = []
    for block in blocks():
        block = block.strip("\n")
        if named := re.match(r"# (\S+\.(?:py|yaml))\n", block):
            Path(named[1]).write_text(block + "\n")
        else:
            for line in block.splitlines():
                if "…" not in line:  # a pattern, not a command
                    code, _, err = fedsynth(*shlex.split(line)[1:])
                    assert code == 0, f"{line}\n{err}"
                    done.append(line.split()[1])
    assert done == ["partition", "init-model", "run", "sign", "verify", "audit", "recipe", "federate"]
    made = Path("Makefile.own").read_text()
    assert f"FEDSYNTH ?= fedsynth --plugin {tmp_path / 'my_net.py'}\n" in made
    (record,) = yaml.safe_load(Path("app/fedsynth_app/federation.yaml").read_text())["recipe"]["plugins"]
    assert (
        re.fullmatch("my_net sha256:[0-9a-f]{64}", record)
        and str(tmp_path) not in Path("app/fedsynth_app/federation.yaml").read_text()
    )
