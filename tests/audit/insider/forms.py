"""The forms in which evidence is handed to an auditor."""

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


def homes(root, **options):
    """The homes of everybody side by side; what the server received from the insider is what that one shows."""
    for name in ("00", "01", "02", "server"):
        one = root / "homes" / name
        (one / "clients").mkdir(parents=True)
        (one / "federation.yaml").touch()
        (one / "public").symlink_to(root / "public")
        (one / "server").symlink_to(root / "server") if name == "server" else (one / "server").mkdir()
        if name != "server":
            (one / "server/outbox").symlink_to(root / "server/outbox")
            (one / "clients" / name).symlink_to(root / "clients" / name)
            continue
        for client in ("00", "01", "02"):
            (one / "clients" / client).mkdir()
            (one / "clients" / client / "outbox").symlink_to(root / "clients" / client / "outbox")
    report = audit(root / "homes", **options)
    shutil.rmtree(root / "homes")
    return report


# The last one takes things away.
FORMS = {"run folder": audit, "client": client, "outbox": alone, "homes": homes, "home": home}


def outcome(report):
    """What came of it: the checks that failed, or the verdict's first word."""
    checks = sorted({finding.check for finding in report.findings if finding.level == "failure"})
    return checks or [report.verdict.split(",")[0].split(":")[0].split(" ")[0]]
