"""Computes the number of replicas from the metrics of a target's pods; pure.

The result is the ratio of usage to target, times the number of measured pods, rounded up, unless the ratio is within
the tolerance. Missing values are estimated conservatively: they reduce the change and never reverse it. Quantities are
whole thousandths. Rounding equals that of kube-controller-manager, so that the same metrics give the same replicas.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import ROUND_UP, Decimal
from typing import NamedTuple

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import Container, Pod, ResourceRequirements, is_pod_ready
from controller_manager.common.api.quantity import Quantity, parse
from controller_manager.common.api.timestamps import nonzero_time, time_of
from controller_manager.common.options.types import parse_duration

LARGEST = 2**63 - 1
MOST_REPLICAS = 2**31 - 1  # the most that a count or a percentage can be in the API
# By suffix: the factor and the divisor that convert digits to thousandths.
_SUFFIXES = {
    "n": (1, 10**6),
    "u": (1, 10**3),
    "m": (1, 1),
    "k": (10**6, 1),
    "M": (10**9, 1),
    "G": (10**12, 1),
    "Ki": (1000 * 2**10, 1),
    "Mi": (1000 * 2**20, 1),
    "Gi": (1000 * 2**30, 1),
}


def milli(quantity: str | int | float) -> int:
    """Return a quantity in thousandths, rounded away from zero. Raises ValueError."""
    text = quantity if isinstance(quantity, str) else str(quantity)
    if text.isdecimal():
        return min(LARGEST, int(text) * 1000)
    digits = text.rstrip("numkMGKi")
    known = _SUFFIXES.get(text[len(digits) :]) if digits.isdecimal() else None
    if known is None:
        return _exactly(text)
    return min(LARGEST, -(-int(digits) * known[0] // known[1]))


def _exactly(text: str) -> int:
    thousandths = parse(text).number * 1000
    return max(-LARGEST, min(LARGEST, int(thousandths.to_integral_value(ROUND_UP))))


def approximate(quantity: str | int | float) -> float:
    """Return a quantity as float: its digits times a power of ten, as Go's AsApproximateFloat64 does. Raises
    ValueError.
    """
    number = parse(str(quantity)).number
    exponent = min(0, int(number.as_tuple().exponent))
    return int(number.scaleb(-exponent)) * 10.0**exponent


def amount(thousandths: int, resource: str = "") -> str:
    """Return the canonical quantity; memory with binary suffixes, as metrics servers use them, others with
    decimal ones.
    """
    return str(Quantity(Decimal(thousandths).scaleb(-3), "binary" if resource == "memory" else "decimal"))


def quotient(one: int, other: int) -> int:
    """Return the integer quotient, rounded towards zero."""
    whole = abs(one) // abs(other)
    return whole if (one < 0) == (other < 0) else -whole


def replicas_of(number: float) -> int:
    """Return a number of pods, rounded up and limited to the range of the API."""
    return MOST_REPLICAS if number > MOST_REPLICAS else max(-MOST_REPLICAS, math.ceil(number))


CPU = "cpu"


class CannotCompute(Exception):
    """A metric yields no number of replicas; the message says why."""


class PodMetric(NamedTuple):
    """The metric of one pod in thousandths, averaged over the `window` (such as "30s") that ended at `at`.

    The time matters only for starting pods, so it is parsed on demand.
    """

    value: int
    at: str = ""
    window: str = "0s"


class Startup(NamedTuple):
    """Seconds after a pod's start in which its CPU usage may be ignored, and in which it may first become ready."""

    initialization: float
    readiness_delay: float


class Groups(NamedTuple):
    """The pods of a target by state: the number of ready pods, and the names of the others."""

    ready: int
    unready: Collection[str]
    missing: Collection[str]
    ignored: Collection[str]


# A pod, checked in this order                          group
#   being deleted, or failed                            ignored
#   pending                                             unready
#   without a sample                                    missing
#   metric other than CPU                               ready
#   without a start time or a Ready condition           unready
#   within the initialization period of its start:
#      not ready, or sampled less than one window
#      after it became ready                            unready
#   later: not ready, and never ready since its start   unready
#   otherwise                                           ready
def group(
    pods: Iterable[Pod], samples: Mapping[str, PodMetric], startup: Startup, now: float, *, resource: str = ""
) -> Groups:
    """Group pods by the value of their samples at a wall time."""
    unready: list[str] = []
    missing: list[str] = []
    ignored: list[str] = []
    ready = 0
    for pod in pods:
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed":
            ignored.append(name)
        elif pod.status.phase == "Pending":
            unready.append(name)
        elif name not in samples:
            missing.append(name)
        elif resource == CPU and _starts_up(pod, samples[name], startup, now):
            unready.append(name)
        else:
            ready += 1
    return Groups(ready, unready, missing, ignored)


def ready_pods(pods: Collection[Pod]) -> int:
    """Return the number of running and ready pods. Raises CannotCompute if there are no pods."""
    if not pods:
        raise CannotCompute("the selector of the target finds no pods")
    return sum(pod.status.phase == "Running" and is_pod_ready(pod) for pod in pods)


def requests(pods: Iterable[Pod], resource: str, container: str = "") -> dict[str, int]:
    """Return the request of each pod, or of one container per pod, in thousandths.

    Raises CannotCompute if one has no request. Pod-level requests have precedence. If a pod has any, its containers
    need none.
    """
    return {pod.metadata.name: _request(pod, resource, container) for pod in pods}


