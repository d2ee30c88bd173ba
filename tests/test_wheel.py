"""The wheel holds the three packages and nothing else, and works from an empty folder without the source tree."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def installed(folder, wheel, *pip_options):
    """A new virtual environment with the wheel in it; returns its `bin`."""
    venv.create(folder, with_pip=False)  # to put pip into it takes longer than all the rest
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "--disable-pip-version-check"]
    command = [*pip, "install", "-q", *pip_options, wheel]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def clean():
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


def call(binaries, *arguments, cwd):
    done = subprocess.run([binaries / "fedsynth", *arguments], cwd=cwd, env=clean(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_three_packages_and_every_file_of_theirs(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"fedsynth_cli", "stages", "artifacts"}
    ours = (p for package in ("fedsynth_cli", "stages", "artifacts") for p in (ROOT / package).rglob("*"))
    wanted = {p.relative_to(ROOT).as_posix() for p in ours if p.is_file() and "__pycache__" not in p.parts}
    assert wanted <= names
    assert "stages/recipes/fedavg.yaml" in wanted


def test_the_wheel_runs_from_an_empty_folder(wheel, tmp_path):
    """The dependencies come from this environment's site-packages, whose editable install a plain path hides."""
    binaries = installed(tmp_path / "env", wheel, "--no-deps")
    site = next((tmp_path / "env/lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    where = subprocess.run(
        [binaries / "python", "-c", "import fedsynth_cli, stages, artifacts; print(stages.__file__)"],
        cwd=empty, env=clean(), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert where.startswith(str(site)), "the source tree was imported, not the wheel"
    call(binaries, "partition", "digits", "--clients", "2", "-o", "run", cwd=empty)
    call(
        binaries,
        "init-model",
        "--arch",
        "softmax",
        "--like",
        "run/public/test.parquet",
        "-o",
        "m.safetensors",
        cwd=empty,
    )
    assert "weights of a network" in call(binaries, "inspect", "m.safetensors", cwd=empty)
    assert "fedavg" in call(binaries, "recipe", "fedavg", "--format", "sh", cwd=empty)


@pytest.mark.slow
def test_the_wheel_installs_with_all_its_dependencies_in_an_empty_environment(wheel, tmp_path):
    binaries = installed(tmp_path / "env", wheel, "-c", ROOT / "constraints.txt")
    out = call(binaries, "run", "fedavg", "--rounds", "1", "-o", "run", cwd=tmp_path)
    assert "after 1 rounds" in out
