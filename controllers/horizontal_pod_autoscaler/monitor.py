"""The metrics of the horizontal pod autoscaler controller, with the names of kube-controller-manager."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.api.autoscaling import HorizontalPodAutoscaler
from controller_manager.common.base.metrics import Counters, Family, Histograms, Shown
from controller_manager.framework import Informer

_PREFIX = "horizontal_pod_autoscaler_controller"
_SECONDS = tuple(0.001 * 2**step for step in range(15))
_RESULT = ("action", "error")
_OF_METRIC = (*_RESULT, "metric_type")
_RECONCILIATIONS = Family(f"{_PREFIX}_reconciliations_total", "Looks at autoscalers.", "counter", _RESULT)
_RECONCILIATION = Family(
    f"{_PREFIX}_reconciliation_duration_seconds", "How long a look took.", "histogram", _RESULT, _SECONDS
)
_COMPUTATIONS = Family(f"{_PREFIX}_metric_computation_total", "Metrics computed.", "counter", _OF_METRIC)
_COMPUTATION = Family(
    f"{_PREFIX}_metric_computation_duration_seconds",
    "How long it took to have a metric and compute replicas from it.",
    "histogram",
    _OF_METRIC,
    _SECONDS,
)
_NUMBER = Family(f"{_PREFIX}_num_horizontal_pod_autoscalers", "Autoscalers there are.", "gauge")
_DESIRED = Family(f"{_PREFIX}_desired_replicas", "Replicas an autoscaler wants.", "gauge", ("namespace", "hpa_name"))


class Monitor:
    """Counts reconciles by action (`scale_up`, `scale_down` or `none`) and kind of error."""

    def __init__(self, registry: CollectorRegistry, autoscalers: Informer[HorizontalPodAutoscaler]) -> None:
        self._looks = Counters(_RECONCILIATIONS, registry)
        self._look_seconds = Histograms(_RECONCILIATION, registry)
        self._metrics = Counters(_COMPUTATIONS, registry)
        self._metric_seconds = Histograms(_COMPUTATION, registry)
        registry.register(_Wanted(autoscalers))

    def looked(self, action: str, error: str, seconds: float) -> None:
        """Record a reconcile of an autoscaler."""
        self._looks.add(action, error)
        self._look_seconds.observe(seconds, action, error)

    def computed(self, kind: str, action: str, error: str, seconds: float) -> None:
        """Record the computation of a metric of that type."""
        self._metrics.add(action, error, kind)
        self._metric_seconds.observe(seconds, action, error, kind)


class _Wanted(Collector):
    """The desired replicas of autoscalers, read when Prometheus scrapes."""

    def __init__(self, autoscalers: Informer[HorizontalPodAutoscaler]) -> None:
        self._autoscalers = autoscalers

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples."""
        return (Shown(_NUMBER), Shown(_DESIRED))

    def collect(self) -> Iterable[Metric]:
        """Return the number of autoscalers and the desired replicas of each."""
        every = self._autoscalers.list()
        wanted = [((one.metadata.namespace, one.metadata.name), float(one.status.desired_replicas)) for one in every]
        return (Shown(_NUMBER, [((), float(len(every)))]), Shown(_DESIRED, wanted))


def action_of(before: int, after: int) -> str:
    """Return the action label of a change of replicas."""
    if before == after:
        return "none"
    return "scale_up" if after > before else "scale_down"
