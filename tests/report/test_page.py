"""The page: whole, alone, the same every time, and telling what the files tell."""

import hashlib
import itertools
import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from stages.words import human_bytes

SECTIONS = ["verdict", "accuracy", "epsilon", "left", "discloses", "images", "lineage", "made"]


def test_it_needs_nothing_from_elsewhere(rich_page, read_page):
    page = read_page(rich_page)
    assert {"script", "iframe", "object", "embed", "base", "form"}.isdisjoint(name for name, _, _ in page.elements)
    for name, attributes, _ in page.elements:
        for key, value in attributes.items():
            assert not key.startswith("on"), (name, key)
            if key in ("src", "href", "xlink:href", "action", "poster", "srcset"):
                assert value.startswith(("#", "data:")), (name, key, value)
            assert key == "content" or "url(" not in (value or "")
    style = rich_page.read_text().split("<style>")[1].split("</style>")[0]
    assert "url(" not in style and "@import" not in style
    policy = next(a["content"] for a, _ in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.split(";")[0] == "default-src 'none'" and "script-src" not in policy


def test_whoever_listens_or_uses_keys_finds_the_way(rich_page, read_page):
    page = read_page(rich_page)
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes, _ in page.elements:
        for key in ("aria-labelledby", "aria-describedby"):
            assert set(attributes.get(key, "").split()) <= set(ids)
    links = [attributes["href"][1:] for attributes, _ in page.all("a")]
    assert links == ["main", *SECTIONS, "private"]
    assert [attributes["id"] for attributes, _ in page.all("section")] == [*SECTIONS, "private"]
    assert page.all("html")[0][0]["lang"] == "en"
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert len(page.all(landmark)) == 1
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(attributes.get("scope") in ("col", "row") for attributes, _ in page.all("th"))
    assert all(attributes["alt"] and attributes["width"] and attributes["height"] for attributes, _ in page.all("img"))
    pictures = [attributes for attributes, _ in page.all("svg")]
    assert all((a.get("role") == "img" and "aria-labelledby" in a) or a.get("aria-hidden") == "true" for a in pictures)
    levels = [int(name[1]) for name, _, _ in page.elements if re.fullmatch("h[1-6]", name)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_the_same_run_gives_the_same_bytes_wherever_it_stands(private_run, fedsynth, tmp_path, monkeypatch):
    copy = tmp_path / "elsewhere" / "another name"
    shutil.copytree(private_run, copy)
    monkeypatch.chdir(copy)
    for run, out in ((private_run, "a"), (copy, "b"), (".", "c")):
        code, _, err = fedsynth("report", run, "--delta", "1e-5", "-o", tmp_path / out)
        assert code == 0, err
    first, second, third = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == second == third
    for private in (private_run, copy, tmp_path):
        assert str(private).encode() not in first
    assert not re.search(rb"\b20\d\d-\d\d-\d\d\b|\d\d:\d\d:\d\d", first)


def test_it_says_what_the_files_say(finished_run, page):
    found = page(finished_run)
    outbox = finished_run / "clients/01/outbox"
    sizes = {path.name: path.stat().st_size for path in outbox.iterdir()}
    cells = [text for _, text in found.all("td")]
    for name, size in sizes.items():
        assert name in cells and f"{size:,}" in cells
    assert cells.count("num_examples, update") == 6 and cells.count("∞") == 6
    left = sum(path.stat().st_size for path in finished_run.glob("clients/*/outbox/*"))
    assert human_bytes(left) in [text for _, text in found.all("dd")]
    last = json.loads((finished_run / "metrics/round-0002.json").read_text())["accuracy"]
    assert f"{100 * last:.1f}%" in [text for _, text in found.all("dd")]
    stated = [text.strip() for _, text in found.all("dt")]
    assert "update" in stated and "num_examples" in stated and "radius" not in stated
    assert "Images like the private ones can often be reconstructed from it." in found.text
    assert "ε is ∞" in found.text


def test_epsilon_is_what_account_says(private_run, page, fedsynth_json):
    found = page(private_run, "--delta", "1e-5")
    for row in fedsynth_json("account", private_run, "--delta", "1e-5")["clients"]:
        if row["client"] != "server":
            for value in row["epsilon"].values():
                # Rounded up, in the third decimal.
                shown = [float(text) for _, text in found.all("td") if re.fullmatch(r"\d+\.\d{3}", text)]
                assert any(0 <= number - value < 0.001 for number in shown)
    asked = page(private_run)
    assert "make this page with --delta" in asked.text
    assert "finite" in [text for _, text in asked.all("td")]


def test_a_signature_costs_nothing(private_run, tmp_path, page, fedsynth):
    """An envelope has no privacy events, and needs none."""
    run = tmp_path / "signed"
    shutil.copytree(private_run, run)
    names = ["clients/00", "clients/01", "server"]
    for name in names:
        assert fedsynth("identity", "-o", run / name / "private/identity.json", "-q")[0] == 0
    roster = run / "public/roster.json"
    made = fedsynth("roster", *(run / name / "private/identity.json" for name in names), "-o", roster, "-q")
    assert made[0] == 0, made
    for path in sorted(run.glob("clients/*/outbox/*.safetensors")):
        assert fedsynth("sign", path, "--roster", roster, "-q")[0] == 0
    before, after = page(private_run, "--delta", "1e-5"), page(run, "--delta", "1e-5")
    assert "to the server itself ε is ∞" not in after.text and "Exposure: limited: ε = " in after.text
    assert [text for _, text in before.all("dd")][-1] == [text for _, text in after.all("dd")][-1]


def test_what_was_measured_on_private_data_is_left_out(run_copy, page, tmp_path):
    path = run_copy / "metrics/round-0002.json"
    metrics = json.loads(path.read_text())
    path.write_text(json.dumps(metrics | {"custody": "private"}))
    counts = json.loads((run_copy / "simulation/partition.json").read_text())["clients"]["00"]
    accuracy = f"{100 * metrics['accuracy']:.1f}%"
    public = page(run_copy)
    assert accuracy not in public.text and "measured on private data" in public.text
    assert not public.all("path") or "accuracy-rounds-title" not in [a.get("id") for _, a, _ in public.elements]
    private = page(run_copy, "--private")
    assert accuracy in private.text and "It may not leave." in private.text
    cells = [text for _, text in private.all("td")]
    assert all(str(count) in cells for count in counts)
    assert (tmp_path / "report.html").stat().st_mode & 0o077 == 0


def forget(run, client, round):
    """As if the client had not taken part in its last round."""
    place = run / "clients" / client
    message = place / f"outbox/message-{round:04}.safetensors"
    record = run / f"server/private/model-{round:04}.lineage.json"
    made = json.loads(record.read_text())
    digest = hashlib.sha256(message.read_bytes()).hexdigest()
    made["inputs"] = [entry for entry in made["inputs"] if entry["sha256"] != digest]
    record.write_text(json.dumps(made))
    message.unlink()
    lines = (place / "egress.jsonl").read_text().splitlines(keepends=True)
    (place / "egress.jsonl").write_text("".join(lines[:-1]))


def test_under_secret_sampling_it_does_not_depend_on_who_took_part(run_copy, fedsynth, tmp_path):
    recipe = run_copy / "simulation/recipe.yaml"
    recipe.write_text(recipe.read_text().replace("weights: uniform", "rule: dp-mean"))
    assert "dp-mean" in recipe.read_text()
    for out, client in (("all", None), ("two", "02"), ("one", "00")):
        if client:
            forget(run_copy, client, 2)
        code, _, err = fedsynth("report", run_copy, "-o", tmp_path / out)
        assert code == 0, err
        assert fedsynth("report", run_copy, "--private", "-o", tmp_path / f"{out}-private")[0] == 0
    pages = {out: (tmp_path / out).read_bytes() for out in ("all", "two", "one")}
    assert pages["all"] == pages["two"] == pages["one"]
    assert b"message-" not in pages["all"]
    assert len({(tmp_path / f"{out}-private").read_bytes() for out in pages}) == 3


def test_a_run_that_fails_the_audit_has_a_page_that_says_so(run_copy, page, fedsynth, tmp_path):
    file = run_copy / "clients/01/outbox/message-0002.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    (run_copy / "clients/00/outbox/notes.txt").write_text("more")
    (run_copy / "clients/02/outbox/message-0001.safetensors").unlink()
    found = page(run_copy, code=5)
    assert "FAIL" in found.text and "PASS" not in found.text
    paths = [text for attributes, text in found.all("span") if attributes.get("class") == "path"]
    assert "clients/01/outbox/message-0002.safetensors" in paths
    assert str(tmp_path) not in found.text
    states = [text for _, text in found.all("strong")]
    assert states.count("not in the ledger") == 1 and states.count("sent or unfinished") == 1
    code, _, err = fedsynth("report", run_copy, "-o", tmp_path / "again.html")
    assert code == 5 and "the page is written" in err


def test_a_ledger_that_cannot_be_read_hides_nothing_of_the_rest(run_copy, page):
    book = run_copy / "clients/01/egress.jsonl"
    book.write_text(book.read_text().replace('"seq":1', '"seq":7'))
    found = page(run_copy, "--delta", "1e-5", code=5)
    assert "FAIL" in found.text
    assert [text.strip() for _, text in found.all("td")].count("message-0001.safetensors") == 3


def test_what_a_file_says_is_text(run_copy, page):
    recipe = run_copy / "simulation/recipe.yaml"
    hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    said = yaml.safe_load(recipe.read_text()) | {"about": hostile, "evil": hostile}
    recipe.write_text(yaml.safe_dump(said))
    (run_copy / "clients/00/outbox/<b onclick=x>.txt").write_text("more")
    found = page(run_copy, code=5)
    assert not found.all("script") and not found.all("b") and not found.all("img")
    assert hostile in found.text and "<b onclick=x>.txt" in found.text


def test_a_run_of_which_little_is_there(run_copy, page):
    for folder in ("metrics", "simulation", "public"):
        shutil.rmtree(run_copy / folder)
    found = page(run_copy, code=5)  # models name an input that is gone
    assert "Nothing was evaluated." in found.text and "no recipe" in found.text


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere", "-o", "r.html"], 3, "is no folder"),
        (["{run}/clients", "-o", "r.html"], 3, "neither a run folder or a home"),
        (["{run}", "-o", "r.html", "--delta", "0"], 2, "--delta must lie between 0 and 1"),
        (["{run}", "-o", "r.html", "--round", "9"], 2, "nothing was sent then. Rounds: 1, 2"),
        (["{run}", "-o", "{run}/server/outbox/r.html"], 2, "may not be in an outbox"),
        (["{run}", "-o", "{run}/public/test.parquet"], 3, "--force"),
    ],
)
def test_what_cannot_be_done_is_reported_and_nothing_is_written(
    finished_run, fedsynth, tmp_path, monkeypatch, arguments, code, said
):
    monkeypatch.chdir(tmp_path)
    found, _, err = fedsynth("report", *(word.format(run=finished_run) for word in arguments))
    assert (found, said in err) == (code, True), err
    assert not (tmp_path / "r.html").exists()


def test_torch_is_not_needed(private_run, tmp_path):
    code = (
        "import sys\nfrom fedsynth_cli.app import run\n"
        f"assert run(['report', {str(private_run)!r}, '--private', '-o', {str(tmp_path / 'r.html')!r}]) == 0\n"
        "assert {'torch', 'matplotlib', 'opacus', 'diffusers'}.isdisjoint(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
