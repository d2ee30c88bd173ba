"""The command: determinism, what is left out, and what it refuses."""

import json
import shutil

import pytest

from artifacts.digests import sha256_file
from stages.export.document import documents

FOLDERS = [name for name, one in documents().items() if "folder" in one.subjects and "key" not in one.needs]
PLAIN = [name for name in FOLDERS if name != "croissant"]  # of a run without synthetic sets
OUT = {name: f"out{one.endings[0]}" if one.endings else "out" for name, one in documents().items()}


def contents(path):
    paths = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return {str(p.relative_to(path)): p.read_bytes() for p in paths}


@pytest.fixture
def with_a_set(run_copy, forge):
    """A run whose first client also sent synthetic images, so that every format finds what it describes."""
    forge.write_dataset(
        run_copy / "clients/00/outbox/synthetic.parquet", custody="outbound", client="00", stage="synthesize",
        method="vae", disclosures=("class_set", "derived_images"),
    )  # fmt: skip
    return run_copy


@pytest.mark.parametrize("name", FOLDERS)
def test_the_same_files_give_the_same_bytes_wherever_they_are(fedsynth, said, with_a_set, tmp_path, name):
    moved = tmp_path / "elsewhere/run"
    shutil.copytree(with_a_set, moved)
    found = []
    for number, folder in enumerate((with_a_set, moved)):
        out = tmp_path / str(number) / OUT[name]
        code, _, err = fedsynth("export", folder, "--format", name, "-o", out, *said(name))
        assert code == 5, err  # the forged images are no work of `synthesize`
        found.append(contents(out))
    assert found[0] == found[1]
    text = str(found[0])
    assert str(tmp_path) not in text
    assert "private/" not in text


@pytest.mark.parametrize("name", PLAIN)
def test_no_seed_no_private_metric_and_no_rejected_file_is_in_it(fedsynth, said, finished_run, tmp_path, name):
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    (run / "metrics/attack.json").write_text(json.dumps({"custody": "private", "attack": "x", "secret-figure": 0.987}))
    private = run / "clients/00/private"
    digest = sha256_file(private / "data.parquet")
    out = tmp_path / OUT[name]
    code, _, err = fedsynth("export", run, "--format", name, "-o", out, *said(name))
    assert code == 0, err
    text = str(contents(out))
    for secret in ("0.987", "secret-figure", digest, (private / "client.key").read_bytes().hex(), '"seed"'):
        assert secret not in text


def forget(run, client):
    """As if the client had not taken part in round 2."""
    place = run / "clients" / client
    message, record = place / "outbox/message-0002.safetensors", run / "server/private/model-0002.lineage.json"
    made = json.loads(record.read_text())
    made["inputs"] = [entry for entry in made["inputs"] if entry["sha256"] != sha256_file(message)]
    record.write_text(json.dumps(made))
    message.unlink()
    lines = (place / "egress.jsonl").read_text().splitlines(keepends=True)
    (place / "egress.jsonl").write_text("".join(lines[:-1]))


@pytest.mark.parametrize("name", PLAIN)
def test_under_secret_sampling_it_does_not_depend_on_who_took_part(fedsynth, said, run_copy, tmp_path, name):
    recipe = run_copy / "simulation/recipe.yaml"
    recipe.write_text(recipe.read_text().replace("weights: uniform", "rule: dp-mean"))
    found = []
    for number, client in enumerate((None, "02", "00")):
        if client is not None:
            forget(run_copy, client)
        out = tmp_path / str(number) / OUT[name]
        code, _, err = fedsynth("export", run_copy, "--format", name, "-o", out, *said(name))
        assert code == 0, err
        found.append(contents(out))
    assert found[0] == found[1] == found[2]
    assert "message-" not in str(found[0])


def test_a_file_that_is_private_is_refused(fedsynth, finished_run, tmp_path):
    update = finished_run / "clients/00/private/update-0001.safetensors"
    code, _, err = fedsynth("export", update, "--format", "dp-card", "--delta", "1e-5", "-o", tmp_path / "card.md")
    assert (code, "is private: it stays where it is" in err) == (3, True)


@pytest.mark.parametrize(
    ("path", "words", "code", "said"),
    [
        ("empty", "--format dp-card --delta 1e-5 -o card.md", 3, "neither a run folder"),
        ("nowhere", "--format dp-card --delta 1e-5 -o card.md", 3, "no such file"),
        ("text.safetensors", "--format dp-card --delta 1e-5 -o card.md", 3, "is not a whole fedsynth artifact"),
        ("text.safetensors", "--format satre -o record.json", 3, "is about a folder"),
        ("run", "--format satre -o record.md", 2, "ends in .json"),
        ("run", "--format nonsense -o record.json", 2, "is not one of 'dp-card'"),
        ("run", "--format dp-card -o card.md", 2, "needs --delta"),
        ("run", "--format dp-card --delta 2 -o card.md", 2, "between 0 and 1"),
        ("run", "--format satre --license x -o record.json", 2, "--license goes with --format croissant"),
        ("run", "--format hf-card --license x -o README.md", 3, "is about one file"),
        ("run", "--format satre -o run/clients/00/outbox/record.json", 2, "may not be in an outbox"),
        ("run", "--format satre -o run", 2, "ends in .json"),
        ("run", "--format satre -o taken.json", 3, "already exists. Add --force"),
        ("run/public/model-0000.safetensors", "--format dp-card --delta 1e-5 --trust a -o c.md", 2, "for the audit of"),
        ("run", "--format croissant --license x --date y --publisher z --url u -o c.json", 3, "dataset or a surrogate"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_a_line_or_two(fedsynth, run_copy, tmp_path, monkeypatch, path, words, code, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.safetensors").write_text("hello")
    (tmp_path / "taken.json").write_text("{}")
    found, _, err = fedsynth("export", path, *words.split())
    assert found == code, err
    assert said in err
    assert len(err.strip().splitlines()) <= 2
    assert (tmp_path / "taken.json").read_text() == "{}"


def test_a_failed_audit_is_in_the_document_and_in_the_exit_code(fedsynth, run_copy, tmp_path):
    (run_copy / "clients/00/outbox/notes.txt").write_text("hello")
    out = tmp_path / "record.json"
    code, _, _ = fedsynth("export", run_copy, "--format", "satre", "-o", out)
    assert code == 5
    assert json.loads(out.read_text())["audit"]["verdict"].startswith("FAIL")


def test_an_outbox_alone_is_incomplete(fedsynth, finished_run, tmp_path):
    out = tmp_path / "record.json"
    code, _, _ = fedsynth("export", finished_run / "clients/00/outbox", "--format", "satre", "-o", out)
    record = json.loads(out.read_text())
    assert code == 6
    assert record["audit"]["records"]["word"] == "incomplete"
    assert {release["decision"]["by"] for release in record["releases"]} == {None}
