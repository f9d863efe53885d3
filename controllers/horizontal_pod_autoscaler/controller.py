"""Reconciles every autoscaler once per period and scales its target to the replicas that the metrics require."""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from controller_manager.common.api.autoscaling import (
    HORIZONTAL_POD_AUTOSCALERS,
    AutoscalerStatus,
    HorizontalPodAutoscaler,
    Scale,
    ScaleResource,
)
from controller_manager.common.api.core import PODS
from controller_manager.common.api.errors import ApiError, Conflict
from controller_manager.common.api.metrics import CUSTOM_METRICS, EXTERNAL_METRICS, RESOURCE_METRICS
from controller_manager.common.api.resource import key_of
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base import clock
from controller_manager.common.base.random import random_source
from controller_manager.framework import (
    Add,
    Change,
    Context,
    ControllerSpec,
    Duration,
    Informers,
    Int32,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    flag,
    try_write,
    update_status,
)

from ..shared.pods import PODS_BY_LABEL
from ..shared.scales import NoSuchKind, RESTMapper, Scales
from .decision import ScaleDecision, ScalingDefaults, by_metrics, undecided, without_metrics, zero_updates
from .limits import ABLE_TO_SCALE, SCALED_TO_ZERO, ConditionUpdate, History, with_updates
from .monitor import Monitor, action_of
from .proposals import Failure
from .replica_calculator import ReplicaCalculator
from .replicas import Startup


class AutoscalerOptions(Options):
    """Periods and limits of autoscaling."""

    title = "Horizontal pod autoscaler controller"

    concurrent_horizontal_pod_autoscaler_syncs: Int32 = flag(
        5, "autoscalers that write at the same time; metrics are fetched for many more", minimum=1
    )
    horizontal_pod_autoscaler_sync_period: Duration = flag(
        "15s", "how often the number of pods is looked at", minimum=0.001
    )
    horizontal_pod_autoscaler_downscale_stabilization: Duration = flag(
        "5m", "how long back the highest number that was recommended holds off a smaller one", minimum=0
    )
    horizontal_pod_autoscaler_cpu_initialization_period: Duration = flag(
        "5m", "how long after a pod's start its use of CPU may be left out", minimum=0
    )
    horizontal_pod_autoscaler_initial_readiness_delay: Duration = flag(
        "30s", "how long after a pod's start a change of its readiness counts as its first", minimum=0
    )
    horizontal_pod_autoscaler_tolerance: float = flag(
        0.1, "how far the ratio of actual to wanted may be from 1.0 before anything is scaled", minimum=0
    )


# Maximum autoscalers reconciled concurrently. They mostly wait for metrics, possibly of an API that hangs, and must not
# block others. Scale reads, metric requests and writes have limits of their own.
_LOOKS = 5000
# Seconds until an autoscaler or target is reconciled again that changed during a reconcile.
_PAUSE = 1.0
# Maximum events about failed metrics per reconcile. The recorder would drop more of them anyway.
_MOST_EVENTS = 25
# Factor for the client's rate limit: a reconcile takes two requests, for thousands of autoscalers per period.
_QPS_FACTOR = 50

_TO_ZERO = "HPAScaleToZero"
_OWN_TOLERANCE = "HPAConfigurableTolerance"


class _Seen(NamedTuple):
    """An autoscaler and the scale of its target."""

    autoscaler: HorizontalPodAutoscaler
    resource: ScaleResource
    scale: Scale


