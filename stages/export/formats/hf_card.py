"""`--format hf-card`: the README of a dataset or a model on the Hugging Face hub, with its YAML front matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stages.export.document import Document
from stages.export.text import as_markdown, plain, table

if TYPE_CHECKING:
    from stages.export.facts import Facts
    from stages.export.sets import CatalogueEntry


def _make(facts: Facts) -> Mapping[str, bytes]:
    from stages.export.sets import SETS, described

    return {"": as_markdown(_lines(facts, described(facts, (*SETS, "model"))[0]))}


def _front_matter(facts: Facts, one: CatalogueEntry) -> dict[str, Any]:
    about = one.metadata
    tags = ["federated-learning", "fedsynth", *(["differential-privacy"] if about.privacy else [])]
    front: dict[str, Any] = {"license": "other", "license_name": "as-linked", "license_link": facts.said.license}
    if about.kind == "model":
        return front | {"library_name": "fedsynth", "pipeline_tag": "image-classification", "tags": tags}
    return front | {
        "pretty_name": facts.name,
        "task_categories": ["image-classification"],
        "tags": [*tags, "synthetic"],
        "configs": [{"config_name": "default", "data_files": one.where}] if about.kind == "dataset" else [],
    }


def _lines(facts: Facts, one: CatalogueEntry) -> Iterator[str]:
    import yaml

    about = one.metadata
    front = {name: value for name, value in _front_matter(facts, one).items() if value != []}
    yield "---"
    yield yaml.safe_dump(front, sort_keys=False, allow_unicode=True).rstrip()
    yield from ("---", "", f"# {plain(facts.name)}", "")
    what = {"model": "The weights of a network", "dataset": "Synthetic labelled images", "surrogate": "A surrogate set"}
    yield f"{what[about.kind]} from a federation. {one.made}"
    yield from ("", "## Privacy", "")
    yield from (f"- {words}" for words in one.privacy(facts.said.delta))
    yield from ("", "## How it was made", "")
    rows = [[name, about.params[name]] for name in sorted(about.params)]
    yield from table(["parameter", "value"], rows)
    versions = ", ".join(f"{name} {version}" for name, version in sorted(about.versions.items()))
    yield from ("", f"Versions: {plain(versions)}.", "", f"SHA-256: `{one.sha256}`, {one.size:,} bytes.", "")
    yield from ("## To be written by a person", "")
    wanted = ["what it is meant for, and what not", "how well it does, on which data", "which groups it serves worse"]
    yield from (f"- [to be written] {words}" for words in wanted)


DOCUMENT = Document(
    name="hf-card",
    place=4,
    text="the README of a synthetic set or a model on the Hugging Face hub; .md",
    make=_make,
    subjects=("file",),
    endings=(".md",),
    needs={"license": "the hub asks for one"},
    takes=("delta",),
)
