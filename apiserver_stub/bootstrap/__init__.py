"""What every cluster has from its start on, brought about through the server itself."""

from apiserver_stub.bootstrap.cluster import Address, Cluster
from apiserver_stub.bootstrap.hooks import HOOKS, bootstrap

__all__ = ["HOOKS", "Address", "Cluster", "bootstrap"]
