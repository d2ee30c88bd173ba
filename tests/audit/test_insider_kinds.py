"""An insider with the key and our writer, at kinds of file and places that have no check of their own."""

import dataclasses
import os
import shutil

import numpy as np
import pytest
from insider.cases import _write_tensors as other_tensors
from insider.cases import path_of, tensor_cases
from insider.forms import FORMS
from tampering.run import Run

from artifacts.errors import FedsynthError
from artifacts.formats import any_file, dataset_file, tensors_file
from artifacts.identity.commitments import commit
from artifacts.kinds import KINDS
from artifacts.ledgers import egress
from stages.audit import audit
from stages.audit.layout import chosen_names
from stages.data.png import decode_png
from stages.decode import decode


@pytest.fixture
def run(tampered, forge):
    return Run(tampered, forge)


def failures(run, form="client"):
    return {(f.check, f.where.rsplit("/", 1)[-1]) for f in FORMS[form](run.root).findings if f.level == "failure"}


def own_public(run):
    """A public folder that may be changed."""
    shared, copy = run.root / "public", run.root / "mine"
    shutil.copytree(shared, copy)
    shared.unlink()
    copy.rename(shared)
    return shared


# Noise that a file claims belongs to what it was made from, whatever its kind


def claims(run, file, role, kept, events, **changes):
    """The file says that it was made from this private one, which says that it has these events."""
    about = dataclasses.replace(any_file.scan(run.out / file).metadata, **changes)
    context = {"stage": about.stage, "client": about.client, "round": about.round, "params": dict(about.params)}
    found = tensors_file.read(run.private / kept)
    forged = run.private / f"forged-{kept}"
    tensors_file.write(forged, found.tensors, dataclasses.replace(found.metadata, privacy=events))
    digest = tensors_file.read(forged).sha256
    inputs = tuple(
        commit(run.key, role=r.role, kind=r.kind, sha256=digest, context=context) if r.role == role else r
        for r in about.inputs
    )
    return changes | {"privacy": events, "inputs": inputs}


@pytest.mark.parametrize("kind", ["compressed", "topk", "lowrank", "residuals", "proxy"])
def test_an_encoded_update_does_not_borrow_the_noise_of_another(run, kind):
    name = path_of(run, kind).name
    run.rewrite(kind, file=name, disclosures=(), **claims(run, name, "update", "update-0001.safetensors", run.events()))
    assert failures(run) == {("events", name)}


def test_a_set_does_not_borrow_the_noise_of_another_generator(run):
    events = any_file.scan(run.out / "merf.parquet").metadata.privacy
    changed = claims(run, "synthetic.parquet", "generator", "generator.safetensors", events)
    run.rewrite_dataset(disclosures=("class_counts",), **changed)
    assert failures(run) == {("events", "synthetic.parquet")}


# What stands for the same update is spelt in one way


def test_positions_in_another_order(run):
    found = tensors_file.read(path_of(run, "topk")).tensors
    other_tensors(run, "topk", {name: found[name][::-1].copy() for name in ("positions", "values")})
    assert ("tensors", "topk-0001.safetensors") in failures(run)


def test_values_by_another_largest(run):
    found = tensors_file.read(path_of(run, "topk")).tensors
    other_tensors(run, "topk", {"values": found["values"] / 2, "ranges": found["ranges"] * 2})
    assert ("tensors", "topk-0001.safetensors") in failures(run)


def test_bits_behind_the_last_code(run, fedsynth):
    """650 numbers of 3 bits are 243 bytes and 6 bits."""
    model, update = run.root / "public/model-0000.safetensors", run.private / "update-0001.safetensors"
    path = run.out / "compressed-0001.safetensors"
    words = ["--method", "quantised", "--bits", 3, "-o", path, "--force", "-q"]
    assert fedsynth("encode", model, update, *words)[0] == 0
    assert ("tensors", path.name) not in failures(run)
    codes = tensors_file.read(path).tensors["codes"].copy()
    codes[-1] |= 1
    other_tensors(run, "compressed", {"codes": codes})
    assert ("tensors", path.name) in failures(run)


