"""Every kind of change to every kind of file, to ledgers and to signatures is caught, by the check that is named.

`pytest tests/audit/test_tampering.py -s -k table` prints which check catches what.
"""

from pathlib import Path

import pytest

from stages.audit import CHECKS, audit


@pytest.fixture(scope="session")
def tampering(helper):
    return helper("audit/tampering.py")


def pytest_generate_tests(metafunc):
    if "what" in metafunc.fixturenames:
        import importlib.util

        spec = importlib.util.spec_from_file_location("tampering_names", Path(__file__).with_name("tampering.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        metafunc.parametrize("what", list(module.CASES))


def test_before_anything_is_done_nothing_is_found(every_kind):
    report = audit(every_kind)
    assert report.passed, report.findings
    assert report.verdict.startswith("PASS, anchored (simulation)")


def test_it_is_caught(tampered, tampering, forge, what):
    one = tampering.CASES[what]
    one.do(tampering.Run(tampered, forge))
    report = audit(tampered)
    found = {finding.check for finding in report.findings if finding.level == "failure"}
    assert one.checks & found, report.findings
    assert report.verdict.startswith("FAIL")


def test_the_table_of_what_is_caught_by_which_check(tampering):
    rows = [f"| {g} | {check} | {len(cases)} | {cases[0]} |" for (g, check), cases in tampering.table().items()]
    rows.append(f"| all | | {len(tampering.CASES)} | |")
    print("\n".join(rows))
    guide = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    assert [row for row in rows if row not in guide] == []
    assert {one.check for one in tampering.CASES.values()} == CHECKS.keys() - {"replay"}
