"""Writes by their earlier place."""

from apiserver_stub.store.storage import Write

__all__ = ["Write"]
