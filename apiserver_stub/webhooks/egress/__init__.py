"""Connections from this server: direct, or through the proxies of an EgressSelectorConfiguration (KEP-1281)."""

from apiserver_stub.webhooks.egress.selector import DIRECT, EgressSelector, egress_selector

__all__ = ["DIRECT", "EgressSelector", "egress_selector"]
