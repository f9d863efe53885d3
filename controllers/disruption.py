"""Computes the allowed disruptions of PodDisruptionBudgets, and resets stale DisruptionTarget conditions."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.apps import (
    DEPLOYMENTS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    Deployment,
    ReplicaSet,
    ReplicationController,
)
from controller_manager.common.api.autoscaling import ObjectInNamespace
from controller_manager.common.api.conditions import Condition, condition_of, with_condition, with_conditions
from controller_manager.common.api.core import NAMESPACES, PODS, Pod, is_pod_ready, is_pod_terminal
from controller_manager.common.api.errors import ApiError, Conflict, NotFound
from controller_manager.common.api.model import OwnerReference
from controller_manager.common.api.policy import (
    POD_DISRUPTION_BUDGETS,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from controller_manager.common.api.timestamps import format_time, time_of
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.fair_loop import give_way
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    For,
    Informers,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    controller_of,
    key_of,
    try_write,
)

from .shared.int_or_percent import part_of
from .shared.scales import NoSuchKind, RESTMapper, Scales

DELETION_TIMEOUT = timedelta(minutes=2)
"""How long an evicted pod may take to be deleted before it counts as healthy again."""
STALE = timedelta(minutes=2)
"""How long a pod may have the condition DisruptionTarget without being deleted."""
AGAIN = 30.0
"""Seconds until a budget is retried whose expected pods cannot be counted."""

_ALLOWED, _TARGET = "DisruptionAllowed", "DisruptionTarget"
_BY_KUBELET = "TerminationByKubelet"


class DisruptionOptions(Options):
    """Disruption controller"""

    title: ClassVar[str] = "Disruption controller"


_Replicated = ReplicaSet | Deployment | ReplicationController


class Announced(NamedTuple):
    """A pod with the condition DisruptionTarget."""

    pod: Key


class Uncountable(Exception):
    """The number of expected pods cannot be determined; the message says why."""


class Count(NamedTuple):
    """The numbers of expected and of desired healthy pods, and the names of pods without a controller."""

    expected: int
    desired: int
    unmanaged: Sequence[str] = ()


# Observed: a budget, the pods that it selects, the scales of their controllers.
#   expected pods      the sum of the replicas of all controllers; for an integer minAvailable: the existing pods
#   desired healthy    minAvailable, or its percentage of the sum, or the sum minus maxUnavailable; percentages are
#                      rounded up
#   current healthy    ready pods that are not being deleted and were not evicted in the last two minutes
# Decided:                                                Done:
#   status has other numbers or another generation        write it
#   no pods expected, or fewer healthy than desired       no disruptions allowed
#   a controller cannot be found                          no disruptions allowed; a condition with the reason
# Observed: a pod with the condition DisruptionTarget, and since when.
#   not being deleted after two minutes                   set the condition to False


class DisruptionController:
    """Reconciles budgets, and pods with the condition DisruptionTarget."""

    def __init__(self, context: Context, _options: DisruptionOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._budgets = context.informers.get(POD_DISRUPTION_BUDGETS)
        self._pods = context.informers.get(PODS)
        self._replicas: Mapping[tuple[str, str], Callable[[Key], _Replicated | None]] = {
            ("apps", "ReplicaSet"): context.informers.get(REPLICA_SETS).get,
            ("apps", "Deployment"): context.informers.get(DEPLOYMENTS).get,
            ("", "ReplicationController"): context.informers.get(REPLICATION_CONTROLLERS).get,
        }
        self._scales = Scales(context.client, RESTMapper(context.client))

    async def reconcile(self, key: Key | Announced) -> Requeue | None:
        """Update the status of budget `key`, or reset a stale condition of a pod."""
        if isinstance(key, Announced):
            return await self._take_back(key.pod)
        budget = self._budgets.get(key)
        if budget is None:
            return None
        pods = await self._selected(budget)
        await self._report(budget, pods)
        try:
            count = await self._count(budget, pods)
        except (Uncountable, NoSuchKind, ApiError, OSError) as error:
            await self._give_up(budget, error)
            return Requeue(AGAIN)
        self._report_unmanaged(budget, count.unmanaged)
        return await self._write(budget, pods, count)

    async def _selected(self, budget: PodDisruptionBudget) -> list[Pod]:
        found = []
        for pod in self._pods.list(budget.metadata.namespace):
            if selects(budget, pod):
                found.append(pod)
            await give_way()
        return found

    async def _write(self, budget: PodDisruptionBudget, pods: Sequence[Pod], count: Count) -> Requeue | None:
        now = utc_now()
        disrupted = disrupted_pods(budget.status.disrupted_pods, pods, now)
        late = budget.status.disrupted_pods.keys() - disrupted.keys()
        for pod in pods:
            if pod.metadata.name in late and not pod.metadata.deletion_timestamp:
                why = f"The pod was evicted by the budget {key_of(budget)}, and is not being deleted"
                self._events.event(pod, "Warning", "NotDeleted", why)
        status = desired_status(budget, count, healthy(pods, disrupted), disrupted, format_time(now))
        if status != budget.status:
            await self._update(budget, status)
        ends = [when + DELETION_TIMEOUT for text in disrupted.values() if (when := time_of(text)) is not None]
        return Requeue((min(ends) - now).total_seconds()) if ends else None

    async def _count(self, budget: PodDisruptionBudget, pods: Sequence[Pod]) -> Count:
        """Return the expected and desired numbers. Raises Uncountable, NoSuchKind, ApiError and OSError."""
        spec = budget.spec
        if spec.max_unavailable is None and isinstance(spec.min_available, int):
            return Count(len(pods), spec.min_available)
        if spec.max_unavailable is None and spec.min_available is None:
            return Count(0, 0)
        scales: dict[str, int] = {}
        unmanaged = []
        for pod in pods:
            reference = controller_of(pod)
            if reference is None:
                unmanaged.append(pod.metadata.name)
            elif reference.uid not in scales:
                uid, scale = await self._scale(pod, reference)
                scales[uid] = scale
        return desired_count(spec, sum(scales.values()), unmanaged)

    async def _scale(self, pod: Pod, reference: OwnerReference) -> tuple[str, int]:
        """Return the uid and the replicas of a pod's controller, or of its deployment.

        The server is queried for kinds that are not watched and for objects missing in the cache.
        """
        found = self._known(pod.metadata.namespace, reference)
        if found is None:
            return await self._read_scale(pod, reference)
        above = controller_of(found) if isinstance(found, ReplicaSet) else None
        deployment = self._known(pod.metadata.namespace, above) if above is not None else None
        scaled = found if deployment is None else deployment
        return scaled.metadata.uid, scaled.spec.replicas

    def _known(self, namespace: str, reference: OwnerReference) -> _Replicated | None:
        get = self._replicas.get((reference.api_version.rpartition("/")[0], reference.kind))
        found = get(Key(namespace, reference.name)) if get is not None else None
        return found if found is not None and found.metadata.uid == reference.uid else None

    async def _read_scale(self, pod: Pod, reference: OwnerReference) -> tuple[str, int]:
        target = ObjectInNamespace(kind=reference.kind, name=reference.name, api_version=reference.api_version)
        try:
            _, scale = await self._scales.get(pod.metadata.namespace, target)
        except NotFound:
            raise Uncountable(f"the controller of the pod {pod.metadata.name} is not there") from None
        if scale.metadata.uid != reference.uid:
            raise Uncountable(f"the controller of the pod {pod.metadata.name} is not there")
        return reference.uid, scale.spec.replicas

    async def _give_up(self, budget: PodDisruptionBudget, error: Exception) -> None:
        """Allow no disruptions while the expected pods cannot be counted."""
        why = f"the number of expected pods cannot be found out: {error}"
        self._events.event(budget, "Warning", "CalculateExpectedPodCountFailed", why)
        condition = Condition(
            type=_ALLOWED,
            status="False",
            reason="SyncFailed",
            message=why,
            observed_generation=budget.status.observed_generation or None,
        )
        conditions = with_conditions(budget.status.conditions, [condition], format_time(utc_now()))
        status = replace(budget.status, disruptions_allowed=0, conditions=conditions)
        if status != budget.status:
            await self._update(budget, status)

    async def _update(self, budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> None:
        written = self._client.update(POD_DISRUPTION_BUDGETS, replace(budget, status=status), subresource="status")
        await try_write(written)

    async def _report(self, budget: PodDisruptionBudget, pods: Sequence[Pod]) -> None:
        if not pods:
            self._events.event(budget, "Normal", "NoPods", "No pod matches the selector")
        others = [one for one in self._budgets.list(budget.metadata.namespace) if one is not budget]
        for pod in pods if others else ():
            if any(selects(one, pod) for one in others):
                why = "The pod matches the selectors of several budgets of disruptions: it cannot be evicted"
                self._events.event(pod, "Warning", "MultiplePodDisruptionBudgets", why)
            await give_way()

    def _report_unmanaged(self, budget: PodDisruptionBudget, names: Sequence[str]) -> None:
        if names:
            why = "Pods without a controller do not count; minAvailable counts them if it is a number"
            self._events.event(budget, "Warning", "UnmanagedPods", why)

    async def _take_back(self, key: Key) -> Requeue | None:
        pod = self._pods.get(key)
        since = announced_since(pod) if pod is not None else None
        if pod is None or since is None:
            return None
        now = utc_now()
        left = (since + STALE - now).total_seconds()
        if left > 0:
            return Requeue(left)
        meta = pod.metadata
        over = Condition(
            type=_TARGET,
            status="False",
            last_transition_time=format_time(now),
            observed_generation=meta.generation or None,
        )
        status = replace(pod.status, conditions=with_condition(pod.status.conditions, over))
        try:
            await try_write(self._client.update(PODS, replace(pod, status=status), subresource="status"))
        except (NotFound, Conflict):
            return Requeue(0.0)  # another change comes, or the pod is gone
        return None


def selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Return whether a budget selects a pod of its namespace."""
    selector = budget.spec.selector
    return selector is not None and selector.selector().matches(pod.metadata.labels or {})


