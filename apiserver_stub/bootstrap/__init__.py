"""The objects that every cluster has from its start on, created through the server itself."""

from apiserver_stub.bootstrap.cluster import ClusterInfo, ServerAddress
from apiserver_stub.bootstrap.hooks import HOOKS, bootstrap

__all__ = ["HOOKS", "ClusterInfo", "ServerAddress", "bootstrap"]
