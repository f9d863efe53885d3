"""Limits of a recommendation: stabilization, rate of change and bounds, with the history that they need; pure.

Times are those of one monotonic clock.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from controller_manager.common.api.autoscaling import Behavior, ScalingPolicy, ScalingRules
from controller_manager.common.api.conditions import Condition, with_conditions

ABLE_TO_SCALE = "AbleToScale"
SCALING_ACTIVE = "ScalingActive"
SCALING_LIMITED = "ScalingLimited"
SCALED_TO_ZERO = "ScaledToZero"
_PERIOD = 15
_DOUBLE = ScalingPolicy(type="Percent", value=100, period_seconds=_PERIOD)
# The default rules of the API.
FAST_UP = ScalingRules(policies=(ScalingPolicy(type="Pods", value=4, period_seconds=_PERIOD), _DOUBLE))
FAST_DOWN = ScalingRules(policies=(_DOUBLE,))
# Without a behavior, the maximum factor per change, and the number of replicas always allowed.
_FACTOR, _AT_LEAST = 2, 4
_WITHIN = "DesiredWithinRange", "the recommendation is within the limits"
_TOO_MANY = "TooManyReplicas", "more replicas are recommended than the maximum"
_TOO_FEW = "TooFewReplicas", "fewer replicas are recommended than the minimum"
_TOO_FAST = "ScaleUpLimit", "the recommendation grows faster than replicas may be added"
_TOO_SOON = "ScaleDownLimit", "the recommendation falls faster than replicas may be taken away"
_READY = "ReadyForNewScale", "nothing recommended recently holds off the recommendation"
_HELD_UP = "ScaleUpStabilized", "recent recommendations were lower; the lowest of them counts"
_HELD_DOWN = "ScaleDownStabilized", "recent recommendations were higher; the highest of them counts"


class ConditionUpdate(NamedTuple):
    """The new state of a condition."""

    type: str
    holds: bool
    reason: str
    message: str


def with_updates(
    conditions: Sequence[Condition], updates: Iterable[ConditionUpdate], now: str
) -> tuple[Condition, ...]:
    """Return the conditions with the updates applied, the last of a type. `now` is the transition time."""
    news = (
        Condition(type=one.type, status="True" if one.holds else "False", reason=one.reason, message=one.message)
        for one in updates
    )
    return with_conditions(conditions, news, now)


class _Extreme:
    """The extreme of the values in a time window. Its memory does not grow with the window."""

    def __init__(self, beats: Callable[[int, int], bool]) -> None:
        # In order of time, and each more extreme than the following ones.
        self._values: deque[tuple[float, int]] = deque()
        self._beats = beats

    def note(self, now: float, value: int) -> None:
        while self._values and not self._beats(self._values[-1][1], value):
            self._values.pop()
        self._values.append((now, value))

    def since(self, time: float) -> int | None:
        """Return the most extreme value after a time, and drop older ones."""
        while self._values and self._values[0][0] <= time:
            self._values.popleft()
        return self._values[0][1] if self._values else None


class ReplicaChanges:
    """Numbers of added or removed replicas by time. Changes within a second are merged."""

    _GRAIN = 1.0

    def __init__(self) -> None:
        self._changes: deque[tuple[float, int]] = deque()

    def note(self, now: float, count: int) -> None:
        """Record a number of added or removed replicas."""
        if self._changes and now - self._changes[-1][0] < self._GRAIN:
            count += self._changes.pop()[1]
        self._changes.append((now, count))

    def since(self, time: float) -> int:
        """Return the sum of the changes after a time."""
        return sum(count for at, count in self._changes if at > time)

    def forget(self, time: float) -> None:
        """Drop changes up to a time."""
        while self._changes and self._changes[0][0] <= time:
            self._changes.popleft()


class History:
    """The history of one autoscaler with that `uid`, starting with the replicas first observed.

    This prevents scaling down right after a start, when earlier recommendations are unknown.
    """

    _LONGEST_PERIOD = 1800.0  # of policies, as the API allows
    _LONGEST_WINDOW = 3600.0  # of scaling up, too

    def __init__(self, uid: str, now: float, replicas: int) -> None:
        self.uid = uid
        self.added = ReplicaChanges()
        self.removed = ReplicaChanges()
        self._highest = _Extreme(lambda one, other: one > other)
        self._lowest = _Extreme(lambda one, other: one < other)
        self.recommended(now, replicas)

    def recommended(self, now: float, replicas: int) -> None:
        """Record a recommendation of the metrics."""
        self._highest.note(now, replicas)
        self._lowest.note(now, replicas)
        self._lowest.since(now - self._LONGEST_WINDOW)  # bounds the memory if recommendations only rise

    def highest(self, now: float, window: float, replicas: int) -> int:
        """Return the maximum of `replicas` and the recommendations in the window."""
        past = self._highest.since(now - window)
        return replicas if past is None else max(past, replicas)

    def lowest(self, now: float, window: float, replicas: int) -> int:
        """Return the minimum of `replicas` and the recommendations in the window."""
        past = self._lowest.since(now - window)
        return replicas if past is None else min(past, replicas)

    def scaled(self, now: float, before: int, after: int) -> None:
        """Record that the target was scaled to `after` replicas."""
        if after > before:
            self.added.note(now, after - before)
        else:
            self.removed.note(now, before - after)
        for changes in (self.added, self.removed):
            changes.forget(now - self._LONGEST_PERIOD)

    def change(self, now: float, period: float) -> int:
        """Return the change of replicas in a period; negative if the target was scaled down."""
        return self.added.since(now - period) - self.removed.since(now - period)


class Bounds(NamedTuple):
    """The minimum and maximum replicas."""

    low: int
    high: int


class Limited(NamedTuple):
    """The limited number of replicas, and the conditions about it."""

    replicas: int
    updates: tuple[ConditionUpdate, ...]


class _Limit(NamedTuple):
    replicas: int
    reason: str
    message: str


def normalize(recommended: int, current: int, bounds: Bounds, history: History, window: float, now: float) -> Limited:
    """Limit a recommendation without a behavior. The highest one in `window` seconds counts."""
    stable = history.highest(now, window, recommended)
    history.recommended(now, recommended)
    fastest = max(_FACTOR * current, _AT_LEAST)
    highest, why = (fastest, _TOO_FAST) if fastest < bounds.high else (bounds.high, _TOO_MANY)
    if stable < bounds.low:
        limit = _Limit(bounds.low, *_TOO_FEW)
    else:
        limit = _Limit(highest, *why) if stable > highest else _Limit(stable, *_WITHIN)
    return Limited(limit.replicas, (_stability(recommended, stable, _HELD_DOWN), _limitation(stable, limit)))


def normalize_with_behavior(
    behavior: Behavior, recommended: int, current: int, bounds: Bounds, history: History, window: float, now: float
) -> Limited:
    """Limit a recommendation by a behavior; `window` is the default for scaling down.

    The lowest recommendation in the window counts for scaling up, the highest for scaling down. Between them nothing
    changes.
    """
    up, down = behavior.scale_up or FAST_UP, behavior.scale_down or FAST_DOWN
    lowest = history.lowest(now, _window(up, 0.0), recommended)
    highest = history.highest(now, _window(down, window), recommended)
    history.recommended(now, recommended)
    stable = min(max(current, lowest), highest)
    if stable > current:
        limit = _upward(stable, current, bounds, history, up, now)
    elif stable < current:
        limit = _downward(stable, current, bounds, history, down, now)
    else:
        limit = _Limit(stable, *_WITHIN)
    held = _HELD_UP if recommended >= current else _HELD_DOWN
    return Limited(limit.replicas, (_stability(recommended, stable, held), _limitation(stable, limit)))


def _window(rules: ScalingRules, default: float) -> float:
    seconds = rules.stabilization_window_seconds
    return default if seconds is None else float(seconds)


def _upward(wanted: int, current: int, bounds: Bounds, history: History, rules: ScalingRules, now: float) -> _Limit:
    fastest = max(current, most(current, history, rules, now))
    limit, why = (fastest, _TOO_FAST) if fastest < bounds.high else (bounds.high, _TOO_MANY)
    return _Limit(limit, *why) if wanted > limit else _Limit(wanted, *_WITHIN)


def _downward(wanted: int, current: int, bounds: Bounds, history: History, rules: ScalingRules, now: float) -> _Limit:
    fastest = min(current, fewest(current, history, rules, now))
    limit, why = (fastest, _TOO_SOON) if fastest > bounds.low else (bounds.low, _TOO_FEW)
    return _Limit(limit, *why) if wanted < limit else _Limit(wanted, *_WITHIN)


def most(current: int, history: History, rules: ScalingRules, now: float) -> int:
    """Return the maximum replicas by the policies for scaling up."""
    starts = _starts(current, history, rules.policies, now)
    limits = [
        start + policy.value if policy.type == "Pods" else math.ceil(start * (1 + policy.value / 100))
        for start, policy in starts
    ]
    return _selected(rules, limits, current, more=True)


def fewest(current: int, history: History, rules: ScalingRules, now: float) -> int:
    """Return the minimum replicas by the policies for scaling down."""
    starts = _starts(current, history, rules.policies, now)
    limits = [
        start - policy.value if policy.type == "Pods" else int(start * (1 - policy.value / 100))
        for start, policy in starts
    ]
    return _selected(rules, limits, current, more=False)


def _starts(
    current: int, history: History, policies: Iterable[ScalingPolicy], now: float
) -> list[tuple[int, ScalingPolicy]]:
    """Return the replicas at the start of each policy's period."""
    return [(current - history.change(now, policy.period_seconds), policy) for policy in policies]


def _selected(rules: ScalingRules, limits: list[int], current: int, *, more: bool) -> int:
    if rules.select_policy == "Disabled" or not limits:
        return current
    widest = rules.select_policy != "Min"
    return max(limits) if widest is more else min(limits)


def _stability(recommended: int, stable: int, held: tuple[str, str]) -> ConditionUpdate:
    return ConditionUpdate(ABLE_TO_SCALE, True, *(_READY if stable == recommended else held))


def _limitation(stable: int, limit: _Limit) -> ConditionUpdate:
    return ConditionUpdate(SCALING_LIMITED, limit.replicas != stable, limit.reason, limit.message)
