"""API aggregation: group versions that extension API servers serve behind this server (KEP-263)."""

from apiserver_stub.apis.aggregation.aggregation import REGISTRATION, Aggregation
from apiserver_stub.apis.aggregation.extension_servers import ExtensionServers
from apiserver_stub.apis.aggregation.front_proxy import ProxyPair, no_pair

__all__ = ["REGISTRATION", "Aggregation", "ExtensionServers", "ProxyPair", "no_pair"]
