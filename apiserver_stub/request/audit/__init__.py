"""Audit of requests: which requests are audited at which level (`policy`), the events (`record`, `events`) and where
they are stored (backends).
"""

from apiserver_stub.request.audit.auditing import Auditing, open_auditing
from apiserver_stub.request.audit.auditor import Auditor
from apiserver_stub.request.audit.events import AuditStage, Level, without_managed_fields
from apiserver_stub.request.audit.record import (
    HEADER,
    AuditIds,
    AuditRecord,
    annotate,
    current_record,
    note_latency,
    reference,
    reset_current,
    set_current,
    source_ips,
)
from apiserver_stub.request.audit.webhook_backend import Sender

__all__ = [
    "HEADER",
    "AuditIds",
    "AuditRecord",
    "AuditStage",
    "Auditing",
    "Auditor",
    "Level",
    "Sender",
    "annotate",
    "current_record",
    "note_latency",
    "open_auditing",
    "reference",
    "reset_current",
    "set_current",
    "source_ips",
    "without_managed_fields",
]
