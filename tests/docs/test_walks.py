"""The pages for people, typed as they are: each command must succeed, and say what the page says that it says."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NUMBERS = {"five": 5, "six": 6, "thirteen": 13}


def lines_of(page):
    return [line.strip() for line in (DOCS / page).read_text().splitlines() if line.startswith("    ")]


@pytest.fixture
def walk(fedsynth, tmp_path, monkeypatch, command_path):
    """Type the lines of a page in an empty folder; returns what each printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", command_path)

    def typed(page):
        said = {}
        for line in lines_of(page):
            if line.startswith("fedsynth "):
                code, out, err = fedsynth(*shlex.split(line)[1:])
            else:
                done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=280)
                code, out, err = done.returncode, done.stdout, done.stderr
            assert code == 0, f"{line}\n{out}{err}"
            said[line] = out
        return said

    return typed


@pytest.mark.parametrize("page", ["one-client.md", "researcher.md", "data-protection-officer.md"])
def test_the_number_of_commands_is_the_one_that_the_page_says(page):
    (word,) = re.findall(r"\b(five|six|thirteen)(?:\s+fedsynth)?\s+commands", (DOCS / page).read_text())
    typed = [line for line in lines_of(page) if line.startswith("fedsynth ")]
    looking = [line for line in typed if not line.endswith("-o run")]  # the officer's run is made by somebody else
    assert len(looking) == NUMBERS[word]


def test_one_client_by_files(walk, tmp_path, digits):
    """From a folder of images to a signed message, verified by the other side."""
    from PIL import Image

    images, labels = digits.images, digits.labels
    for folder, rows in (("images", range(40)), ("test-images", range(40, 70))):
        for row in rows:
            label = int(labels[row])
            if label < 3:
                (tmp_path / folder / f"class-{label}").mkdir(parents=True, exist_ok=True)
                picture = Image.fromarray(images[row].reshape(8, 8)).resize((28, 28))
                picture.save(tmp_path / folder / f"class-{label}" / f"{row:03}.png")
    said = list(walk("one-client.md").values())
    assert "PASS" in said[-1]
    assert "north" in said[-2]
    sent = {path.name for path in (tmp_path / "hospital/clients/north/outbox").iterdir()}
    assert sent == {"message-0001.safetensors", "message-0001.safetensors.intoto.jsonl"}


@pytest.mark.slow
def test_a_researcher(walk):
    said = walk("researcher.md")
    assert "PASS" in list(said.values())[-1]


@pytest.mark.slow
def test_a_data_protection_officer(walk, tmp_path):
    said = walk("data-protection-officer.md")
    assert "PASS" in said["fedsynth audit run"]
    assert (tmp_path / "run-report.html").exists()


@pytest.mark.slow
def test_a_pipeline_engineer(walk):
    said = list(walk("pipeline-engineer.md").values())
    assert 0 < json.loads(said[-2])["accuracy"] <= 1
    assert json.loads(said[-1])
