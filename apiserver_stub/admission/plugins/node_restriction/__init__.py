"""The plugin NodeRestriction: kubelets may only write objects of their own node."""

from apiserver_stub.admission.plugins.node_restriction.plugin import node_restriction

__all__ = ["node_restriction"]
