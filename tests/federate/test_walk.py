"""docs/federate.md and examples/slurm as they are: executed, each party where no network is."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOSPITALS = ("hospital-a", "hospital-b", "hospital-c")


def commands():
    """Of the section of the page, in order."""
    page = (ROOT / "docs/federate.md").read_text()
    section = page.split("## Without a network\n")[1].split("\n### ")[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    ")]


def no_network():
    """What runs a command in a network namespace with nothing in it, if this machine allows that."""
    words = ["unshare", "--map-root-user", "--net"]
    usable = shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0
    return words if usable else []


def test_there_are_few_commands_and_all_are_ours():
    assert len(commands()) <= 15
    assert {line.split()[0] for line in commands()} <= {"fedsynth", "cp", "until"}


@pytest.fixture
def walk(tmp_path, command_path, fedsynth):
    """Stand-ins for the hospitals' archives, and a shell in their folder."""
    assert fedsynth("partition", "digits", "--clients", 3, "-o", tmp_path / "archives")[0] == 0
    (tmp_path / "drop").mkdir()
    for number, name in enumerate(("scans-a", "scans-b", "scans-c")):
        (tmp_path / name).mkdir()
        shutil.copy(tmp_path / f"archives/clients/0{number}/private/data.parquet", tmp_path / name / "train.parquet")
    (tmp_path / "test-images").mkdir()
    shutil.copy(tmp_path / "archives/public/test.parquet", tmp_path / "test-images/train.parquet")

    def start(line, prefix=(), **more):
        known = os.environ | {"PATH": f"{tmp_path}/bin:{command_path}"} | more
        shell = [*prefix, "bash", "-c", line]
        pipe = subprocess.PIPE
        return subprocess.Popen(shell, cwd=tmp_path, env=known, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    return tmp_path, start


def prepare(start):
    """The commands of the page up to the loops, with a small network; the loops that are left."""
    lines = [line.replace("--rounds 3", "--rounds 2 --set init-model.arch=softmax --set init-model.width=null "
                          "--set init-model.depth=null") for line in commands()]  # fmt: skip
    loops = [line for line in lines if line.startswith("until ")]
    for line in lines[: -len(loops)]:
        process = start(line)
        out, _ = process.communicate()
        assert process.returncode == 0, f"{line}\n{out}"
    return loops


def check(folder):
    assert (folder / "server/server/outbox/model-0002.safetensors").exists()
    for name in HOSPITALS:
        sent = folder / f"{name}/clients/{name}/outbox/message-0002.safetensors"
        assert sent.read_bytes() == (folder / f"server/clients/{name}/outbox" / sent.name).read_bytes()


@pytest.mark.slow
def test_the_page(walk):
    folder, start = walk
    loops = prepare(start)
    assert len(loops) == 4
    local = [re.sub("sleep 60", "sleep 1", line).replace("/mnt/drop", "drop") for line in loops]
    processes = [start(line, no_network()) for line in local]
    for process in processes:
        out, _ = process.communicate(timeout=400)
        assert process.returncode == 0, out
        assert "refused: it" not in out
    check(folder)


@pytest.mark.slow
def test_the_jobs_for_slurm(walk):
    """With a stand-in for sbatch that writes down what is to be started; the jobs themselves are run as they are."""
    folder, start = walk
    prepare(start)
    (folder / "bin").mkdir()
    queue = folder / "queue"
    sbatch = folder / "bin/sbatch"
    sbatch.write_text(f'#!/bin/bash\necho "$HOME_FOLDER ${{@: -1}}" >> {queue}\n')
    sbatch.chmod(0o755)
    scripts = ROOT / "examples/slurm"
    waiting = [("server", scripts / "server.sbatch"), *((name, scripts / "hospital.sbatch") for name in HOSPITALS)]
    started = 0
    while waiting:
        home, script = waiting.pop(0)
        process = start(f"bash {script}", HOME_FOLDER=str(home), DROP="drop", SCRIPT=str(script))
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, out
        started += 1
        assert started < 60
        waiting += [tuple(line.split()) for line in queue.read_text().splitlines()] if queue.exists() else []
        queue.unlink(missing_ok=True)
    check(folder)
