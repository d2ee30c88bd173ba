"""`audit`: exactly which bytes left, whether each is recorded, what it discloses and costs, and proof of it."""

from stages.audit.conduct import ReplayOptions, audit
from stages.audit.findings import CHECKS, AuditReport, Finding, Sent

__all__ = ["CHECKS", "AuditReport", "Finding", "ReplayOptions", "Sent", "audit"]
