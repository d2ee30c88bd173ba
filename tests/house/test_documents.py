"""Links in the documents lead somewhere, and every page can be reached."""

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
