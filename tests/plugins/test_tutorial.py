"""docs/own-network.md, «your network in five minutes»: its files and commands, as a reader would type them."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

PAGE = Path(__file__).parents[2] / "docs/own-network.md"
BEFORE = ["partition", "init-model", "run", "sign", "verify", "audit", "recipe"]
FEDERATION = ["federate"] * 4 + ["roster", "cp", "cp", "cp", "mkdir", *["until"] * 3, "audit", "audit", "verify"]


def blocks():
    """The indented blocks of the page, in order."""
    text = PAGE.read_text()
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.M)
    return [re.sub(r"^    ", "", block, flags=re.M).strip("\n") for block in found]


def commands():
    """The lines of all blocks that are no files, but for patterns."""
    lines = [line for block in blocks() if not named(block) for line in block.splitlines()]
    return [line for line in lines if "…" not in line]


def named(block):
    return re.match(r"# (\S+\.(?:py|yaml))\n", block)


def word(line):
    """What a line does: the command after `fedsynth`, or the shell's."""
    first, second = line.split()[:2]
    return second if first == "fedsynth" else first


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A folder with the files of the page; its commands up to the federation, and those of it."""
    monkeypatch.chdir(tmp_path)
    for block in blocks():
        if found := named(block):
            Path(found[1]).write_text(block + "\n")
    first = next(number for number, line in enumerate(commands()) if "federate app" in line)
    return commands()[:first], commands()[first:]


@pytest.mark.slow
def test_its_commands_up_to_the_federation(fedsynth, page, tmp_path):
    for line in page[0]:
        code, _, err = fedsynth(*shlex.split(line)[1:])
        assert code == 0, f"{line}\n{err}"
    assert [word(line) for line in page[0]] == BEFORE
    assert f"FEDSYNTH ?= fedsynth --plugin {tmp_path / 'my_net.py'}\n" in Path("Makefile.own").read_text()


@pytest.mark.slow
def test_its_federation_is_signed_audited_and_of_that_very_file(page, command_path, tmp_path):
    """In a shell; what waits for others (`until`) is started at once, as in three terminals."""
    there = os.environ | {"PATH": command_path}

    def start(line):
        pipe = subprocess.PIPE
        return subprocess.Popen(["bash", "-c", line], env=there, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def ended(line, process):
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, f"{line}\n{said}"
        return said

    before, federation = page
    assert [word(line) for line in federation] == FEDERATION
    assert ended(before[0], start(before[0])) is not None  # the archives of the hospitals
    loops = [line for line in federation if line.startswith("until")]
    ready = federation.index(loops[0])
    for line in federation[:ready]:
        ended(line, start(line))
    terms = Path("app/fedsynth_app/federation.yaml").read_text()
    (record,) = yaml.safe_load(terms)["recipe"]["plugins"]
    assert re.fullmatch("my_net sha256:[0-9a-f]{64}", record) and str(tmp_path) not in terms
    shutil.copytree(tmp_path, tmp_path / "before")  # for the home below, whose file is another
    for line, process in [(line, start(line)) for line in loops]:
        ended(line, process)
    said = [ended(line, start(line)) for line in federation[ready + len(loops) :]]
    assert "PASS, anchored" in said[0] and "2 identical" in said[0]
    assert "PASS for the server" in said[1] and "2 identical" in said[1]
    assert "hospital-a" in said[2] and "round 2" in said[2]
    other = tmp_path / "before/my_net.py"
    other.write_text(other.read_text() + "# another\n")
    process = start(f"cd before; {federation[ready + 1].removeprefix('until ').partition(';')[0]}")
    refusal, _ = process.communicate(timeout=300)
    assert process.returncode == 2 and record in refusal and refusal.count("my_net sha256:") == 2
    assert not list((tmp_path / "before/hospital-a/clients/hospital-a/private").glob("update-*"))
