"""Seats of priority levels: shares and borrowing (KEP-1040, Concurrency limits and Borrowing); pure."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from apiserver_stub.flow_control.configuration import Limited, PriorityLevelConfiguration, Queuing

_SMOOTHING = 0.977  # per 10 seconds: the weight of the past halves in five minutes
_LEAST_TARGET = 0.001
_EPSILON = 1e-7
_SEATS_OF_ONE = 0.15  # the part of a level's seats that one request may have


class SeatLimits(NamedTuple):
    """Seats of a level: nominal by its share, the minimum after lending, and the maximum with borrowing."""

    nominal: int
    lower: int
    upper: int


class Demand(NamedTuple):
    """The seats in use or requested in a level over `seconds`: average, standard deviation and maximum."""

    seconds: float = 0.0
    average: float = 0.0
    deviation: float = 0.0
    highest: int = 0


class Need(NamedTuple):
    """The data of a level for dividing seats."""

    limits: SeatLimits
    highest: int
    smoothed: float
    exempt: bool = False

    @property
    def least(self) -> int:
        """The seats needed now: the demand, up to the nominal seats."""
        lower, highest = self.limits.lower, self.highest
        return max(lower, highest if self.exempt else min(self.limits.nominal, highest))

    @property
    def target(self) -> float:
        """The seats that it would use."""
        return max(float(self.least), self.smoothed)


class Division(NamedTuple):
    """A division of seats: by level, and the fraction of its target that each level gets within its limits."""

    seats: Mapping[str, int]
    fair_fraction: float


class SeatRange(NamedTuple):
    """The bounds for a level's seats, which should be near the common multiple of its target."""

    lower: float
    target: float
    upper: float

    def at(self, fraction: float) -> float:
        """Return the seats if all levels get this fraction of their targets."""
        return min(max(fraction * self.target, self.lower), self.upper)


def limits_of(levels: Mapping[str, PriorityLevelConfiguration], total: int) -> dict[str, SeatLimits]:
    """Return the limits of levels that share `total` seats; results are rounded up, so their sum may be larger."""
    sum_of_shares = max(1, sum(level.shares.nominal_concurrency_shares for level in levels.values()))
    found: dict[str, SeatLimits] = {}
    for name, level in levels.items():
        shares = level.shares
        nominal = math.ceil(total * shares.nominal_concurrency_shares / sum_of_shares)
        percent = shares.borrowing_limit_percent if isinstance(shares, Limited) else None
        borrowed = total if percent is None else _percent(nominal, percent)
        found[name] = SeatLimits(nominal, nominal - _percent(nominal, shares.lendable_percent), nominal + borrowed)
    return found


def first_seats(limits: SeatLimits) -> int:
    """Return the initial seats of a level without known demand: half of the lendable seats are lent."""
    return limits.nominal - (limits.nominal - limits.lower) // 2


def most_seats_of_one(limits: SeatLimits, queuing: Queuing | None) -> int:
    """Return the maximum seats of one request in a level; 0 leaves it to the estimate."""
    if queuing is None:
        return 0
    return max(1, min(math.ceil(limits.nominal * _SEATS_OF_ONE), limits.nominal // queuing.hand_size))


def smooth(smoothed: float, demand: Demand) -> float:
    """Return the smoothed demand after another period: it rises at once and decays slowly."""
    if demand.seconds <= 0:
        return smoothed
    envelope = demand.average + demand.deviation
    return max(envelope, _SMOOTHING * smoothed + (1 - _SMOOTHING) * envelope)


def divide(needs: Mapping[str, Need]) -> Division:
    """Return the seats of each level, so that all get the same share of their demand as far as their limits allow.

    Exempt levels get what they need. If the rest is too small, each other level gets the same fraction of its need
    beyond its lower limit; otherwise they divide all seats, as in kube-apiserver.
    """
    seats = {name: need.least for name, need in needs.items() if need.exempt}
    limited = {name: need for name, need in needs.items() if not need.exempt}
    total = sum(need.limits.nominal for need in needs.values())
    left = total - sum(seats.values())
    lower = sum(need.limits.lower for need in limited.values())
    least = sum(need.least for need in limited.values())
    if left <= least:
        part = max(0, left - lower) / (least - lower) if least > lower else 0.0
        for name, need in limited.items():
            seats[name] = need.limits.lower + rounded((need.least - need.limits.lower) * part)
        return Division(seats, 0.0)
    ranges = [SeatRange(need.least, max(need.target, _LEAST_TARGET), need.limits.upper) for need in limited.values()]
    fraction = fair_fraction(total, ranges)
    seats.update((name, rounded(range_.at(fraction))) for name, range_ in zip(limited, ranges, strict=True))
    return Division(seats, fraction)


def fair_fraction(required: float, ranges: Sequence[SeatRange]) -> float:
    """Return the fraction of all targets at which the seats sum up to `required`, or come closest to it."""
    bounds = sorted({bound / each.target for each in ranges for bound in (each.lower, each.upper)})
    if not bounds:
        return 0.0
    reached, at = bounds[0], sum(each.at(bounds[0]) for each in ranges)
    for bound in bounds[1:]:
        if at >= required - _EPSILON:
            return reached
        more = sum(each.at(bound) for each in ranges)
        if more >= required:  # the sum is linear between two bounds
            return reached + (bound - reached) * (required - at) / (more - at)
        reached, at = bound, more
    return reached


def _percent(seats: int, percent: int) -> int:
    return rounded(seats * percent / 100)


def rounded(value: float) -> int:
    """Return the nearest integer; halves are rounded up."""
    return math.floor(value + 0.5)
