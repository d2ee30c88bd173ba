"""Every kind of change to every kind of file, to ledgers and to signatures is caught, by the check that is named.

`pytest tests/audit/test_tampering.py -s -k table` prints which check catches what.
"""

from pathlib import Path

import pytest
from tampering.every_case import CASES, table
from tampering.run import Run

from stages.audit import CHECKS, audit

# These are audited with the whole run as well, which takes longer: what is done at the server, and one of each kind.
IN_THE_RUN = {what for what, one in CASES.items() if one.at_server} | {cases[0] for cases in table().values()}


def audit_client(root):
    return audit(root / "clients/01", received=[root / "public", root / "server/outbox"])


@pytest.mark.parametrize("audited", [audit, audit_client])
def test_before_anything_is_done_nothing_is_found(every_kind, audited):
    report = audited(every_kind)
    assert report.passed, [finding for finding in report.findings if finding.level != "note"]
    assert report.verdict.startswith("PASS, anchored (simulation)")


@pytest.mark.parametrize("what", CASES)
def test_it_is_caught(tampered, forge, what):
    one = CASES[what]
    one.do(Run(tampered, forge))
    for audited in [audit_client] * (not one.at_server) + [audit] * (what in IN_THE_RUN):
        report = audited(tampered)
        found = {finding.check for finding in report.findings if finding.level == "failure"}
        assert one.checks & found, report.findings
        assert report.verdict.startswith("FAIL")


def test_the_table_of_what_is_caught_by_which_check():
    rows = [f"| {g} | {check} | {len(cases)} | {cases[0]} |" for (g, check), cases in table().items()]
    rows.append(f"| all | | {len(CASES)} | |")
    print("\n".join(rows))
    guide = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    assert [row for row in rows if row not in guide] == []
    assert {one.check for one in CASES.values()} == CHECKS.keys() - {"replay", "headers"}
