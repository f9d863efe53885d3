"""Limits to following a recommendation: stabilization, the speed of change, and the bounds; and what was recommended
and done in the past, as far as it limits what may be done now; pure.

Times are those of one clock that never runs backwards.
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
# What rules say that nobody set, as the API documents it.
FAST_UP = ScalingRules(policies=(ScalingPolicy(type="Pods", value=4, period_seconds=_PERIOD), _DOUBLE))
FAST_DOWN = ScalingRules(policies=(_DOUBLE,))
# Without a behavior at most this factor at once, but up to so many replicas whatever there are.
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
    """Return the conditions with all updates, the last of a type counting; `now` is the time of what turns."""
    news = (
        Condition(type=one.type, status="True" if one.holds else "False", reason=one.reason, message=one.message)
        for one in updates
    )
    return with_conditions(conditions, news, now)


class _Extreme:
    """The most extreme of the values of a period, in memory that does not grow with it."""

    def __init__(self, beats: Callable[[int, int], bool]) -> None:
        # In order of time, and each more extreme than those after it.
        self._values: deque[tuple[float, int]] = deque()
        self._beats = beats

    def note(self, now: float, value: int) -> None:
        while self._values and not self._beats(self._values[-1][1], value):
            self._values.pop()
        self._values.append((now, value))

    def since(self, time: float) -> int | None:
        """The most extreme value after a time, forgetting those before."""
        while self._values and self._values[0][0] <= time:
            self._values.popleft()
        return self._values[0][1] if self._values else None


class ReplicaChanges:
    """The numbers of replicas that were added, or taken away, by time; changes within a second are one."""

    _GRAIN = 1.0

    def __init__(self) -> None:
        self._changes: deque[tuple[float, int]] = deque()

    def note(self, now: float, count: int) -> None:
        """Note so many more."""
        if self._changes and now - self._changes[-1][0] < self._GRAIN:
            count += self._changes.pop()[1]
        self._changes.append((now, count))

    def since(self, time: float) -> int:
        """Return how many after a time."""
        return sum(count for at, count in self._changes if at > time)

    def forget(self, time: float) -> None:
        """Drop what was before."""
        while self._changes and self._changes[0][0] <= time:
            self._changes.popleft()


class History:
    """The past of one autoscaler, that of `uid`; it begins with the replicas its target had when it was first seen.

    So nothing is scaled down right after a start: what was recommended before it, nobody remembers.
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
        """Note what metrics recommend."""
        self._highest.note(now, replicas)
        self._lowest.note(now, replicas)
        self._lowest.since(now - self._LONGEST_WINDOW)  # nobody may ever ask, and recommendations may rise for years

    def highest(self, now: float, window: float, replicas: int) -> int:
        """The highest of `replicas` and what was recommended in so many seconds."""
        past = self._highest.since(now - window)
        return replicas if past is None else max(past, replicas)

    def lowest(self, now: float, window: float, replicas: int) -> int:
        """The lowest of the same."""
        past = self._lowest.since(now - window)
        return replicas if past is None else min(past, replicas)

    def scaled(self, now: float, before: int, after: int) -> None:
        """Note that the target was told to have `after` replicas."""
        if after > before:
            self.added.note(now, after - before)
        else:
            self.removed.note(now, before - after)
        for changes in (self.added, self.removed):
            changes.forget(now - self._LONGEST_PERIOD)

    def change(self, now: float, period: float) -> int:
        """Return by how many replicas the target grew in so many seconds; negative if it shrank."""
        return self.added.since(now - period) - self.removed.since(now - period)


class Bounds(NamedTuple):
    """The fewest and the most replicas there may be."""

    low: int
    high: int


class Limited(NamedTuple):
    """The number that is left of a recommendation, and the conditions that tell of it."""

    replicas: int
    updates: tuple[ConditionUpdate, ...]


class _Limit(NamedTuple):
    replicas: int
    reason: str
    message: str


def normalize(recommended: int, current: int, bounds: Bounds, history: History, window: float, now: float) -> Limited:
    """Follow a recommendation of an autoscaler without a behavior: the highest one of `window` seconds counts."""
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
    """Follow a recommendation as a behavior says; `window` is that of scaling down, if it does not say.

    Of the recommendations of a window the lowest counts for scaling up and the highest for scaling down: within the
    two nothing is changed.
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
    """Return how many replicas there may be at once by the policies for scaling up."""
    starts = _starts(current, history, rules.policies, now)
    limits = [
        start + policy.value if policy.type == "Pods" else math.ceil(start * (1 + policy.value / 100))
        for start, policy in starts
    ]
    return _selected(rules, limits, current, more=True)


def fewest(current: int, history: History, rules: ScalingRules, now: float) -> int:
    """Return how few replicas there may be at once by the policies for scaling down."""
    starts = _starts(current, history, rules.policies, now)
    limits = [
        start - policy.value if policy.type == "Pods" else int(start * (1 - policy.value / 100))
        for start, policy in starts
    ]
    return _selected(rules, limits, current, more=False)


def _starts(
    current: int, history: History, policies: Iterable[ScalingPolicy], now: float
) -> list[tuple[int, ScalingPolicy]]:
    """For each policy, how many replicas there were when its period began."""
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
