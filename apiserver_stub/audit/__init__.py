"""The audit of requests: which are told of, how fully (`policy`), what is told (`record`, `events`), where it goes."""

from apiserver_stub.audit.auditing import Auditing, open_auditing
from apiserver_stub.audit.auditor import Auditor
from apiserver_stub.audit.events import Level, Stage, without_managed_fields
from apiserver_stub.audit.record import (
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
from apiserver_stub.audit.webhook_backend import Sender

__all__ = [
    "HEADER",
    "AuditIds",
    "AuditRecord",
    "Auditing",
    "Auditor",
    "Level",
    "Sender",
    "Stage",
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
