"""Admission plugins: they see every write request before it is carried out, and may reject or change it.

Authors of plugins need `AdmissionPlugin`, `Rule`, `Attributes` and `AdmissionContext`.
"""

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
from apiserver_stub.admission.configuration import ANY_VERSION, AdmissionConfiguration
from apiserver_stub.admission.own_plugins import AdmissionContext, MakePlugin
from apiserver_stub.admission.parts import AdmissionParts, BuildPlugin
from apiserver_stub.admission.registry import enabled
from apiserver_stub.common.config_file import ConfigDocument, ConfigModel
from apiserver_stub.common.error_list import ErrorList

__all__ = [
    "ALL",
    "ANY_VERSION",
    "Admission",
    "AdmissionConfiguration",
    "AdmissionContext",
    "AdmissionMetrics",
    "AdmissionParts",
    "AdmissionPlugin",
    "Admit",
    "Attributes",
    "BuildPlugin",
    "ConfigDocument",
    "ConfigModel",
    "ErrorList",
    "MakePlugin",
    "Notes",
    "Operation",
    "Reinvocation",
    "Rule",
    "enabled",
]
