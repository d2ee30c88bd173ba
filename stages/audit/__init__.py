"""`audit`: exactly which bytes left, whether each is recorded, what it discloses and costs, and proof of it."""

from stages.audit.auditor import audit
from stages.audit.findings import CHECKS, AuditReport, Finding, Sent
from stages.audit.replay import ReplayOptions

__all__ = ["CHECKS", "AuditReport", "Finding", "ReplayOptions", "Sent", "audit"]