def _request(pod: Pod, resource: str, container: str) -> int:
    whole = _requested(pod.spec.resources, resource)
    if whole is not None and not container:
        return milli(whole)
    chosen = [each for each in _long_running(pod) if container in ("", each.name)]
    if container and not chosen:
        raise CannotCompute(f"there is no container {container} in pod {pod.metadata.name}")
    asked = {each.name: _requested(each.resources, resource) for each in chosen}
    given = [milli(requested) for requested in asked.values() if requested is not None]
    as_a_whole = not container and pod.spec.resources is not None and bool(pod.spec.resources.requests)
    if len(given) < (1 if as_a_whole else len(asked)):
        silent = next(name for name, requested in asked.items() if requested is None)
        raise CannotCompute(f"missing request for {resource}: container {silent} of pod {pod.metadata.name}")
    return sum(given)


def _long_running(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.containers
    yield from (each for each in pod.spec.init_containers if each.restart_policy == "Always")


def _requested(resources: ResourceRequirements | None, resource: str) -> str | None:
    return (resources.requests or {}).get(resource) if resources is not None else None


def _starts_up(pod: Pod, sample: PodMetric, startup: Startup, now: float) -> bool:
    condition = condition_of(pod.status.conditions, "Ready")
    if condition is None or not nonzero_time(pod.status.start_time):
        return True
    started, turned = seconds_of(pod.status.start_time), seconds_of(condition.last_transition_time)
    if started + startup.initialization > now:
        return condition.status == "False" or seconds_of(sample.at) < turned + parse_duration(sample.window)
    return condition.status == "False" and started + startup.readiness_delay > turned


def seconds_of(time: str | None) -> float:
    """Return an API time as seconds since the epoch; 0 if it is missing or invalid."""
    try:
        moment = time_of(time)
        return moment.timestamp() if moment else 0.0
    except ValueError:
        return 0.0


class Tolerance(NamedTuple):
    """The distances below and above 1.0 within which a ratio is tolerated."""

    down: float
    up: float

    def covers(self, ratio: float) -> bool:
        """Return whether a ratio is tolerated."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class Usage(NamedTuple):
    """The usage of several pods: the ratio to the target, the average in thousandths, and optionally the percentage."""

    ratio: float
    average: int
    percent: int | None = None


class Counted(NamedTuple):
    """A number of replicas, and the usage it is based on."""

    replicas: int
    usage: Usage


Values = Mapping[str, int]
Measure = Callable[[Values], Usage]


def average_usage(target: int) -> Measure:
    """Return a measure by the average of all pods; the target is in thousandths."""

    def measure(values: Values) -> Usage:
        average = quotient(sum(values.values()), len(values))
        return Usage(average / target, average)

    return measure


def utilization(target: int, requests: Values) -> Measure:
    """Return a measure by the percentage of the requests. Samples of other pods are ignored."""

    def measure(values: Values) -> Usage:
        known = [name for name in values if name in requests]
        used, requested = sum(values[name] for name in known), sum(requests[name] for name in known)
        if not requested:
            raise CannotCompute("no metrics belong to pods of the target")
        percent = max(-MOST_REPLICAS, min(MOST_REPLICAS, quotient(used * 100, requested)))
        return Usage(percent / target, quotient(used, len(known)), percent)

    return measure


#   pods without metrics count       if the ratio of the others is
#     as `full(name)`                below 1.0
#     as zero                        above 1.0
#   pods that are not ready count
#     not at all                     below 1.0
#     as zero                        above 1.0
def per_pod(
    measure: Measure,
    samples: Mapping[str, PodMetric],
    groups: Groups,
    current: int,
    tolerance: Tolerance,
    full: Callable[[str], int],
) -> Counted:
    """Return the replicas that bring the usage per pod to its target."""
    left_out = {*groups.unready, *groups.ignored}
    values = {name: sample.value for name, sample in samples.items() if name not in left_out}
    if not values:
        raise CannotCompute("no metrics for the targeted pods that count; they might be unready")
    usage = measure(values)
    up = usage.ratio > 1.0
    if not groups.missing and not (up and groups.unready):
        within = tolerance.covers(usage.ratio)
        return Counted(current if within else replicas_of(usage.ratio * groups.ready), usage)
    if usage.ratio != 1.0:
        values |= {name: 0 if up else full(name) for name in groups.missing}
    if up:
        values |= dict.fromkeys(groups.unready, 0)
    guessed = measure(values).ratio
    replicas = replicas_of(guessed * len(values))
    turned = (guessed - 1.0) * (usage.ratio - 1.0) < 0 or (guessed - 1.0) * (replicas - current) < 0
    return Counted(current if turned or tolerance.covers(guessed) else replicas, usage)


def by_value(current: int, value: int, target: int, ready: Callable[[], int], tolerance: Tolerance) -> int:
    """Return the replicas that bring a single value to its target if it shrinks as they grow; `ready()` counts pods.

    Without replicas the tolerance does not apply, and each multiple of the target needs one.
    """
    ratio = value / target
    if current == 0:
        return replicas_of(ratio)
    return current if tolerance.covers(ratio) else replicas_of(ratio * ready())


def by_average(there: int, value: int, target: int, tolerance: Tolerance) -> tuple[int, int]:
    """Return the replicas that bring the value per pod to its target, and the present value per pod."""
    if there == 0:
        return replicas_of(value / target), value
    share = value if value >= LARGEST else math.ceil(value / there)
    within = tolerance.covers(value / (target * there))
    return there if within else replicas_of(value / target), share