def desired_count(spec: PodDisruptionBudgetSpec, expected: int, unmanaged: Sequence[str] = ()) -> Count:
    """Return how many of the `expected` pods should be healthy."""
    if spec.max_unavailable is not None:
        return Count(expected, max(expected - part_of(expected, spec.max_unavailable, round_up=True), 0), unmanaged)
    return Count(expected, part_of(expected, spec.min_available, round_up=True), unmanaged)


def disrupted_pods(known: Mapping[str, str], pods: Iterable[Pod], now: datetime) -> Mapping[str, str]:
    """Return the evicted pods that may still be deleted.

    Pods that are being deleted, are gone, or were evicted too long ago are dropped.
    """
    there = {pod.metadata.name for pod in pods if not pod.metadata.deletion_timestamp}
    kept = {name: text for name, text in known.items() if name in there}
    return {name: text for name, text in kept.items() if (time_of(text) or now) + DELETION_TIMEOUT > now}


def healthy(pods: Iterable[Pod], disrupted: Mapping[str, str]) -> int:
    """Return the number of pods that are ready and are not being disrupted."""
    staying = (pod for pod in pods if not pod.metadata.deletion_timestamp and pod.metadata.name not in disrupted)
    return sum(map(is_pod_ready, staying))


def desired_status(
    budget: PodDisruptionBudget, count: Count, current: int, disrupted: Mapping[str, str], now: str
) -> PodDisruptionBudgetStatus:
    """Return the status of a budget with that number of healthy pods."""
    allowed = max(current - count.desired, 0) if count.expected > 0 else 0
    condition = Condition(
        type=_ALLOWED,
        status="True" if allowed else "False",
        reason="SufficientPods" if allowed else "InsufficientPods",
        observed_generation=budget.metadata.generation or None,
    )
    return PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        disrupted_pods=disrupted,
        disruptions_allowed=allowed,
        current_healthy=current,
        desired_healthy=count.desired,
        expected_pods=count.expected,
        conditions=with_conditions(budget.status.conditions, [condition], now),
    )


