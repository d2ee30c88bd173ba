"""What is known of a kind is declared on it: a new one is written, sent, described and audited by its declaration."""

import dataclasses

import numpy as np
import pytest

from artifacts.disclosures import DISCLOSURES
from artifacts.formats import Format, describe, tensors_file
from artifacts.kinds import KINDS, Kind, TensorRule
from artifacts.ledgers import egress
from artifacts.metadata import Metadata
from stages.audit.required_disclosures import required_disclosures
from stages.inspect import inspect
from stages.inspect.pictures import images_in
from stages.run_folder.charges import read_charges

SKETCH = Kind(
    name="sketch",
    format=Format.TENSORS,
    custodies=("outbound",),
    text="a few images of each class, drawn by nobody",
    note="It was made up for a test.",
    tensors={
        "images": TensorRule(dtypes=("F32", "F16"), dims=("n", "c", "h", "w")),
        "labels": TensorRule(dtypes=("I64",), dims=("n",)),
        "spread": TensorRule(dtypes=("F32",), dims=(), optional=True, discloses="radius"),
    },
    always_discloses=frozenset({"derived_images"}),
    pictures="clipped",
)


@pytest.fixture
def sketch(monkeypatch, tmp_path):
    """One file of a kind that no other module knows, in an outbox."""
    monkeypatch.setitem(KINDS, "sketch", SKETCH)
    path = tmp_path / "clients/00/outbox/sketch-0001.safetensors"
    about = Metadata(
        kind="sketch", stage="encode", custody="outbound", client="00", round=1, versions={},
        disclosures=("derived_images", "radius"),
    )  # fmt: skip
    tensors = {
        "images": np.zeros((2, 1, 4, 4), np.float32), "labels": np.arange(2), "spread": np.float32(1.5).reshape(()),
    }  # fmt: skip
    tensors_file.write(path, tensors, about)
    return path, about


def test_a_new_kind_needs_its_declaration_alone(sketch):
    path, about = sketch
    assert describe(path).metadata == about
    shown = inspect(path)
    assert (shown["about"], shown["note"]) == (SKETCH.text, SKETCH.note)
    assert images_in(shown).images.shape == (2, 1, 4, 4)
    assert required_disclosures(about, {"images", "labels", "spread"}) == {"derived_images", "radius"}
    assert required_disclosures(about, {"images", "labels"}) == {"derived_images"}
    (entry,) = egress.read(path.parent.parent / "egress.jsonl").entries
    assert (entry.kind, entry.disclosures) == ("sketch", ["derived_images", "radius"])
    (charged,) = read_charges([path]).charged
    assert "derived_images" in charged.uncovered


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_a_kind_declares_fits_together(kind):
    disclosed = {rule.discloses for rule in (kind.tensors or {}).values() if rule.discloses}
    assert kind.always_discloses | disclosed <= DISCLOSURES.keys()
    assert kind.from_data or not kind.always_discloses, "what is made from no data discloses none"
    assert not (kind.from_data and kind.leaves) or kind.always_discloses, "what leaves says what it discloses"
    assert kind.tensors is None or kind.format is Format.TENSORS
    assert not kind.encoded or kind.carries == "update"


def test_a_ledger_s_field_is_declared_in_one_place():
    """Each field of an entry occurs in the class and, if it follows from the file, in `from_file`; the rest follows."""
    about = Metadata(kind="message", stage="encode", custody="outbound", client="00", versions={})
    own = {"seq", "previous", "file", "sha256", "bytes"}
    fields = {field.name for field in dataclasses.fields(egress.Entry)}
    assert own | egress.from_file(about, picked=False).keys() == fields == egress._FIELDS.keys()
