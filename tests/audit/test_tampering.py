"""Every kind of change to every kind of file, to ledgers and to signatures is caught, by the check that is named.

`pytest tests/audit/test_tampering.py -s -k table` prints which check catches what.
"""

import pytest

from stages.audit import CHECKS, audit


@pytest.fixture(scope="session")
def tampering(helper):
    return helper("audit/tampering.py")


def pytest_generate_tests(metafunc):
    if "what" in metafunc.fixturenames:
        import importlib.util
        from pathlib import Path

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


def test_the_table_of_what_is_caught_by_which_check(tampering, capsys):
    with capsys.disabled():
        for (group, check), cases in tampering.table().items():
            print(f"{group:<11} {check:<12} {len(cases):>3}  {cases[0]}{', …' if len(cases) > 1 else ''}")
    assert {one.check for one in tampering.CASES.values()} == CHECKS.keys() - {"replay"}
