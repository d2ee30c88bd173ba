"""The metadata are a closed set of fields in one canonical text; what an outbound file tells, it declares."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts import metadata
from artifacts.digests import canonical_json
from artifacts.disclosures import DISCLOSURES
from artifacts.kinds import KINDS
from artifacts.metadata import InputRef, Metadata, MetadataError, check_client_name, parse

DIGEST, OTHER = "a" * 64, "b" * 64
PLAIN = {"kind": "model", "stage": "x", "custody": "public", "versions": {"fedsynth": "0"}}
OUTBOUND = PLAIN | {"kind": "message", "custody": "outbound", "client": "00", "disclosures": ("update",)}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PARAMS = st.dictionaries(st.text(max_size=8), VALUES, max_size=4)


def text_of(metadata):
    return canonical_json(metadata.to_json(payload_sha256=DIGEST, seal_sha256=OTHER))


def changed(**changes):
    """The text of plain metadata with fields changed, or removed where the change is None."""
    fields = json.loads(text_of(Metadata(**PLAIN))) | changes
    return canonical_json({name: value for name, value in fields.items() if value is not None})


@given(params=PARAMS, seed=st.none() | st.integers(0, 2**63), round=st.none() | st.integers(0, 10**9))
def test_what_is_written_is_parsed_back(params, seed, round):
    metadata = Metadata(**PLAIN, params=params, seed=seed, round=round, method="fedavg", simulation=True)
    found = parse(text_of(metadata))
    assert found.metadata == metadata
    assert (found.payload_sha256, found.seal_sha256) == (DIGEST, OTHER)


@given(params=PARAMS)
def test_only_the_canonical_text_is_parsed(params):
    text = text_of(Metadata(**PLAIN, params=params))
    loose = json.dumps(json.loads(text))
    assert loose != text
    with pytest.raises(MetadataError, match="not in canonical form"):
        parse(loose)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "schema is None"),
        ("{" * 100_000, "not JSON"),
        (changed(schema="fedsynth.artifact/2"), "this version reads 'fedsynth.artifact/1'"),
        (changed(camera="Leica"), "unknown field 'camera'"),
        (changed(versions=None), "lacks 'versions'"),
        (changed(seal_sha256=None), "lacks 'seal_sha256'"),
        (changed(seal_sha256="zz"), "a digest is malformed"),
        (changed(payload_sha256="A" * 64), "a digest is malformed"),
        (changed(params=[]), "'params' has the wrong type"),
        (changed(round="1"), "'round' has the wrong type"),
        (changed(round=-1), "round -1 is not a number"),
        (changed(round=True), "round True is not a number"),
        (changed(simulation=False), "not in canonical form"),
        (changed(counts={}), "not in canonical form"),
        (changed(versions={"torch": 2}), "a version is not a string"),
        (changed(disclosures=[1]), "a disclosure is not a string"),
        (changed(inputs=[1]), "an input is malformed"),
        (changed(inputs=[{"role": "model"}]), "lacks role or kind"),
        (changed(inputs=[{"role": "data", "kind": "dataset", "path": "/x"}]), "an input is malformed"),
        (changed(inputs=[{"role": "data", "kind": "dataset"}]), "neither digest nor commitment"),
        (changed(kind="virus"), "unknown kind 'virus'"),
        (changed(custody="lost"), "unknown custody 'lost'"),
        (changed(kind="message"), "a message is never public"),
        (changed(stage="../x"), "is not a word"),
        (changed(method="Two words"), "is not a word"),
        (changed(privacy=[5]), "not an object"),
        (changed(privacy=[{"note": 1}]), "unknown field 'note'"),
        (changed()[:-1] + ',"versions":{}}', "occurs twice"),
        (changed().replace('"params":{}', '"params":{"x":1,"x":2}'), "occurs twice"),
        (changed().replace('"params":{}', '"params":{"x":1e999}'), "Out of range"),
        (changed().replace('"params":{}', '"params":{"x":NaN}'), "Out of range"),
        (changed().replace('"params":{}', '"params":{"x":1.0e0}'), "not in canonical form"),
        (changed().replace('"stage":"x"', '"stage":"\\u0078"'), "not in canonical form"),
    ],
)
def test_anything_unknown_missing_or_malformed_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


@pytest.mark.parametrize("custody", ["outbound", "downlink"])
def test_no_seed_stands_in_a_file_that_leaves(custody):
    fields = PLAIN | {"kind": "proxy", "custody": custody, "client": "00"}
    Metadata(**fields)
    with pytest.raises(MetadataError, match=f"a seed is in {custody} metadata"):
        Metadata(**fields, seed=0)
    with pytest.raises(MetadataError, match=f"a seed is in {custody} metadata"):
        Metadata(**fields, params={"seed": 7})
    leaked = json.loads(text_of(Metadata(**fields))) | {"seed": 7}
    with pytest.raises(MetadataError, match="a seed is in"):
        parse(canonical_json(leaked))


def test_a_seed_may_stand_in_files_that_stay_or_are_public():
    for custody in ("private", "public", "server"):
        assert Metadata(**PLAIN | {"custody": custody}, seed=7).seed == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"disclosures": ("update", "shoe_size")}, "unknown disclosure 'shoe_size'"),
        ({"disclosures": ("update", "class_set")}, "not sorted and unique"),
        ({"disclosures": ("update", "update")}, "not sorted and unique"),
        ({"counts": {"num_examples": 5}}, "'num_examples' is stated but not among the disclosures"),
        ({"counts": {"patients": 5}}, "unknown count 'patients'"),
        ({"counts": {"num_examples": -1}}, "not a whole number"),
        ({"counts": {"num_examples": True}}, "not a whole number"),
        ({"counts": {"num_examples": 0.5}}, "not a whole number"),
        ({"client": None}, "names no client"),
    ],
)
def test_an_outbound_file_declares_what_it_tells(changes, message):
    with pytest.raises(MetadataError, match=message):
        Metadata(**OUTBOUND | changes)


def test_a_declared_count_may_leave():
    fields = OUTBOUND | {"disclosures": ("num_examples", "update"), "counts": {"num_examples": 5}}
    assert parse(text_of(Metadata(**fields))).metadata.counts == {"num_examples": 5}


def test_every_disclosure_has_a_sentence_for_a_layman():
    assert set(DISCLOSURES) == {
        "update", "derived_images", "real_image_init", "class_set", "class_counts", "num_examples", "local_steps",
        "radius", "layer_norms", "matching_loss",
    }  # fmt: skip
    assert all(text.endswith(".") and len(text.split()) >= 5 for text in DISCLOSURES.values())


def test_what_never_leaves_has_no_custody_that_leaves():
    for kind in ("generator", "update"):
        assert not {"outbound", "downlink"} & set(KINDS[kind].custodies)
    assert set(KINDS["message"].custodies) == {"private", "outbound"}, "private: it goes under masks"
    assert "outbound" not in KINDS["model"].custodies


@pytest.mark.parametrize(
    "fields",
    [
        {"sha256": "short"},
        {"sha256": DIGEST, "commitment": DIGEST, "salt": "a" * 32},
        {"commitment": DIGEST, "salt": "a" * 31},
        {"commitment": DIGEST},
        {"salt": "a" * 32},
        {"commitment": "xyz", "salt": "a" * 32},
    ],
)
def test_an_input_is_named_by_its_digest_or_by_a_salted_commitment(fields):
    with pytest.raises(MetadataError):
        Metadata(**PLAIN, inputs=(InputRef(role="data", kind="dataset", **fields),))


BAD_NAMES = ["", ".", "..", "../x", "a/b", "/etc", "a\\b", "a b", "a\n", "\n", "é", ".hidden", "-rf", "_", "x" * 65,
             "a\0b", "~", "a:b", "*", "server"]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_client_s_name_is_never_a_path(name):
    with pytest.raises(MetadataError, match="is not allowed"):
        check_client_name(name)
    with pytest.raises(MetadataError, match="is not allowed"):
        Metadata(**OUTBOUND | {"client": name})


@given(st.text(string.ascii_letters + string.digits, min_size=1, max_size=1), st.text("aZ0._-", max_size=63))
def test_plain_names_are_allowed(first, rest):
    assert check_client_name(first + rest) == first + rest


def test_files_that_differ_in_digests_and_round_alone_are_read_alike(monkeypatch, forge):
    """The second is read by the form of the first; what comes out is what the whole check gives."""
    texts = []
    for number in (1, 2, 30):
        model = InputRef(role="model", kind="model", sha256=f"{number:064x}")
        fields = forge.metadata("message", round=number, inputs=(model,))
        texts.append(canonical_json(fields.to_json(payload_sha256=f"{number + 7:064x}", seal_sha256=f"{number:064x}")))
    metadata._parse_once.cache_clear()
    monkeypatch.setattr(metadata, "_good_forms", set())
    found = [metadata.parse(text) for text in texts]
    assert len(metadata._good_forms) == 1
    assert found == [metadata._parse(text) for text in texts]
    assert [one.metadata.round for one in found] == [1, 2, 30]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"round":1,', '"round":01,'),
        lambda text: text.replace('"round":1,', '"round":"1",'),
        lambda text: text.replace('"round":1,', '"round":99999999999,'),
        lambda text: text.replace("0" * 63 + "8", "\0"),
        lambda text: text.replace("0" * 63 + "8", "0" * 63 + "G"),
        lambda text: text.replace(":", ": ", 1),
        lambda text: text.replace('{"b', '{ "b', 1).replace('{"c', '{ "c', 1),
    ],
    ids=["leading zero", "a text", "too late", "a mark", "no digest", "a space", "a space at the beginning"],
)
def test_what_is_not_in_canonical_form_is_refused_after_one_of_its_form_was_read(monkeypatch, forge, change):
    text = canonical_json(
        forge.metadata("message", round=1).to_json(payload_sha256="0" * 64, seal_sha256="0" * 63 + "8")
    )
    metadata._parse_once.cache_clear()
    metadata.parse(text)
    assert change(text) != text
    with pytest.raises(metadata.MetadataError):
        metadata.parse(change(text))


def test_keys_that_are_digests_are_no_part_of_a_form(forge):
    """The order of keys could carry bits."""
    first, second = "a" * 64, "b" * 64
    spelt = forge.metadata("message", params={first: 1, second: 2}).to_json(payload_sha256=first, seal_sha256=first)
    text = canonical_json(spelt)
    metadata.parse(text)
    swapped = text.replace(f'"{first}":1,"{second}":2', f'"{second}":1,"{first}":2')
    assert swapped != text
    with pytest.raises(metadata.MetadataError, match="canonical"):
        metadata.parse(swapped)
