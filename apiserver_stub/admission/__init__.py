"""Plugins that look at every request for a change before it is carried out, and may refuse or change it."""

from apiserver_stub.admission.chain import (
    ALL,
    Admission,
    AdmissionMetrics,
    AdmissionPlugin,
    Admit,
    Attributes,
    Notes,
    Operation,
    Rule,
)
from apiserver_stub.admission.plugins import built_in, enabled

__all__ = [
    "ALL",
    "Admission",
    "AdmissionMetrics",
    "AdmissionPlugin",
    "Admit",
    "Attributes",
    "Notes",
    "Operation",
    "Rule",
    "built_in",
    "enabled",
]
