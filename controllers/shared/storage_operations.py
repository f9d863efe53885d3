"""How long operations on volumes took, counted by all controllers of storage of a process together."""

from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry

from controller_manager.common.base.metrics import Family, Histograms

BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0)
"""Bounds in seconds of all histograms of operations on volumes."""

_OPERATIONS = Family(
    "storage_operation_duration_seconds",
    "How long operations on volumes took.",
    "histogram",
    ("volume_plugin", "operation_name", "status", "migrated"),
    BUCKETS,
)
_known: WeakKeyDictionary[CollectorRegistry, Histograms] = WeakKeyDictionary()


def storage_operations(registry: CollectorRegistry) -> Histograms:
    """Return the one histogram of a process, by plugin, operation, status and whether a CSI driver took over."""
    found = _known.get(registry)
    if found is None:
        found = _known[registry] = Histograms(_OPERATIONS, registry)
    return found