class AutoscalerController:
    """Reconciles autoscalers; `decision` has the table of decisions.

    A key is reconciled when its spec changes, and once per period. The first reconciles are spread over the period.
    """

    def __init__(self, context: Context, options: AutoscalerOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._log = context.log
        self._autoscalers = context.informers.get(HORIZONTAL_POD_AUTOSCALERS)
        self._period = options.horizontal_pod_autoscaler_sync_period
        self._rules = ScalingDefaults(
            options.horizontal_pod_autoscaler_tolerance,
            options.horizontal_pod_autoscaler_downscale_stabilization,
            to_zero=context.enabled(_TO_ZERO),
            own_tolerance=context.enabled(_OWN_TOLERANCE),
        )
        startup = Startup(
            options.horizontal_pod_autoscaler_cpu_initialization_period,
            options.horizontal_pod_autoscaler_initial_readiness_delay,
        )
        mapper = RESTMapper(context.client)
        self._targets = Scales(context.client, mapper)
        self._monitor = Monitor(context.runtime.registry, self._autoscalers)
        self._calculator = ReplicaCalculator(context, mapper, self._rules, startup, self._monitor)
        self._syncs = asyncio.Semaphore(options.concurrent_horizontal_pod_autoscaler_syncs)
        self._histories: dict[Key, History] = {}

    async def run(self, add: Add) -> None:
        """Enqueue all autoscalers with random delays, so that their periods do not end together."""
        for autoscaler in self._autoscalers.list():
            add(key_of(autoscaler), "first look", after=random_source().uniform(0.0, self._period))
        await asyncio.Event().wait()

    async def reconcile(self, key: Key) -> Requeue | None:
        """Scale the target of autoscaler `key` and write the status."""
        autoscaler, began = self._autoscalers.get(key), clock.monotonic()
        if autoscaler is None:
            self._histories.pop(key, None)
            self._calculator.forget(key)
            return None
        action, error, due = "none", "internal", began + self._period
        try:
            action, error = await self._look(autoscaler)
        except Conflict:
            due = min(due, clock.monotonic() + _PAUSE)
        except (ApiError, OSError) as problem:
            # Metrics are not fresher before the period ends, and waiting must not exceed it.
            self._log.warning("failed to reconcile HorizontalPodAutoscaler", autoscaler=str(key), error=problem)
        finally:
            self._monitor.looked(action, error, clock.monotonic() - began)
        return Requeue(max(0.0, due - clock.monotonic()))

    async def _look(self, autoscaler: HorizontalPodAutoscaler) -> tuple[str, str]:
        """Return the action and the kind of error, as metric labels."""
        try:
            target = autoscaler.spec.scale_target_ref
            seen = _Seen(autoscaler, *await self._targets.get(autoscaler.metadata.namespace, target))
        except (NoSuchKind, ApiError, OSError) as error:
            await self._report_missing_scale(autoscaler, str(error))
            return "none", "spec" if isinstance(error, NoSuchKind) else "internal"
        current = seen.scale.spec.replicas
        history = self._history(autoscaler, current)
        decision = without_metrics(autoscaler, current, self._rules)
        proposals = [] if decision else await self._calculator.proposals(autoscaler, seen.scale)
        async with self._syncs:
            self._check(autoscaler)
            if isinstance(proposals, Failure):
                decision = undecided(proposals, current)
            elif decision is None:
                decision = by_metrics(autoscaler, current, proposals, history, self._rules, clock.monotonic())
            scaled = await self._act(seen, decision, history)
        error_label = "none"
        if decision.problem or scaled is False:
            error_label = "spec" if any(one.of_spec for one in decision.failures) else "internal"
        return action_of(current, decision.replicas) if scaled else "none", error_label

    def _history(self, autoscaler: HorizontalPodAutoscaler, current: int) -> History:
        key, uid = key_of(autoscaler), autoscaler.metadata.uid
        history = self._histories.get(key)
        if history is None or history.uid != uid:
            history = self._histories[key] = History(uid, clock.monotonic(), current)
        return history

    def _check(self, autoscaler: HorizontalPodAutoscaler) -> None:
        """Raise Conflict if the autoscaler has changed since its reconcile began."""
        now = self._autoscalers.get(key_of(autoscaler))
        if now is None or now.metadata.uid != autoscaler.metadata.uid or now.spec != autoscaler.spec:
            raise Conflict("the autoscaler changed while its metrics were asked for")

    async def _act(self, seen: _Seen, decision: ScaleDecision, history: History) -> bool | None:
        """Scale if necessary, and write status and events. Return whether the target was scaled; None if not
        necessary.
        """
        autoscaler, current = seen.autoscaler, seen.scale.spec.replicas
        for one in decision.failures[:_MOST_EVENTS]:
            self._events.warning(autoscaler, one.event or one.reason, one.message)
        if decision.problem and not decision.agreed:
            self._events.warning(autoscaler, "FailedComputeMetricsReplicas", decision.problem)
        updates = (
            ConditionUpdate(ABLE_TO_SCALE, True, "SucceededGetScale", "the scale of the target was read"),
            *decision.updates,
        )
        if decision.replicas == current:
            desired = current if decision.agreed else autoscaler.status.desired_replicas
            updates += zero_updates(autoscaler, current, current, self._rules)
            await self._update_status(autoscaler, current, desired, decision, updates)
            return None
        refusal = await self._scale(seen, decision, history)
        if refusal:
            updates += (
                ConditionUpdate(
                    ABLE_TO_SCALE, False, "FailedUpdateScale", f"the target could not be scaled: {refusal}"
                ),
            )
            await self._update_status(autoscaler, current, autoscaler.status.desired_replicas, decision, updates)
            return False
        done = f"the target was scaled to {decision.replicas}"
        updates += (ConditionUpdate(ABLE_TO_SCALE, True, "SucceededRescale", done),)
        updates += zero_updates(autoscaler, current, decision.replicas, self._rules)
        await self._update_status(autoscaler, current, decision.replicas, decision, updates, scaled=True)
        return True

    async def _scale(self, seen: _Seen, decision: ScaleDecision, history: History) -> str:
        """Scale the target. Return why that failed. Raises Conflict if the target was scaled meanwhile."""
        autoscaler, current = seen.autoscaler, seen.scale.spec.replicas
        size = f"New size: {decision.replicas}; reason: {decision.reason}"
        try:
            await self._targets.set(seen.resource, seen.scale, decision.replicas)
        except Conflict:
            raise
        except (ApiError, OSError) as error:
            if not isinstance(error, ApiError):
                history.scaled(clock.monotonic(), current, decision.replicas)  # it may have been done all the same
            self._events.warning(autoscaler, "FailedRescale", f"{size}; error: {error}")
            return str(error)
        history.scaled(clock.monotonic(), current, decision.replicas)
        self._events.normal(autoscaler, "SuccessfulRescale", size)
        return ""

    async def _report_missing_scale(self, autoscaler: HorizontalPodAutoscaler, why: str) -> None:
        self._events.warning(autoscaler, "FailedGetScale", why)
        message = f"the scale of the target can't be read: {why}"
        update = ConditionUpdate(ABLE_TO_SCALE, False, "FailedGetScale", message)
        conditions = with_updates(autoscaler.status.conditions, (update,), format_time(clock.utc_now()))
        async with self._syncs:
            await self._write(autoscaler, msgspec.structs.replace(autoscaler.status, conditions=conditions))

    async def _update_status(
        self,
        autoscaler: HorizontalPodAutoscaler,
        current: int,
        desired: int,
        decision: ScaleDecision,
        updates: tuple[ConditionUpdate, ...],
        *,
        scaled: bool = False,
    ) -> None:
        """Update the status."""
        now = format_time(clock.utc_now())
        conditions = with_updates(autoscaler.status.conditions, updates, now)
        if not self._rules.to_zero:
            conditions = tuple(one for one in conditions if one.type != SCALED_TO_ZERO)
        status = AutoscalerStatus(
            observed_generation=autoscaler.metadata.generation or None,
            last_scale_time=now if scaled else autoscaler.status.last_scale_time,
            current_replicas=current,
            desired_replicas=desired,
            current_metrics=decision.metrics,
            conditions=conditions,
        )
        await self._write(autoscaler, status)

    async def _write(self, autoscaler: HorizontalPodAutoscaler, status: AutoscalerStatus) -> None:
        def report(error: ApiError) -> None:
            self._events.warning(autoscaler, "FailedUpdateStatus", str(error))

        changed = msgspec.structs.replace(autoscaler, status=status)
        await try_write(update_status(self._client, HORIZONTAL_POD_AUTOSCALERS, autoscaler, changed), report)


def autoscaler_to_look_at(_: Informers, change: Change[HorizontalPodAutoscaler]) -> Iterator[Key]:
    """Yield an autoscaler that is new, deleted or has a new spec; not those of the initial list."""
    before, after = change.before, change.after
    if before is None or after is None:
        if not change.initial:
            yield change.key
    elif before.spec != after.spec:
        yield change.key


SPECS = (
    ControllerSpec(
        name="horizontal-pod-autoscaler-controller",
        queue="horizontalpodautoscaler",
        aliases=("horizontalpodautoscaling",),
        service_account="horizontal-pod-autoscaler",
        reporter="horizontal-pod-autoscaler",
        reconciler=AutoscalerController,
        options=AutoscalerOptions,
        workers=lambda _: _LOOKS,
        watches=(
            Mapped(HORIZONTAL_POD_AUTOSCALERS, autoscaler_to_look_at),
            # Pods are counted when their autoscaler is looked at: no change of one is a reason to.
            Mapped(PODS, indexes=PODS_BY_LABEL),
        ),
        qps_factor=_QPS_FACTOR,
        rbac=(
            PolicyRule(
                groups=("autoscaling",), resources=("horizontalpodautoscalers",), verbs=("get", "list", "watch")
            ),
            PolicyRule(groups=("autoscaling",), resources=("horizontalpodautoscalers/status",), verbs=("update",)),
            PolicyRule(groups=("*",), resources=("*/scale",), verbs=("get", "update")),
            PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch")),
            PolicyRule(groups=(RESOURCE_METRICS,), resources=("pods",), verbs=("list",)),
            PolicyRule(groups=(CUSTOM_METRICS, EXTERNAL_METRICS), resources=("*",), verbs=("get", "list")),
        ),
    ),
)
