"""The duration of volume operations, in one histogram for all storage controllers of a process."""

from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry

from controller_manager.common.base.metrics import Family, Histograms

BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0)
"""Bucket bounds in seconds of the histograms of volume operations."""

_OPERATIONS = Family(
    "storage_operation_duration_seconds",
    "Seconds spent in operations on volumes.",
    "histogram",
    ("volume_plugin", "operation_name", "status", "migrated"),
    BUCKETS,
)
_known: WeakKeyDictionary[CollectorRegistry, Histograms] = WeakKeyDictionary()


def storage_operations(registry: CollectorRegistry) -> Histograms:
    """Return the histogram of the process, by plugin, operation, status and whether a CSI driver was used."""
    found = _known.get(registry)
    if found is None:
        found = _known[registry] = Histograms(_OPERATIONS, registry)
    return found
