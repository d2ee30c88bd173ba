"""What the audit says it cannot see: these pass, and the guide names them."""

import json

from tampering.every_case import CASES
from tampering.run import Run

from artifacts.ledgers import egress
from stages.audit import audit


def test_a_ledger_rewritten_before_any_receipt_passes_as_unanchored(tampered, forge):
    run = Run(tampered, forge)
    for receipt in (tampered / "server/outbox").glob("receipt*"):
        receipt.unlink()
    book = json.loads((tampered / "server/private/egress.jsonl").read_text().splitlines()[0])
    assert book["seq"] == 1
    CASES["the ledger rewritten from the start, one file less"].do(run)
    report = audit(run.client, received=[tampered / "public", tampered / "server/outbox"])
    assert report.passed
    assert "unanchored" in report.verdict
    assert any(f.check == "anchor" and "rewritten" in f.what for f in report.findings)


def test_a_clients_folder_alone_says_what_it_could_not_check(tampered):
    (tampered / "clients/01/private/client.key").unlink()
    report = audit(tampered / "clients/01")
    assert report.verdict.startswith("INCOMPLETE: needs the key of 01 for secrets, lineage")
    assert report.error.exit_code == 6


def test_an_entry_whose_file_is_gone_is_reported(tampered):
    (tampered / "clients/01/outbox/message-0002.safetensors").unlink()
    report = audit(tampered)
    assert report.passed
    assert any(f.check == "ledger" and "sent or unfinished" in f.what for f in report.findings)
    assert len(egress.read(tampered / "clients/01/egress.jsonl").entries) == report.sent[1].entries


def test_the_epsilon_of_what_left(every_kind):
    report = audit(every_kind, delta=1e-5)
    assert report.sent[1].epsilon["record"]["pld"] == "inf"
    assert report.sent[1].epsilon["record"]["rest"]["pld"] > 0
    totals = {(total.rounds, total.kind): total.files for total in report.totals()}
    assert totals[(2, 2), "message"] == 3
    assert totals[(None, None), "dataset"] == 2
