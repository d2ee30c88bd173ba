"""A small private run with synthetic images, its page, and pages taken apart."""

from html.parser import HTMLParser

import pytest

SMALL = [
    "partition.clients=2", "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null",
    "encode.images_per_class=1", "encode.points=1", "encode.batches=1", "encode.image_steps=2", "encode.model_steps=1",
    "aggregate.server_steps=2", "encode.privacy_rounds=2",
]  # fmt: skip
VOID = {"meta", "link", "img", "br", "hr"}


class Page(HTMLParser):
    """A page as a list of elements (name, attributes, text of its own), and all of its text."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.text, self._open = [], "", []
        self.feed(html)
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), (tag, names)
        self.elements.append([tag, dict(attributes), ""])
        if tag not in VOID:
            self._open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag, attributes):
        self.elements.append([tag, dict(attributes), ""])

    def handle_endtag(self, tag):
        name, _ = self._open.pop()
        assert name == tag, f"<{name}> ended by </{tag}>"

    def handle_data(self, data):
        if self._open and self._open[-1][0] != "style":
            self.elements[self._open[-1][1]][2] += data
            self.text += data

    def all(self, tag):
        return [(attributes, text) for name, attributes, text in self.elements if name == tag]


@pytest.fixture(scope="session")
def read_page():
    return lambda path: Page(path.read_text())


@pytest.fixture(scope="session")
def private_run(tmp_path_factory, run_on_one_worker):
    """FedLAP-DP in miniature: noise, images and two rounds."""
    from stages.recipes.recipe import change, load_recipe

    folder = tmp_path_factory.mktemp("private") / "run"
    run_on_one_worker(change(load_recipe("fedlap-dp"), SMALL, 2), folder, seed=3)
    return folder


@pytest.fixture(scope="session")
def rich_page(private_run, tmp_path_factory):
    """Every section filled: what only a private report has among them."""
    from stages.report.page import report

    out = tmp_path_factory.mktemp("page") / "report.html"
    report(private_run, out, delta=1e-5, private=True)
    return out


@pytest.fixture
def page(fedsynth, read_page, tmp_path):
    """Call `report` with these arguments; returns the page, taken apart."""

    def make(run, *arguments, code=0):
        out = tmp_path / "report.html"
        found, _, err = fedsynth("report", run, "-o", out, "--force", *arguments)
        assert found == code, err
        return read_page(out)

    return make
