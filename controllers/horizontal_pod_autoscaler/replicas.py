"""The number of replicas that follows from what was measured; pure.

The ratio of what is to what should be, times the pods it was measured on, rounded up: unless the ratio is within the
tolerance. What is not known is guessed so that the change becomes smaller, and never so that it turns round.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .amounts import LARGEST, MOST_REPLICAS, quotient, replicas_of
from .pods import CannotCompute, Groups, PodMetric


class Tolerance(NamedTuple):
    """Distances below and above 1.0 within which a ratio may be."""

    down: float
    up: float

    def covers(self, ratio: float) -> bool:
        """Return whether nothing is to be done about a ratio."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class Usage(NamedTuple):
    """The usage of several pods: the ratio to the target, the average in thousandths, and maybe the percentage."""

    ratio: float
    average: int
    percent: int | None = None


class Counted(NamedTuple):
    """A number of replicas, and the usage it follows from."""

    replicas: int
    usage: Usage


Values = Mapping[str, int]
Measure = Callable[[Values], Usage]


def average_usage(target: int) -> Measure:
    """Measures by the average of all pods; the target in thousandths."""

    def measure(values: Values) -> Usage:
        average = quotient(sum(values.values()), len(values))
        return Usage(average / target, average)

    return measure


def utilization(target: int, requests: Values) -> Measure:
    """Measures by the percentage of what was requested; samples of other pods don't count."""

    def measure(values: Values) -> Usage:
        known = [name for name in values if name in requests]
        used, requested = sum(values[name] for name in known), sum(requests[name] for name in known)
        if not requested:
            raise CannotCompute("no metrics belong to pods of the target")
        percent = max(-MOST_REPLICAS, min(MOST_REPLICAS, quotient(used * 100, requested)))
        return Usage(percent / target, quotient(used, len(known)), percent)

    return measure


#   pods without metrics count        when the ratio of the others is
#     as `full(name)`                 below 1.0
#     as nothing                      above 1.0
#   pods that are not ready count
#     not at all                      below 1.0
#     as nothing                      above 1.0
def per_pod(
    measure: Measure,
    samples: Mapping[str, PodMetric],
    groups: Groups,
    current: int,
    tolerance: Tolerance,
    full: Callable[[str], int],
) -> Counted:
    """Return how many replicas bring what pods use to its target."""
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
    """Return how many replicas bring one value to its target if it shrinks as they grow; `ready()` counts the pods.

    Without replicas each share of the target needs one, and no tolerance keeps them from beginning.
    """
    ratio = value / target
    if current == 0:
        return replicas_of(ratio)
    return current if tolerance.covers(ratio) else replicas_of(ratio * ready())


def by_average(there: int, value: int, target: int, tolerance: Tolerance) -> tuple[int, int]:
    """Return how many replicas bring the share of each in a value to its target, and that share as it is now."""
    if there == 0:
        return replicas_of(value / target), value
    share = value if value >= LARGEST else math.ceil(value / there)
    within = tolerance.covers(value / (target * there))
    return there if within else replicas_of(value / target), share
