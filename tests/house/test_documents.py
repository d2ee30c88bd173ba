"""Links in the documents lead somewhere, every page can be reached, and tests that the privacy page names exist."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]+)?\)")


def anchors(page):
    """The ids of a page's headings, as GitHub and mkdocs make them."""
    found = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_exist(page):
    for target, anchor in _LINK.findall(page.read_text()):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = page.parent / target
        assert path.exists(), f"{page.name}: {target}"
        if anchor and path.suffix == ".md":
            assert anchor[1:] in anchors(path), f"{page.name}: {target}{anchor}"


def test_every_page_is_in_the_index_and_on_the_site():
    index = {target for target, _ in _LINK.findall((ROOT / "docs/index.md").read_text())}
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = {
        page
        for section in site
        for pages in section.values()
        for page in ([pages] if isinstance(pages, str) else pages)
    }
    pages = {page.name for page in ROOT.glob("docs/*.md")}
    assert index == pages - {"index.md"}
    assert listed == pages


def test_modules_that_the_pages_name_are_there():
    """By the end of their path; whoever changes a file's name is shown where it is written about."""
    there = {
        f"/{file.relative_to(ROOT).as_posix()}"
        for top in ("artifacts", "stages", "fedsynth_cli", "tests", "examples", "benchmarks", "reproduce")
        for file in (ROOT / top).rglob("*.py")
    }
    named = {(page.name, name) for page in PAGES for name in re.findall(r"`([a-z_][a-z0-9_/]*\.py)`", page.read_text())}
    assert len(named) > 20
    assert {(page, name) for page, name in named if not any(file.endswith(f"/{name}") for file in there)} == set()


def rows_of_rules():
    """Of the tables of docs/privacy.md: the rules of each row, and its last column with the files that it goes by."""
    text = (ROOT / "docs/privacy.md").read_text().partition("## Rule by rule")[2].partition("\n## ")[0]
    by_default = {"rule by rule": (), "between files": ("privacy/test_seams_*.py",)}
    by_default["over flower"] = ("federate/test_hostile_server.py",)
    table = "rule by rule"
    for line in text.splitlines():
        table = next((name for name in by_default if line.lower().startswith(name)), table)
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0][:1].isdigit():
            rules = [int(number) for number in re.match(r"[\d, ]+", cells[0])[0].replace(" ", "").strip(",").split(",")]
            yield pytest.param(rules, cells[-1], by_default[table], id=f"{table}-{cells[0][:30]}")


def test_every_rule_of_the_privacy_contract_has_a_row():
    assert {rule for row in rows_of_rules() for rule in row.values[0]} == set(range(1, 35))


@pytest.mark.parametrize(("rules", "named", "by_default"), list(rows_of_rules()))
def test_every_test_that_it_names_is_there(rules, named, by_default):
    """`folder/test_x.py` words…: a test of that file, or of the others that the row names; … stands for any letters."""
    folder, globs = "", list(by_default)
    for path in re.findall(r"`([\w/*]+\.py)`", named):
        folder = path.rpartition("/")[0] or folder
        globs.append(path if "/" in path else f"{folder}/{path}")
    files = [file for glob in globs for file in (ROOT / "tests").glob(glob)]
    assert len(files) >= len(globs) > 0, rules
    defined = "\n".join(re.findall(r"(?:def test_|class )(\w+)", "\n".join(file.read_text() for file in files)))
    for words in re.findall(r"(?:…?[a-z0-9]+_[\w…]*|Test\w+)", re.sub(r"`[^`]*`", "", named)):
        assert re.search("^" + words.replace("…", r"\w*") + "$", defined, re.MULTILINE), (rules, words)
