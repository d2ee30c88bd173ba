"""Cases generated from the declarations of kinds and fields: what an insider changes is caught, or listed in the guide.

`pytest tests/audit/test_generated.py -m slow -s` prints how many cases there are, and what catches them, form by form.
"""

import collections
import dataclasses
import os
import shutil
from pathlib import Path

import pytest
from insider.cases import FREE, NotHere, covered, generated
from insider.forms import FORMS, outcome
from insider.pairs import PAIRS, pair_cases
from tampering.run import Run

from artifacts import formats
from artifacts.digests import sha256_file
from stages.audit import outbound, participant, pictures, snapshot, surrounding_files

GUIDE = Path(__file__).parents[2] / "docs/audit.md"
PARTS = 16


def fresh(source, target):
    """A copy to damage: what the insider has. The rest are links."""
    (target / "clients").mkdir(parents=True)
    for name in ("public", "clients/00", "clients/02"):
        (target / name).symlink_to(source / name)
    for name in ("clients/01", "server"):
        shutil.copytree(source / name, target / name)
    return target


def tried(case, every_kind, folder, forge, forms):
    """What each form of the evidence shows of one case. A pass is never one without conditions."""
    root = fresh(every_kind, folder)
    try:
        case.do(Run(root, forge))
    except NotHere as why:
        print(f"not tried: {case}: {why}")
        return {}
    found = {}
    for form in forms:
        report = FORMS[form](root)
        if report.passed:
            assert "values not computed again" in report.verdict, report.verdict
        found[form] = outcome(report)
    shutil.rmtree(root)
    return found


def missed(case, found):
    passes = [form for form, checks in found.items() if checks == ["PASS"]]
    return passes if passes and case.free is None else []


def try_all(cases, every_kind, tmp_path, forge, forms):
    table, wrong = collections.Counter(), []
    for number, case in enumerate(cases):
        found = tried(case, every_kind, tmp_path / str(number), forge, forms)
        for form, checks in found.items():
            listed = case.free if checks == ["PASS"] and case.free else None
            table[form, "listed: " + listed if listed else ", ".join(checks[:1])] += 1
        if missed(case, found):
            wrong.append((str(case), found))
            print(f"missed: {case}: {found}")
    for (form, what), count in sorted(table.items()):
        print(f"| {form} | {what} | {count} |")
    print(f"{len(cases)} cases, {len(wrong)} missed")
    return wrong


@pytest.fixture(scope="module", autouse=True)
def _read_once():
    """What nobody changed is read once: pictures, most of the time of an audit, and every other file.

    A copy to damage need not survive a power cut either.
    """
    private, public, sent, surveyed = {}, {}, {}, {}

    def of_private(shelf):
        sets = [kept for kept in shelf.files.values() if kept.metadata.kind == "dataset"]
        same = tuple(sha256_file(kept.path) for kept in sets)
        if same not in private:
            private[same] = pictures.of_private(shelf)
        return private[same]

    def published(shelf, sets):
        same = (*map(sha256_file, sets), *shelf.files)
        if same not in public:
            public[same] = list(pictures.published(shelf, sets))
        return public[same]

    def look_at(path, watch):
        same = (sha256_file(path), path.suffix, tuple(watch._needles), tuple(watch._seeds))
        if same not in sent:
            sent[same] = outbound.look_at(path, watch)
        found = sent[same]
        if not isinstance(found, outbound.Seen):
            return found
        inside = found.envelopes and dataclasses.replace(found.envelopes, path=path)
        content = found.tensors and dataclasses.replace(found.tensors, path=path)
        return dataclasses.replace(found, path=path, envelopes=inside, tensors=content)

    def survey(path):
        same = sha256_file(path)
        if same not in surveyed:
            surveyed[same] = formats.survey(path)
        return surveyed[same]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(participant, "of_private", of_private)
        patched.setattr(participant, "published", published)
        patched.setattr(snapshot, "look_at", look_at)
        patched.setattr(surrounding_files, "survey", survey)
        patched.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def cases(every_kind, forge):
    return list(generated(Run(every_kind, forge)))


def test_a_sample_of_all_cases_is_caught_or_listed(cases, every_kind, tmp_path, forge):
    step = len(cases) // 24
    assert try_all(cases[5::step], every_kind, tmp_path, forge, ["client"]) == []


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_what_is_rewritten_together_is_caught_or_listed(every_kind, tmp_path, forge, number):
    (case,) = list(pair_cases(None))[number : number + 1]
    assert try_all([case], every_kind, tmp_path, forge, list(FORMS)) == []


def test_every_kind_that_leaves_has_its_cases(cases):
    assert covered(cases) == set()
    assert len(cases) > 1000 and len({str(case) for case in cases}) == len(cases)


def test_what_is_free_is_listed_in_the_guide():
    text = GUIDE.read_text()
    free = {*FREE.values(), *(free for _, _, _, free in PAIRS if free is not None)}
    assert [name for name in free if f"| {name} |" not in text] == []


def test_a_run_that_nobody_changed_passes_in_every_form(every_kind, tmp_path):
    root = fresh(every_kind, tmp_path / "clean")
    found = {form: outcome(audited(root)) for form, audited in FORMS.items()}
    assert found == {form: ["INCOMPLETE" if form == "outbox" else "PASS"] for form in FORMS}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_case_is_caught_or_listed(cases, every_kind, tmp_path, forge, part):
    assert try_all(cases[part::PARTS], every_kind, tmp_path, forge, list(FORMS)) == []
