"""The watch cache by its earlier name."""

from apiserver_stub.store.cache import WatchCache as Store

__all__ = ["Store"]
