"""The metrics of the binder, with the names of kube-controller-manager."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.api.storage import BOUND, PersistentVolume, PersistentVolumeClaim, class_of
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Counters, Family, Histograms, Shown
from controller_manager.framework import Informer

from ..shared.storage_operations import BUCKETS, storage_operations
from ..shared.volume_plugins import HOST_PATH, NFS, plugin_of

_OPERATION = ("plugin_name", "operation_name")
_OF_CLASS = ("storage_class",)
_OF_NAMESPACE = ("namespace", "storage_class", "volume_attributes_class")

_TOTAL = Family("pv_collector_total_pv_count", "Volumes, by plugin and mode.", "gauge", ("plugin_name", "volume_mode"))
_BOUND_VOLUMES = Family("pv_collector_bound_pv_count", "Volumes that are bound.", "gauge", _OF_CLASS)
_OTHER_VOLUMES = Family("pv_collector_unbound_pv_count", "Volumes that are not bound.", "gauge", _OF_CLASS)
_BOUND_CLAIMS = Family("pv_collector_bound_pvc_count", "Claims that are bound.", "gauge", _OF_NAMESPACE)
_OTHER_CLAIMS = Family("pv_collector_unbound_pvc_count", "Claims that are not bound.", "gauge", _OF_NAMESPACE)
_SECONDS = Family(
    "volume_operation_total_seconds",
    "Time from when a volume was to be made or deleted until its claim had it, or it was gone.",
    "histogram",
    _OPERATION,
    BUCKETS,
)
_ERRORS = Family("volume_operation_errors_total", "Failures to make or delete volumes.", "counter", _OPERATION)
_OLD_ERRORS = Family(
    "volume_operation_total_errors", "Failures to make or delete volumes.", "counter", _OPERATION, deprecated="1.36"
)
_ASSIGNED = Family("retroactive_storageclass_total", "Claims that were to get the default class later on.", "counter")
_UNASSIGNED = Family("retroactive_storageclass_errors_total", "Claims that could not get the default class.", "counter")

# Maximum number of operations whose duration is measured. The oldest ones are dropped.
_MOST_AWAITED = 10_000

T = TypeVar("T")


class BinderMetrics:
    """Counts volumes and claims and measures provisioning and deletion."""

    def __init__(
        self,
        registry: CollectorRegistry,
        volumes: Informer[PersistentVolume],
        claims: Informer[PersistentVolumeClaim],
    ) -> None:
        self._seconds = Histograms(_SECONDS, registry)
        self._errors = Counters(_ERRORS, registry)
        self._old_errors = Counters(_OLD_ERRORS, registry)
        self._operations = storage_operations(registry)
        self._assigned = Counters(_ASSIGNED, registry)
        self._unassigned = Counters(_UNASSIGNED, registry)
        self._begun: dict[Hashable, tuple[float, str, str]] = {}
        registry.register(_Counted(volumes, claims))

    def begin(self, key: Hashable, plugin: str, operation: str) -> None:
        """Record that the provisioning or deletion of a volume has begun, unless that is known."""
        if key not in self._begun:
            if len(self._begun) >= _MOST_AWAITED:
                del self._begun[next(iter(self._begun))]
            self._begun[key] = clock.monotonic(), plugin, operation

    def end(self, key: Hashable) -> None:
        """Record that the claim has its volume, or that the volume is gone."""
        if key in self._begun:
            since, plugin, operation = self._begun.pop(key)
            self._seconds.observe(clock.monotonic() - since, plugin, operation)

    def fail(self, key: Hashable) -> None:
        """Record an error. The operation will be retried."""
        if key in self._begun:
            _, plugin, operation = self._begun[key]
            self._errors.add(plugin, operation)
            self._old_errors.add(plugin, operation)

    def forget(self, key: Hashable) -> None:
        """Drop an operation that is no longer waited for."""
        self._begun.pop(key, None)

    def assigned(self, *, failed: bool = False) -> None:
        """Count an assignment of the default class."""
        self._assigned.add()
        if failed:
            self._unassigned.add()

    def operated(self, operation: str, since: float, *, failed: bool) -> None:
        """Record that a host directory was created or deleted."""
        status = "fail-unknown" if failed else "success"
        self._operations.observe(clock.monotonic() - since, HOST_PATH, operation, status, "false")


class _Counted(Collector):
    """The numbers of volumes and claims, computed when Prometheus scrapes."""

    def __init__(self, volumes: Informer[PersistentVolume], claims: Informer[PersistentVolumeClaim]) -> None:
        self._volumes = volumes
        self._claims = claims

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples."""
        return tuple(map(Shown, (_TOTAL, _BOUND_VOLUMES, _OTHER_VOLUMES, _BOUND_CLAIMS, _OTHER_CLAIMS)))

    def collect(self) -> Iterable[Metric]:
        """Return the numbers of volumes and claims by labels."""
        volumes, claims = self._volumes.list(), self._claims.list()
        bound, other = [v for v in volumes if is_bound(v)], [v for v in volumes if not is_bound(v)]
        having, waiting = [c for c in claims if is_bound(c)], [c for c in claims if not is_bound(c)]
        return (
            _counted(_TOTAL, volumes, lambda one: (plugin_name(one), one.spec.volume_mode)),
            _counted(_BOUND_VOLUMES, bound, lambda one: (one.spec.storage_class_name,)),
            _counted(_OTHER_VOLUMES, other, lambda one: (one.spec.storage_class_name,)),
            _counted(_BOUND_CLAIMS, having, _of_namespace),
            _counted(_OTHER_CLAIMS, waiting, _of_namespace),
        )


def is_bound(one: PersistentVolume | PersistentVolumeClaim) -> bool:
    """Return whether a volume or a claim is bound."""
    return one.status.phase == BOUND


def plugin_name(volume: PersistentVolume) -> str:
    """Return the plugin of a volume for metrics. Only in-process plugins have a name."""
    plugin = plugin_of(volume.spec)
    return plugin if plugin in (HOST_PATH, NFS) else "N/A"


def _of_namespace(claim: PersistentVolumeClaim) -> tuple[str, ...]:
    return claim.metadata.namespace, class_of(claim), claim.spec.volume_attributes_class_name or ""


def _counted(family: Family, objects: Iterable[T], labels: Callable[[T], tuple[str, ...]]) -> Shown:
    return Shown(family, [(values, float(count)) for values, count in Counter(map(labels, objects)).items()])
