"""Plugins that look at every request for a change before it is carried out, and may refuse or change it."""

from apiserver_stub.admission.chain import ALL, Admission, Attributes, Operation, Plugin, Rule
from apiserver_stub.admission.plugins import built_in

__all__ = ["ALL", "Admission", "Attributes", "Operation", "Plugin", "Rule", "built_in"]
