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
    Reinvocation,
    Rule,
)
from apiserver_stub.admission.configuration import AdmissionConfiguration
from apiserver_stub.admission.parts import AdmissionParts, BuildPlugin
from apiserver_stub.admission.plugins import enabled

__all__ = [
    "ALL",
    "Admission",
    "AdmissionConfiguration",
    "AdmissionMetrics",
    "AdmissionParts",
    "AdmissionPlugin",
    "Admit",
    "Attributes",
    "BuildPlugin",
    "Notes",
    "Operation",
    "Reinvocation",
    "Rule",
    "enabled",
]
