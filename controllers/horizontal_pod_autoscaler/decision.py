"""Decides the replicas of a target, the reason, and the conditions; pure.

the target has                                decision
no replicas, not set by the autoscaler         none: scaling is disabled
more than the maximum                         the maximum
fewer than the minimum                        the minimum
no selector, or pods of another autoscaler    none: cannot be computed
otherwise                                     the result of its metrics, within the limits
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
    """Settings of all autoscalers: flags and feature gates."""

    tolerance: float
    stabilization: float
    to_zero: bool
    own_tolerance: bool


class ScaleDecision(msgspec.Struct, frozen=True):
    """A number of replicas, with the reason if it is a change.

    `failures` are metrics that failed, and `problem` describes them. Without `agreed` they prevented a decision.
    """

    replicas: int
    reason: str = ""
    updates: tuple[ConditionUpdate, ...] = ()
    metrics: tuple[MetricStatus, ...] = ()
    failures: tuple[Failure, ...] = ()
    problem: str = ""
    agreed: bool = True


def bounds_of(spec: AutoscalerSpec, rules: ScalingDefaults) -> Bounds:
    """Return the minimum and maximum replicas."""
    return Bounds(spec.min_replicas if rules.to_zero else max(1, spec.min_replicas), spec.max_replicas)


def tolerance_of(spec: AutoscalerSpec, rules: ScalingDefaults) -> Tolerance:
    """Return the tolerance of metrics."""
    behavior = spec.behavior if rules.own_tolerance else None
    down, up = (behavior.scale_down, behavior.scale_up) if behavior else (None, None)
    return Tolerance(_own(down, rules.tolerance), _own(up, rules.tolerance))


def _own(rules: ScalingRules | None, default: float) -> float:
    return default if rules is None or rules.tolerance is None else approximate(rules.tolerance)


def without_metrics(autoscaler: HorizontalPodAutoscaler, current: int, rules: ScalingDefaults) -> ScaleDecision | None:
    """Return the decision if it does not need metrics, else None."""
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
    """Return whether a target without replicas is autoscaled: only if the autoscaler scaled it to zero (KEP-2021).

    If the minimum was raised since, the target is scaled up whatever metrics it has.
    """
    if not rules.to_zero or not is_condition_true(autoscaler.status.conditions, SCALED_TO_ZERO):
        return False
    return autoscaler.spec.min_replicas > 0 or _sees_from_outside(autoscaler.spec)


def _sees_from_outside(spec: AutoscalerSpec) -> bool:
    """Return whether a metric has values without pods."""
    return any(metric.type in ("Object", "External") for metric in spec.metrics)


def undecided(failure: Failure, current: int) -> ScaleDecision:
    """Return the decision to change nothing, because metrics cannot be requested."""
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
    """Return the decision by metrics at a time of the history's clock. Recommendations are recorded in the history."""
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
    """Return the condition that records whether the autoscaler, not a user, scaled the target to zero."""
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
