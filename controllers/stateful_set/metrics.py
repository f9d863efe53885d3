"""The metrics of the stateful set controller, with the names of kube-controller-manager."""

from prometheus_client import CollectorRegistry

from controller_manager.common.api.apps import StatefulSet
from controller_manager.common.base.metrics import Family, Gauges
from controller_manager.framework import Key

from .decide import max_unavailable

_LABELS = ("statefulset_namespace", "statefulset_name", "pod_management_policy")
_MAX_UNAVAILABLE = Family(
    "statefulset_controller_statefulset_max_unavailable",
    "Number of pods of a stateful set that may be unavailable during an update.",
    "gauge",
    _LABELS,
)
_UNAVAILABLE = Family(
    "statefulset_controller_statefulset_unavailable_replicas",
    "Number of pods of a stateful set that are unavailable or missing.",
    "gauge",
    _LABELS,
)


class StatefulSetMetrics:
    """The gauges about unavailable pods, by set."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = Gauges(_MAX_UNAVAILABLE, registry), Gauges(_UNAVAILABLE, registry)
        self._labels: dict[Key, tuple[str, str, str]] = {}

    def set(self, owner: StatefulSet, unavailable: int) -> None:
        """Record the number of unavailable pods of a set."""
        key = Key(owner.metadata.namespace, owner.metadata.name)
        labels = self._labels[key] = (*key, owner.spec.pod_management_policy)
        for gauge, value in zip(self._gauges, (max_unavailable(owner), unavailable), strict=True):
            gauge.set(value, *labels)

    def forget(self, key: Key) -> None:
        """Remove the series of a set that was deleted."""
        labels = self._labels.pop(key, None)
        if labels is not None:
            for gauge in self._gauges:
                gauge.forget(*labels)
