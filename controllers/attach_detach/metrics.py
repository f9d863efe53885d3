"""The metrics of the attach-detach controller."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.base.metrics import Counters, Family, Shown

from ..shared.storage_operations import storage_operations
from ..shared.volume_specs import VolumeSpec
from .state import ActualState, DesiredState

VERIFY = "verify_volumes_are_attached_per_node"

_FORCED = Family(
    "attach_detach_controller_attachdetach_controller_forced_detaches",
    "Volumes detached that a node may still have used, by the reason.",
    "counter",
    ("reason",),
)
_IN_USE = Family(
    "storage_count_attachable_volumes_in_use", "Volumes of pods on each node.", "gauge", ("node", "volume_plugin")
)
_TOTAL = Family(
    "attachdetach_controller_total_volumes",
    "Volumes that are wanted at nodes, and that are or may be attached.",
    "gauge",
    ("plugin_name", "state"),
)


class AttachDetachMetrics:
    """Counts operations and exposes the numbers of volumes."""

    def __init__(self, registry: CollectorRegistry, actual: ActualState, desired: DesiredState) -> None:
        self._operations = storage_operations(registry)
        self._forced = Counters(_FORCED, registry)
        registry.register(_Volumes(actual, desired))

    def ended(self, spec: VolumeSpec, name: str, seconds: float, *, failed: bool) -> None:
        """Record that an operation on a volume has ended."""
        self._operations.observe(seconds, spec.kind, name, _status(failed=failed), "true" if spec.migrated else "false")

    def verified(self, seconds: float, *, failed: bool) -> None:
        """Record that the attachments of a node were verified."""
        self._operations.observe(seconds, "<n/a>", VERIFY, _status(failed=failed), "false")

    def forced(self, reason: str) -> None:
        """Count a forced detach of a volume that its node may use."""
        self._forced.add(reason)


def _status(*, failed: bool) -> str:
    return "fail-unknown" if failed else "success"


class _Volumes(Collector):
    """The numbers of volumes, computed when Prometheus scrapes."""

    def __init__(self, actual: ActualState, desired: DesiredState) -> None:
        self._actual = actual
        self._desired = desired

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples."""
        return (Shown(_IN_USE), Shown(_TOTAL))

    def collect(self) -> Iterable[Metric]:
        """Return the volumes in use by pods per node, and the totals of wanted and attached volumes."""
        in_use = Counter((node, spec.kind) for node, spec in self._desired.uses())
        total = Counter((spec.kind, "desired_state_of_world") for _, spec in self._desired.volumes())
        for volume in self._actual.volumes.values():
            total[volume.spec.kind, "actual_state_of_world"] += len(volume.attachments)
        return (
            Shown(_IN_USE, [(labels, float(count)) for labels, count in in_use.items()]),
            Shown(_TOTAL, [(labels, float(count)) for labels, count in total.items() if count]),
        )
