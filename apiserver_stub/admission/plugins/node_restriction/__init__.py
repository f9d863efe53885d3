"""The plugin NodeRestriction: what agents of nodes write is held to their own node."""

from apiserver_stub.admission.plugins.node_restriction.plugin import node_restriction

__all__ = ["node_restriction"]
