"""Metrics of the store for Prometheus."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from apiserver_stub.storage.interface import Storage
from controller_manager.base.metrics import Family, Shown

_CHECKPOINTS = Family(
    "apiserver_storage_checkpoints_total",
    "Attempts to fold the write-ahead log of the store into its file, by result (success or failure).",
    "counter",
    ("result",),
)
_FAILURES = Family(
    "apiserver_storage_write_failures_total",
    "Writes that the store could not make, by what is known of them: refused, or unknown if they may appear later.",
    "counter",
    ("outcome",),
)


class StorageMetrics(Collector):
    """Reads what the storage counts."""

    def __init__(self, storage: Storage, registry: CollectorRegistry) -> None:
        self._storage = storage
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        success, failure = self._storage.checkpoint_counts
        yield Shown(_CHECKPOINTS, [(("success",), success), (("failure",), failure)])
        yield Shown(_FAILURES, [((outcome,), count) for outcome, count in self._storage.failures.items()])
