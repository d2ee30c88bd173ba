"""`--format croissant`: synthetic and surrogate sets as Croissant 1.1, with provenance and responsible-AI fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages.export.document import Document
from stages.export.text import as_json

if TYPE_CHECKING:
    from stages.export.facts import Facts
    from stages.export.sets import CatalogueEntry

VERSION = "http://mlcommons.org/croissant/1.1"
_RAI = "http://mlcommons.org/croissant/RAI/1.0"
# The context that the specification prints for version 1.1, and PROV for where a file comes from.
_TERMS = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileProperty",
    "fileObject", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5", "parentField",
    "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate", "separator", "source",
    "subField", "transform",
)  # fmt: skip
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{term: f"cr:{term}" for term in _TERMS},
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "sc": "https://schema.org/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "description": {"@container": "@language"},
    "name": {"@container": "@language"},
}
_FORMATS = {"dataset": "application/x-parquet", "surrogate": "application/octet-stream"}


def _make(facts: Facts) -> Mapping[str, bytes]:
    from stages.export.sets import SETS, described

    return {"": as_json(_croissant(facts, described(facts, SETS)))}


def _croissant(facts: Facts, sets: Sequence[CatalogueEntry]) -> dict[str, Any]:
    said = facts.said
    privacy = list(dict.fromkeys(words for one in sets for words in one.privacy(said.delta)))
    return {
        "@context": dict(sorted(_CONTEXT.items())),
        "@type": "sc:Dataset",
        "conformsTo": [VERSION, _RAI],
        "name": facts.name,
        "description": "Labelled images that fedsynth made from private data of a federation's clients, or optimised "
        "to stand in for it in training. They are no photographs of anything.",
        "license": said.license,
        "url": said.url,
        "creator": {"@type": "sc:Organization", "name": said.publisher},
        "publisher": {"@type": "sc:Organization", "name": said.publisher},
        "datePublished": said.date,
        "keywords": ["synthetic data", "federated learning", "fedsynth"],
        "isLiveDataset": False,
        "distribution": [_file(number, one) for number, one in enumerate(sets)],
        "recordSet": [_rows(number, one) for number, one in enumerate(sets) if one.metadata.kind == "dataset"],
        "rai:dataCollection": " ".join(dict.fromkeys(one.made for one in sets)),
        "rai:dataCollectionType": ["Others: synthetic, computed from private data that is not in the set"],
        "rai:dataManipulationProtocol": "Parameters: " + "; ".join(dict.fromkeys(one.parameters for one in sets)),
        "rai:personalSensitiveInformation": privacy,
        "rai:dataLimitations": [
            "Rare groups of the private data may be missing or distorted, and were not measured here.",
            "A set that trains a model well need not look like the data, and its statistics are not those of the data.",
        ],
    }


def _file(number: int, one: CatalogueEntry) -> dict[str, Any]:
    about = one.metadata
    derived = [
        {"@id": f"urn:sha256:{reference.sha256}"}
        if reference.sha256 is not None
        else {"@id": f"urn:fedsynth:commitment:{reference.commitment}"}
        for reference in about.inputs
    ]
    return {
        "@type": "cr:FileObject",
        "@id": f"file-{number}",
        "name": f"file-{number}",
        "description": one.made,
        "contentUrl": one.where,
        "contentSize": f"{one.size} B",
        "encodingFormat": _FORMATS[about.kind],
        "sha256": one.sha256,
        "prov:wasDerivedFrom": derived,
        "prov:wasAttributedTo": {"@id": f"urn:fedsynth:participant:{one.who}"},
        "prov:wasGeneratedBy": {"@id": f"urn:fedsynth:stage:{about.stage}"},
    }


def _rows(number: int, one: CatalogueEntry) -> dict[str, Any]:
    """Images and labels of a Parquet file, as Hugging Face lays them out."""
    name, source = f"rows-{number}", {"fileObject": {"@id": f"file-{number}"}}
    labels = ", ".join(map(str, one.metadata.params["class_names"]))
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": "One row an image.",
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/image",
                "name": f"{name}/image",
                "description": "A PNG.",
                "dataType": "sc:ImageObject",
                "source": source | {"extract": {"column": "image"}, "transform": {"jsonPath": "bytes"}},
            },
            {
                "@type": "cr:Field",
                "@id": f"{name}/label",
                "name": f"{name}/label",
                "description": f"The number of the class, from 0: {labels}.",
                "dataType": "sc:Integer",
                "source": source | {"extract": {"column": "label"}},
            },
        ],
    }


DOCUMENT = Document(
    name="croissant",
    place=3,
    text="synthetic and surrogate sets as Croissant 1.1; .json or .jsonld",
    make=_make,
    subjects=("folder", "file"),
    endings=(".json", ".jsonld"),
    needs={
        "license": "a catalogue lists nothing without one",
        "date": "a catalogue sorts by it, and no file of ours has a time",
        "publisher": "somebody answers for the set",
        "url": "where people find the set",
    },
    takes=("delta",),
)
