"""Creates and deletes pods for replica sets and replication controllers, and updates their status."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.apps import REPLICA_SETS, REPLICATION_CONTROLLERS, ReplicaSet, ReplicationController
from controller_manager.common.api.core import PODS, Pod, is_pod_ready
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.selectors import LabelSelector, Requirement
from controller_manager.common.api.timestamps import time_of
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.framework import (
    Context,
    ControllerRefManager,
    ControllerSpec,
    For,
    Int32,
    Key,
    Mapped,
    Options,
    PodControl,
    PolicyRule,
    Requeue,
    TerminalError,
    TransportError,
    controller_of,
    flag,
    in_parallel,
    pod_from_template,
    slow_start,
    update_status,
)

from ..shared.controlled import BY_CONTROLLER, OwnedObjects, controlled_by, may_be_done, owners_concerned, stale_syncs
from ..shared.pods import is_active, is_terminating, workload_facts
from .replicas import ReplicaChanges, Replicated, decide, next_look, status_of

COUNTS_TERMINATING = "DeploymentReplicaSetTerminatingReplicas"
"""The feature gate of `terminatingReplicas` in the status of replica sets and deployments."""

_AGE_RATIO = Family(
    "replicaset_controller_sorting_deletion_age_ratio",
    "Ratio of the age of a ready pod that was chosen for deletion to the age of the youngest ready pod.",
    "histogram",
    buckets=(0.25, 0.5, 1, 2, 4, 8),
)
_STALE = stale_syncs("replicaset")


class ReplicaSetOptions(Options):
    """Replica set controller"""

    concurrent_replicaset_syncs: Int32 = flag(5, "Replica sets that are worked on at the same time.", minimum=1)


class ReplicationControllerOptions(Options):
    """Replication controller"""

    concurrent_rc_syncs: Int32 = flag(5, "Replication controllers that are worked on at the same time.", minimum=1)


class OwnerKind(NamedTuple):
    """One of the two kinds: its resource, its selector, and whether its status counts terminating pods."""

    resource: Resource[Any]
    selector: Callable[[Any], LabelSelector | None]
    counts_terminating: bool


class SyncResult(NamedTuple):
    """The active pods after a sync, the pods that it deleted, and the first error."""

    active: list[Pod]
    deleted: Sequence[Pod] = ()
    failure: ApiError | TransportError | None = None


# Observed: the owner, the active pods that it controls or may adopt, and the number of its terminating pods.
# Decided:                            Done:
#   gone                              nothing
#   being deleted                     only the status; the garbage collector deletes or orphans its pods
#   fewer active pods than replicas   create the missing ones in batches of 1, 2, 4, … until one fails, at most 500
#   more                              delete those that rank first (`pod_ranking.py`), at most 500
#   a ready pod is not available yet  requeue when the next one is
# The same sync writes the status, including the pods just created and deleted. A failure becomes a condition and is
# retried. If the cache lacks a write of ours, the pods are listed from the server (`OwnedObjects`).


class ReplicaSetController:
    """Reconciles owners of one kind."""

    def __init__(self, context: Context, options: Options, *, kind: OwnerKind) -> None:
        self._kind = kind
        self._client = context.client
        self._pods = context.informers.get(PODS)
        self._owners = context.informers.get(kind.resource)
        self._control = PodControl(context.client, context.events)
        self._counts_terminating = kind.counts_terminating and context.enabled(COUNTS_TERMINATING)
        registry = context.runtime.registry if kind is REPLICA_SET else None  # the metrics are those of replica sets
        self._own = OwnedObjects(context.client, self._pods, PODS, Counters(_STALE, registry))
        self._age_ratio = Histograms(_AGE_RATIO, registry).of()

    async def reconcile(self, key: Key) -> Requeue | None:
        """Create or delete pods of owner `key` until their number matches the replicas."""
        owner = self._owners.get(key)
        if owner is None:
            self._own.forget(key)
            return None
        selector = self._selector(owner)
        pods = await self._own.claimable_by(owner, selector)
        manager = ControllerRefManager(self._client, self._kind.resource, owner)
        active = await manager.claim(PODS, filter(is_active, pods), lambda pod: selector.matches(pod.metadata.labels))
        now = clock.utc_now()
        decision = decide(owner, active, partial(self._related, owner), now)
        active, deleted, failure = await self._carry_out(owner, active, decision, now)
        status = status_of(owner, active, self._terminating(selector, pods, deleted), failure, now)
        await update_status(self._client, self._kind.resource, owner, replace(owner, status=status))
        if failure is not None:
            raise failure
        seconds = next_look(owner, active, status, now)
        return Requeue(seconds) if seconds is not None else None

    def _selector(self, owner: Replicated) -> LabelSelector:
        try:
            selector = self._kind.selector(owner)
        except KeyError as error:
            raise TerminalError(f"spec.selector: {error} is not a valid label selector operator") from error
        if selector is None:
            raise TerminalError("spec.selector is empty, so that it selects no pods")
        return selector

    async def _carry_out(
        self, owner: Replicated, active: list[Pod], decision: ReplicaChanges, now: datetime
    ) -> SyncResult:
        """Create or delete pods."""
        if decision.create:
            pod = pod_from_template(self._kind.resource, owner, owner.spec.template)
            created = await slow_start([pod] * decision.create, partial(self._control.create, owner))
            pods = [one for one in created.done if one is not None]
            self._own.wrote(owner, *pods)
            if may_be_done(created.error):
                self._own.doubt(owner)
            return SyncResult([*active, *pods], [], created.error)
        if decision.delete:
            self._observe_ages(active, decision.delete, now)
            deleted = await in_parallel(decision.delete, partial(self._delete, owner))
            self._own.deleted(owner, *deleted.done)
            deleted_uids = {pod.metadata.uid for pod in deleted.done}
            return SyncResult(
                [pod for pod in active if pod.metadata.uid not in deleted_uids], deleted.done, deleted.error
            )
        return SyncResult(active)

    async def _delete(self, owner: Replicated, pod: Pod) -> Pod:
        await self._control.delete(owner, pod)
        return pod

    def _related(self, owner: Replicated) -> Iterator[Pod]:
        """Yield the pods of all owners that have the same owner as this one, such as those of a deployment."""
        reference = controller_of(owner)
        if reference is not None:
            for other in controlled_by(self._owners, reference.uid):
                yield from controlled_by(self._pods, other.metadata.uid)

    def _terminating(self, selector: LabelSelector, pods: Iterable[Pod], deleted: Iterable[Pod]) -> int | None:
        """Return the number of terminating pods in `pods`, plus those in `deleted` that are bound to a node."""
        if not self._counts_terminating:
            return None
        mine = (pod for pod in pods if is_terminating(pod) and selector.matches(pod.metadata.labels))
        return sum(controller_of(pod) is not None for pod in mine) + sum(bool(pod.spec.node_name) for pod in deleted)

    def _observe_ages(self, active: Sequence[Pod], chosen: Sequence[Pod], now: datetime) -> None:
        """Observe the age of the ready pods chosen for deletion, relative to the youngest ready pod."""
        youngest = min((_age(pod, now) for pod in active if is_pod_ready(pod)), default=0.0)
        if youngest > 0 and len(chosen) < len(active):
            for pod in filter(is_pod_ready, chosen):
                self._age_ratio.observe(_age(pod, now) // youngest)


def _age(pod: Pod, now: datetime) -> float:
    created = time_of(pod.metadata.creation_timestamp)
    return (now - created).total_seconds() if created is not None else 0.0


def _selector_of_set(owner: ReplicaSet) -> LabelSelector:
    return owner.spec.selector.selector()


def _selector_of_controller(owner: ReplicationController) -> LabelSelector | None:
    labels = owner.spec.selector or {}
    return LabelSelector(tuple(Requirement(key, "in", (value,)) for key, value in labels.items())) if labels else None


def _selects(kind: OwnerKind, owner: Replicated, pod: Pod) -> bool:
    try:
        selector = kind.selector(owner)
    except KeyError:
        return False
    return selector is not None and selector.matches(pod.metadata.labels)


def _watches(kind: OwnerKind) -> tuple[For[Any], Mapped[Pod]]:
    concerned = owners_concerned(kind.resource, partial(_selects, kind), workload_facts)
    return For(kind.resource, indexes=BY_CONTROLLER), Mapped(PODS, concerned, indexes=BY_CONTROLLER)


def _rules(kind: OwnerKind) -> tuple[PolicyRule, ...]:
    group, plural = (kind.resource.group,), kind.resource.plural
    return (
        PolicyRule(groups=group, resources=(plural,), verbs=("get", "list", "watch", "update")),
        PolicyRule(groups=group, resources=(f"{plural}/status", f"{plural}/finalizers"), verbs=("update",)),
        PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch", "create", "delete", "patch")),
    )


REPLICA_SET = OwnerKind(REPLICA_SETS, _selector_of_set, counts_terminating=True)
REPLICATION_CONTROLLER = OwnerKind(REPLICATION_CONTROLLERS, _selector_of_controller, counts_terminating=False)

SPECS = (
    ControllerSpec(
        name="replicaset-controller",
        sharded_by=REPLICA_SETS,
        queue="replicaset",
        aliases=("replicaset",),
        reconciler=partial(ReplicaSetController, kind=REPLICA_SET),
        options=ReplicaSetOptions,
        workers=lambda options: options.concurrent_replicaset_syncs,
        watches=_watches(REPLICA_SET),
        rbac=_rules(REPLICA_SET),
    ),
    ControllerSpec(
        name="replicationcontroller-controller",
        sharded_by=REPLICATION_CONTROLLERS,
        queue="replicationmanager",
        aliases=("replicationcontroller",),
        service_account="replication-controller",
        reporter="replication-controller",
        reconciler=partial(ReplicaSetController, kind=REPLICATION_CONTROLLER),
        options=ReplicationControllerOptions,
        workers=lambda options: options.concurrent_rc_syncs,
        watches=_watches(REPLICATION_CONTROLLER),
        rbac=_rules(REPLICATION_CONTROLLER),
    ),
)
