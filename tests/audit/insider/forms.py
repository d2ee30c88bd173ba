"""The four forms in which evidence is handed to an auditor."""

import shutil

from stages.audit import audit


def client(root, **options):
    return audit(root / "clients/01", received=[root / "public", root / "server/outbox"], **options)


def alone(root, **options):
    options.pop("replay", None)
    return audit(root / "clients/01/outbox", received=[root / "public", root / "server/outbox"], **options)


def home(root, **options):
    """As the owner of a home has it: its own folder, and what the server sent."""
    (root / "federation.yaml").touch()
    for name in ("00", "02"):
        (root / "clients" / name).unlink(missing_ok=True)
    shutil.rmtree(root / "server/private", ignore_errors=True)
    return audit(root, **options)


# The last one takes things away.
FORMS = {"run folder": audit, "client": client, "outbox": alone, "home": home}


def outcome(report):
    """What came of it: the checks that failed, or the verdict's first word."""
    checks = sorted({finding.check for finding in report.findings if finding.level == "failure"})
    return checks or [report.verdict.split(",")[0].split(":")[0].split(" ")[0]]
