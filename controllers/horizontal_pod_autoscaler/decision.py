"""Decides how many replicas a target shall have, why, and what is told of that; pure.

the target has                                 decided
no replicas, and it is not we who did that     nothing: scaling is disabled
more than the maximum                          the maximum
fewer than the minimum                         the minimum
no selector, or pods of another autoscaler     nothing: it can't be computed
else                                           what its metrics agree on, as far as the limits allow
"""

from collections.abc import Sequence

import msgspec

from controller_manager.common.api.autoscaling import (
    AutoscalerSpec,
    HorizontalPodAutoscaler,
    MetricStatus,
    ScalingRules,
)
from controller_manager.common.api.conditions import is_condition_true

from .limits import SCALED_TO_ZERO, SCALING_ACTIVE, Bounds, ConditionUpdate, History, normalize, normalize_with_behavior
from .proposals import (
    Failure,
    Proposal,
    agree,
    complaint,
    statuses,
)
from .replicas import Tolerance, approximate


class ScalingDefaults(msgspec.Struct, frozen=True):
    """Settings of all autoscalers: flags, and which features are on."""

    tolerance: float
    stabilization: float
    to_zero: bool
    own_tolerance: bool


class ScaleDecision(msgspec.Struct, frozen=True):
    """A number of replicas, and if that is a change, its reason.

    `failures` are metrics that did not count, and `problem` is what is wrong with them; without `agreed` they kept
    everything from being decided.
    """

    replicas: int
    reason: str = ""
    updates: tuple[ConditionUpdate, ...] = ()
    metrics: tuple[MetricStatus, ...] = ()
    failures: tuple[Failure, ...] = ()
    problem: str = ""
    agreed: bool = True


def bounds_of(spec: AutoscalerSpec, rules: ScalingDefaults) -> Bounds:
    """Return how few and how many replicas there may be."""
    return Bounds(spec.min_replicas if rules.to_zero else max(1, spec.min_replicas), spec.max_replicas)


def tolerance_of(spec: AutoscalerSpec, rules: ScalingDefaults) -> Tolerance:
    """Return how far metrics may be from their targets."""
    behavior = spec.behavior if rules.own_tolerance else None
    down, up = (behavior.scale_down, behavior.scale_up) if behavior else (None, None)
    return Tolerance(_own(down, rules.tolerance), _own(up, rules.tolerance))


def _own(rules: ScalingRules | None, default: float) -> float:
    return default if rules is None or rules.tolerance is None else approximate(rules.tolerance)


def without_metrics(autoscaler: HorizontalPodAutoscaler, current: int, rules: ScalingDefaults) -> ScaleDecision | None:
    """Return what can be decided without metrics; None when they are needed."""
    spec = autoscaler.spec
    low, high = bounds_of(spec, rules)
    if current == 0 and not _wakes(autoscaler, rules):
        update = ConditionUpdate(
            SCALING_ACTIVE, False, "ScalingDisabled", "the target has no replicas, which disables scaling"
        )
        return ScaleDecision(0, updates=(update,))
    if current > high:
        return ScaleDecision(high, "more replicas than there may be, above Spec.MaxReplicas")
    if current < low:
        return ScaleDecision(low, "fewer replicas than there must be, below Spec.MinReplicas")
    return None


def _wakes(autoscaler: HorizontalPodAutoscaler, rules: ScalingDefaults) -> bool:
    """Return whether it looks after a target without replicas: only if it is what took them all (KEP-2021).

    Then it wakes the target too when the minimum has been raised since, whatever metrics it has now.
    """
    if not rules.to_zero or not is_condition_true(autoscaler.status.conditions, SCALED_TO_ZERO):
        return False
    return autoscaler.spec.min_replicas > 0 or _sees_from_outside(autoscaler.spec)


def _sees_from_outside(spec: AutoscalerSpec) -> bool:
    """Return whether a metric tells something when there are no pods."""
    return any(metric.type in ("Object", "External") for metric in spec.metrics)


def undecided(failure: Failure, current: int) -> ScaleDecision:
    """Nothing is changed, since metrics can't even be asked for."""
    update = ConditionUpdate(SCALING_ACTIVE, False, failure.reason, failure.message)
    return ScaleDecision(current, updates=(update,), failures=(failure,), problem=failure.message, agreed=False)


def by_metrics(
    autoscaler: HorizontalPodAutoscaler,
    current: int,
    proposals: Sequence[Proposal | Failure],
    history: History,
    rules: ScalingDefaults,
    now: float,
) -> ScaleDecision:
    """Return what the metrics decide at a time of the history's clock, which notes what they recommend."""
    spec, measured = autoscaler.spec, statuses(proposals)
    agreed = agree(proposals, current)
    failures = tuple(one for one in proposals if isinstance(one, Failure))
    problem = complaint(failures, len(proposals)) if failures or isinstance(agreed, Failure) else ""
    if isinstance(agreed, Failure):
        message = f"the number of replicas can't be computed: {agreed.message}"
        update = ConditionUpdate(SCALING_ACTIVE, False, agreed.reason, message)
        return ScaleDecision(current, "", (update,), measured, failures, problem, agreed=False)
    bounds, window = bounds_of(spec, rules), rules.stabilization
    recommended = max(0, agreed.replicas)
    if spec.behavior is None:
        limited = normalize(recommended, current, bounds, history, window, now)
    else:
        limited = normalize_with_behavior(spec.behavior, recommended, current, bounds, history, window, now)
    active = ConditionUpdate(
        SCALING_ACTIVE, True, "ValidMetricFound", f"a number of replicas was computed from {agreed.metric}"
    )
    reason = f"{agreed.metric} is above its target" if recommended > current else "no metric is above its target"
    return ScaleDecision(
        limited.replicas,
        reason if limited.replicas != current else "",
        (active, *limited.updates),
        measured,
        failures,
        problem,
    )


def zero_updates(
    autoscaler: HorizontalPodAutoscaler, current: int, desired: int, rules: ScalingDefaults
) -> tuple[ConditionUpdate, ...]:
    """Return whether there are no replicas because we took them: what tells that apart from a person who did."""
    if not rules.to_zero:
        return ()
    if desired == current:
        stands = current == 0 or not is_condition_true(autoscaler.status.conditions, SCALED_TO_ZERO)
        return () if stands else (_not_by_us(),)
    if desired == 0 and _sees_from_outside(autoscaler.spec):
        return (
            ConditionUpdate(
                SCALED_TO_ZERO, True, SCALED_TO_ZERO, "the autoscaler took the last replicas of the target"
            ),
        )
    return (_not_by_us(),)


def _not_by_us() -> ConditionUpdate:
    return ConditionUpdate(
        SCALED_TO_ZERO, False, "NotScaledToZero", "the autoscaler did not take the last replicas of the target"
    )
