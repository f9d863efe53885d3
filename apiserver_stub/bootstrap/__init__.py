"""The objects that every cluster has from its start on, created through the server itself."""

from apiserver_stub.bootstrap.hooks import HOOKS, bootstrap
from apiserver_stub.bootstrap.objects import ClusterInfo, ServerAddress

__all__ = ["HOOKS", "ClusterInfo", "ServerAddress", "bootstrap"]