def test_what_the_server_refuses_to_decode_no_audit_passes(every_kind, tmp_path, forge):
    """For every kind that is decoded, new ones too: each change of a tensor that keeps its type and shape.

    A large number is left out: that it overflows is found by computing with it, not by looking at it.
    """
    found = [case for case in tensor_cases(Run(every_kind, forge)) if case.free and case.how != "a large one"]
    decodable = [case for case in found if _kind(every_kind, forge, case).encoded]
    model, refused = every_kind / "public/model-0000.safetensors", 0
    assert {_kind(every_kind, forge, case).name for case in decodable} == {k.name for k in KINDS.values() if k.encoded}
    for number, case in enumerate(decodable):
        root = tmp_path / str(number)
        shutil.copytree(every_kind / "clients/01/outbox", root / "clients/01/outbox")
        shutil.copy(every_kind / "clients/01/egress.jsonl", root / "clients/01")
        (root / "clients/01/private").mkdir()
        shutil.copy(every_kind / "clients/01/private/client.key", root / "clients/01/private")
        run = Run(root, forge)
        run.enter = lambda *_: None
        case.do(run)
        path = path_of(run, case.kind)
        try:
            decode(model, path, root / "server/private/update.safetensors")
        except FedsynthError:
            refused += 1
            outbox = tmp_path / "one"
            shutil.rmtree(outbox, ignore_errors=True)
            outbox.mkdir()
            shutil.copy(path, outbox)
            report = audit(outbox, received=[every_kind / "public"])
            assert report.count("failure"), f"{case}: the server refuses it"
        shutil.rmtree(root)
    assert refused


def _kind(every_kind, forge, case):
    return KINDS[any_file.scan(path_of(Run(every_kind, forge), case.kind)).metadata.kind]


# Pictures


def private_pictures(run, count):
    rows = dataset_file.read(run.private / "data.parquet").pngs.to_pylist()[:count]
    return np.stack([decode_png(png) for png in rows]).astype(np.float32)


def test_private_pictures_as_the_images_of_a_proxy(run):
    images = tensors_file.read(path_of(run, "proxy")).tensors["images"]
    other_tensors(run, "proxy", {"images": private_pictures(run, len(images)) / 50 - 2})
    assert ("images", "proxy-0001.safetensors") in failures(run)


def test_negatives_of_private_pictures(run):
    images = tensors_file.read(path_of(run, "surrogate")).tensors["images"]
    other_tensors(run, "surrogate", {"images": 1 - private_pictures(run, len(images)) / 127.5})
    assert ("images", "surrogate-0001.safetensors") in failures(run)


def as_public(run, rows):
    found = dataset_file.read(run.private / "data.parquet")
    about = dataclasses.replace(found.metadata, custody="public", client=None)
    public = dataset_file.read(run.root / "public/test.parquet")
    pngs = [*found.pngs.to_pylist()[:rows], *public.pngs.to_pylist()]
    labels = np.concatenate([found.labels[:rows], public.labels])
    dataset_file.write(own_public(run) / "extra.parquet", pngs, labels, about)


def test_private_pictures_that_are_said_to_be_public(run):
    as_public(run, 100)
    assert ("images", "extra.parquet") in failures(run)


def test_a_few_pictures_may_be_in_a_source_twice(run):
    """But it is said that they are there."""
    as_public(run, 1)
    report = FORMS["client"](run.root)
    assert report.passed
    assert any("pictures are private ones of 01" in f.what for f in report.findings if f.level == "note")


# Places


def beside(name):
    def do(run):
        (run.client / name).write_text("mueller")

    return do


PLACES = {
    "a text beside the outbox": (beside("notes.txt"), "notes.txt"),
    "a hidden file beside the outbox": (beside(".notes"), ".notes"),
    "a hidden folder beside the outbox": (lambda run: shutil.copytree(run.private, run.client / ".more"), ".more"),
}


@pytest.mark.parametrize("what", PLACES)
def test_nothing_is_beside_an_outbox(run, what):
    do, name = PLACES[what]
    do(run)
    assert ("outbox", name) in failures(run)