def announced_since(pod: Pod) -> datetime | None:
    """Return since when a pod has the condition DisruptionTarget, or None if it is being deleted or has ended.

    Conditions set by the kubelet are ignored, since it may take its time.
    """
    condition = condition_of(pod.status.conditions, _TARGET)
    if condition is None or condition.status != "True" or condition.reason == _BY_KUBELET:
        return None
    if pod.metadata.deletion_timestamp or is_pod_terminal(pod):
        return None
    return time_of(condition.last_transition_time)


def _concerned(informers: Informers, change: Change[Pod]) -> Iterator[Hashable]:
    """Yield the budgets that match the old or new labels of a pod, and the pod itself if it has the condition."""
    pods = [pod for pod in (change.before, change.after) if pod is not None]
    for budget in informers.get(POD_DISRUPTION_BUDGETS).list(change.key.namespace):
        if any(selects(budget, pod) for pod in pods):
            yield key_of(budget)
    if change.after is not None and announced_since(change.after) is not None:
        yield Announced(change.key)


SPECS = (
    ControllerSpec(
        name="disruption-controller",
        sharded_by=NAMESPACES,
        queue="disruption",
        aliases=("disruption",),
        reporter="controllermanager",
        reconciler=DisruptionController,
        options=DisruptionOptions,
        watches=(
            For(POD_DISRUPTION_BUDGETS),
            Mapped(PODS, _concerned),
            Mapped(REPLICA_SETS),
            Mapped(DEPLOYMENTS),
            Mapped(REPLICATION_CONTROLLERS),
        ),
        rbac=(
            PolicyRule(("policy",), ("poddisruptionbudgets",), ("get", "list", "watch")),
            PolicyRule(("apps",), ("replicasets", "deployments"), ("get", "list", "watch")),
            PolicyRule(("",), ("replicationcontrollers",), ("get", "list", "watch")),
            PolicyRule(("",), ("pods",), ("list", "watch")),
            PolicyRule(("policy",), ("poddisruptionbudgets/status",), ("update",)),
            PolicyRule(("",), ("pods/status",), ("update",)),
            PolicyRule(("*",), ("*/scale",), ("get",)),
        ),
    ),
)
