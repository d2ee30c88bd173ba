"""Cases generated from the declarations of kinds and fields: what an insider changes is caught, or listed in the guide.

`pytest tests/audit/test_generated.py -m slow -s` prints how many cases there are, and what catches them, form by form.
"""

import collections
import shutil
from pathlib import Path

import pytest
from insider.cases import FREE, covered, generated
from insider.forms import FORMS, outcome
from insider.pairs import PAIRS, pair_cases
from tampering.run import Run

from artifacts.digests import sha256_file
from stages.audit import participant, pictures

GUIDE = Path(__file__).parents[2] / "docs/audit.md"
# Kinds that leave and are not in the run that is tampered with: their fields are those of `message`.
ELSEWHERE = {"compressed", "residuals"}
PARTS = 12


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
    case.do(Run(root, forge))
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


@pytest.fixture(autouse=True)
def _private_pictures_once(monkeypatch):
    """The private data is the same in every case: its fingerprints, most of the time of an audit, are taken once."""
    known = {}

    def of_private(shelf):
        sets = [kept for kept in shelf.files.values() if kept.metadata.kind == "dataset"]
        same = tuple(sha256_file(kept.path) for kept in sets)
        if same not in known:
            known[same] = pictures.of_private(shelf)
        return known[same]

    monkeypatch.setattr(participant, "of_private", of_private)


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
    assert covered(cases) == ELSEWHERE
    assert len(cases) > 1000 and len({str(case) for case in cases}) == len(cases)


def test_what_is_free_is_listed_in_the_guide():
    text = GUIDE.read_text()
    free = {*FREE.values(), *(free for _, _, _, free in PAIRS if free is not None)}
    assert [name for name in free if f"| {name} |" not in text] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_case_is_caught_or_listed(cases, every_kind, tmp_path, forge, part):
    assert try_all(cases[part::PARTS], every_kind, tmp_path, forge, list(FORMS)) == []