def test_what_a_writer_at_work_leaves_accuses_nobody(run):
    beside(".egress.jsonl.0123456789abcdef.part")(run)
    assert not failures(run)


def test_a_private_folder_below_the_public_one(run):
    shutil.copytree(run.private, own_public(run) / "more")
    assert ("custody", "data.parquet") in failures(run)


def test_a_private_folder_beside_all_others(run):
    shutil.copytree(run.private, run.root / "more")
    assert ("custody", "data.parquet") in failures(run, "run folder")


def test_a_text_among_the_public_files_is_pointed_out(run):
    (own_public(run) / "notes.txt").write_text("mueller")
    said = [f.what for f in FORMS["client"](run.root).findings if f.check == "custody" and f.level == "note"]
    assert said == ["1 file that fedsynth cannot read, so that nobody looked into them: notes.txt"]


def test_a_public_file_that_only_one_home_has_so(homes):
    path = homes / "01/public/model-0000.safetensors"
    found = tensors_file.read(path)
    tensors_file.write(path, {n: v + 1 for n, v in found.tensors.items()}, found.metadata, force=True)
    assert any("the same for everybody" in f.what for f in audit(homes).findings if f.level == "failure")


@pytest.mark.parametrize("name", ["user.note", "trusted.note"])
@pytest.mark.parametrize("where", ["out", "ledger"])
def test_an_attribute_of_the_outbox_or_the_ledger(run, name, where):
    path = getattr(run, where)
    try:
        os.setxattr(path, name, b"mueller")
    except OSError:
        pytest.skip("no such attributes on this disk, or no rights")
    assert any(check in ("outbox", "chain") and file == path.name for check, file in failures(run))


# What is said of files that are gone


@pytest.mark.parametrize(
    "said",
    [
        {"file": "m\x1b[2J.safetensors"}, {"kind": "mueller"}, {"disclosures": ["mueller"]}, {"round": 29021968},
        {"privacy": [{"mueller": 1968}]}, {"sha256": "mueller"},
    ],
    ids=lambda said: next(iter(said)),
)  # fmt: skip
def test_an_entry_of_no_file_says_nothing_of_its_own(run, said):
    plain = {"file": "message-0003.safetensors", "sha256": "ab" * 32, "bytes": 9, "picked": False}
    plain |= {"kind": "message", "round": 3, "privacy": [], "disclosures": ["update"]}
    with egress.locked(run.ledger) as book:
        book._log.append(plain)
    assert not failures(run)
    with egress.locked(run.ledger) as book:
        book._log.append(plain | said)
    assert failures(run) == {("ledger", "egress.jsonl")}


def test_the_name_of_a_file_that_is_gone_is_pointed_out(run):
    plain = {"file": "mueller-1968.safetensors", "sha256": "ab" * 32, "bytes": 9, "picked": False}
    with egress.locked(run.ledger) as book:
        book._log.append(plain | {"kind": "message", "round": 3, "privacy": [], "disclosures": ["update"]})
    assert chosen_names([], egress.read(run.ledger).entries[-1:]) == ["mueller-1968.safetensors"]


# What it discloses, what it was made from


def test_a_proxy_declares_what_it_discloses_and_no_more(run):
    about = run.about("proxy")
    run.rewrite("proxy", disclosures=tuple(sorted({*about.disclosures, "class_counts"})))
    assert ("lineage", "proxy-0001.safetensors") in failures(run)


def test_a_model_of_ones_own_that_is_said_to_be_public(run):
    first = tensors_file.read(run.root / "public/model-0000.safetensors")
    own = run.private / "own.safetensors"
    tensors_file.write(own, {name: value + 1 for name, value in first.tensors.items()}, first.metadata)
    digest = tensors_file.read(own).sha256
    inputs = [dataclasses.replace(r, sha256=digest) if r.role == "model" else r for r in run.about("state").inputs]
    run.rewrite("state", inputs=tuple(inputs))
    assert ("lineage", "state-0001.safetensors") in failures(run)
