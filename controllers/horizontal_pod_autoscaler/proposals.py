"""The replicas that each metric of an autoscaler proposes, and the combined result; pure."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from controller_manager.common.api.autoscaling import (
    ContainerResourceStatus,
    ExternalStatus,
    MetricIdentifier,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    MetricValue,
    ObjectStatus,
    PodsStatus,
    ResourceSource,
    ResourceStatus,
)
from controller_manager.common.api.core import Pod

from .metrics_client import (
    PodMetricsInfo,
    external_value,
    object_value,
    pods_samples,
    resource_samples,
    text_of,
)
from .replicas import (
    CannotCompute,
    Counted,
    Startup,
    Tolerance,
    amount,
    average_usage,
    by_average,
    by_value,
    group,
    milli,
    per_pod,
    ready_pods,
    requests,
    utilization,
)

# The reason of a failed metric in events and conditions, by its type.
REASONS: Mapping[str, str] = MappingProxyType(
    {
        "Resource": "FailedGetResourceMetric",
        "ContainerResource": "FailedGetContainerResourceMetric",
        "Pods": "FailedGetPodsMetric",
        "Object": "FailedGetObjectMetric",
        "External": "FailedGetExternalMetric",
    }
)
UNKNOWN_TYPE = "InvalidMetricSourceType"


class TargetState(msgspec.Struct, frozen=True):
    """The state of a target: its pods, desired and present replicas, and how to evaluate it.

    `now` is wall time in seconds since the epoch.
    """

    pods: Sequence[Pod]
    wanted: int
    there: int
    tolerance: Tolerance
    startup: Startup
    now: float


class Proposal(msgspec.Struct, frozen=True):
    """A number of replicas, the metric that proposes it, and the measured values."""

    replicas: int
    metric: str
    status: MetricStatus


class Failure(msgspec.Struct, frozen=True):
    """A metric without a proposal, and why. `of_spec` marks errors of the spec.

    `event` is the reason of the event, where it differs.
    """

    reason: str
    message: str
    of_spec: bool = False
    event: str = ""


def propose(spec: MetricSpec, body: bytes, view: TargetState) -> Proposal | Failure:
    """Return the proposal of a metric for the API response `body`."""
    make = _BY_TYPE.get(spec.type)
    if make is None:
        return Failure(UNKNOWN_TYPE, f"there is no metric type {spec.type!r}", of_spec=True)
    try:
        return make(spec, body, view)
    except (CannotCompute, ValueError) as error:
        return failure(spec, str(error))


def failure(spec: MetricSpec, why: str) -> Failure:
    """Return the failure of a metric that is unavailable or invalid."""
    return Failure(REASONS.get(spec.type, UNKNOWN_TYPE), f"failed to get {_named(spec)}: {why}")


def _named(spec: MetricSpec) -> str:
    source = spec.resource or spec.container_resource
    if source:
        return f"{source.name} {'usage' if source.target.average_value is not None else 'utilization'}"
    other = spec.pods or spec.object or spec.external
    return f"{spec.type.lower()} metric {other.metric.name}" if other else f"{spec.type.lower()} metric"


def _resource(spec: MetricSpec, body: bytes, view: TargetState) -> Proposal:
    source = spec.resource or spec.container_resource
    if source is None:
        raise CannotCompute(f"a metric of type {spec.type} needs a resource")
    samples = resource_samples(body, source.name, source.container)
    counted, name = _of_resource(source, samples, view)
    current = MetricValue(
        average_utilization=counted.usage.percent,
        average_value=amount(counted.usage.average, source.name),
    )
    if spec.resource:
        status = MetricStatus(type=spec.type, resource=ResourceStatus(name=source.name, current=current))
    else:
        one = ContainerResourceStatus(name=source.name, container=source.container, current=current)
        status = MetricStatus(type=spec.type, container_resource=one)
    return Proposal(counted.replicas, name, status)


def _of_resource(source: ResourceSource, samples: PodMetricsInfo, view: TargetState) -> tuple[Counted, str]:
    target, kind = source.target, "container resource" if source.container else "resource"
    if target.average_value is not None:
        return _average(samples, view, milli(target.average_value), source.name), f"{source.name} {kind}"
    if target.average_utilization is None:
        raise CannotCompute("its target is neither a utilization nor an average value")
    wanted = target.average_utilization
    groups = group(_some(view.pods), samples, view.startup, view.now, resource=source.name)
    asked = requests(view.pods, source.name, source.container)
    counted = per_pod(
        utilization(wanted, asked),
        samples,
        groups,
        view.wanted,
        view.tolerance,
        full=lambda name: asked[name] * max(100, wanted) // 100,
    )
    return counted, f"{source.name} {kind} utilization (percentage of request)"


def _average(samples: PodMetricsInfo, view: TargetState, target: int, resource: str = "") -> Counted:
    groups = group(_some(view.pods), samples, view.startup, view.now, resource=resource)
    return per_pod(average_usage(target), samples, groups, view.wanted, view.tolerance, full=lambda _: target)


def _some(pods: Sequence[Pod]) -> Sequence[Pod]:
    if not pods:
        raise CannotCompute("the selector of the target finds no pods")
    return pods


def _pods(spec: MetricSpec, body: bytes, view: TargetState) -> Proposal:
    if spec.pods is None or spec.pods.target.average_value is None:
        raise CannotCompute("its target is not an average value")
    counted = _average(pods_samples(body), view, milli(spec.pods.target.average_value))
    current = MetricValue(average_value=amount(counted.usage.average))
    status = MetricStatus(type=spec.type, pods=PodsStatus(metric=spec.pods.metric, current=current))
    return Proposal(counted.replicas, f"pods metric {spec.pods.metric.name}", status)


def _object(spec: MetricSpec, body: bytes, view: TargetState) -> Proposal:
    if spec.object is None:
        raise CannotCompute("a metric of type Object needs an object")
    source = spec.object
    replicas, current = _single(object_value(body), source.target, view)
    status = ObjectStatus(metric=source.metric, described_object=source.described_object, current=current)
    name = f"{source.described_object.kind} metric {source.metric.name}"
    return Proposal(replicas, name, MetricStatus(type=spec.type, object=status))


def _external(spec: MetricSpec, body: bytes, view: TargetState) -> Proposal:
    if spec.external is None:
        raise CannotCompute("a metric of type External needs an external metric")
    source = spec.external
    replicas, current = _single(external_value(body), source.target, view)
    status = MetricStatus(type=spec.type, external=ExternalStatus(metric=source.metric, current=current))
    return Proposal(replicas, f"external metric {_with_selector(source.metric)}", status)


def _single(value: int, target: MetricTarget, view: TargetState) -> tuple[int, MetricValue]:
    """Return the proposal for a value that all pods share, and its status."""
    if target.average_value is not None:
        replicas, share = by_average(view.there, value, milli(target.average_value), view.tolerance)
        return replicas, MetricValue(average_value=amount(share))
    if target.value is None:
        raise CannotCompute("its target is neither a value nor an average value")
    replicas = by_value(view.wanted, value, milli(target.value), lambda: ready_pods(view.pods), view.tolerance)
    return replicas, MetricValue(value=amount(value))


def _with_selector(metric: MetricIdentifier) -> str:
    selector = text_of(metric.selector)
    return f"{metric.name}({selector})" if selector else metric.name


_BY_TYPE: Mapping[str, Callable[[MetricSpec, bytes, TargetState], Proposal]] = MappingProxyType(
    {
        "Resource": _resource,
        "ContainerResource": _resource,
        "Pods": _pods,
        "Object": _object,
        "External": _external,
    }
)


class Agreement(msgspec.Struct, frozen=True):
    """The highest proposal and its metric. `failures` are the metrics without a proposal."""

    replicas: int
    metric: str
    failures: tuple[Failure, ...] = ()


def agree(proposals: Sequence[Proposal | Failure], current: int) -> Agreement | Failure:
    """Return the highest proposal. A failed metric prevents scaling down, since it might have proposed more."""
    made = [one for one in proposals if isinstance(one, Proposal)]
    failures = tuple(one for one in proposals if isinstance(one, Failure))
    most = max(made, key=lambda one: one.replicas, default=None)
    if most is None or (failures and most.replicas < current):
        return failures[0] if failures else Failure(UNKNOWN_TYPE, "there are no metrics to scale by", of_spec=True)
    return Agreement(most.replicas, most.metric, failures)


def statuses(proposals: Sequence[Proposal | Failure]) -> tuple[MetricStatus, ...]:
    """Return the status of each metric, at the same index as in the spec, where clients expect it."""
    return tuple(one.status if isinstance(one, Proposal) else MetricStatus(type="") for one in proposals)


def complaint(failures: Sequence[Failure], count: int) -> str:
    """Return a sentence about the failures among `count` metrics."""
    first = failures[0].message if failures else "there are none"
    return f"{len(failures)} of {count} metrics are invalid: {first}"
