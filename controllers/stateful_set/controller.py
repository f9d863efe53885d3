"""Creates, deletes and updates the pods and claims of stateful sets, in order or in parallel."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, STATEFUL_SETS, StatefulSet
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Counters
from controller_manager.framework import (
    Change,
    Context,
    ControllerRefManager,
    ControllerSpec,
    For,
    Informers,
    Int32,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    TerminalError,
    TransportError,
    flag,
    slow_start,
    update_status,
)
from controller_manager.framework.controller.writes import LARGEST_BATCH

from ..shared.controlled import (
    BY_CONTROLLER,
    OwnedObjects,
    claimable_by,
    may_be_done,
    owners_concerned,
    selector_of,
    selects,
    stale_syncs,
)
from ..shared.pods import workload_facts
from .decide import PodActions, StatefulSetState, by_ordinal, decide
from .identity import claim_names, ordinal_of
from .metrics import StatefulSetMetrics
from .pod_control import StatefulPodControl
from .revisions import Recorded, Revisions
from .status import next_look, status_of

LIMITS = "MaxUnavailableStatefulSet"
"""The feature gate of `maxUnavailable` in updates. Without it the maximum is one pod."""

_STALE = stale_syncs("statefulset")


class StatefulSetOptions(Options):
    """Stateful set controller"""

    concurrent_statefulset_syncs: Int32 = flag(5, "Stateful sets that are worked on at the same time.", minimum=1)


# Observed: the set, its revisions, its claims, and the pods with its names that it controls or may adopt.
# Decided:                                       Done:
#   gone                                         nothing
#   being deleted                                only the status; the garbage collector deletes or orphans its pods
#   its template has no revision                 create one, or make an equal older one the newest
#   pods are missing, surplus, ended, outdated   the actions of `decide.py`
#     or different from the template
#   a ready pod is not available yet             requeue when it is
# The same sync writes the status, including the pods just created and deleted, and then deletes revisions beyond the
# history limit. Failures are retried.


class StatefulSetController:
    """Reconciles stateful sets."""

    def __init__(self, context: Context, options: StatefulSetOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._owners = context.informers.get(STATEFUL_SETS)
        self._pods = context.informers.get(PODS)
        self._claims = context.informers.get(PERSISTENT_VOLUME_CLAIMS)
        self._revision_informer = context.informers.get(CONTROLLER_REVISIONS)
        self._revisions = Revisions(context.client)
        registry = context.runtime.registry
        self._own = OwnedObjects(context.client, self._pods, PODS, Counters(_STALE, registry))
        self._limits = context.enabled(LIMITS)
        self._metrics = StatefulSetMetrics(registry) if self._limits else None

    async def reconcile(self, key: Key) -> Requeue | None:
        """Take the next actions of stateful set `key`."""
        owner = self._owners.get(key)
        if owner is None:
            self._own.forget(key)
            self._revisions.forget(key)
            if self._metrics is not None:
                self._metrics.forget(key)
            return None
        selector = selector_of(owner)
        if selector.empty:
            raise TerminalError("spec.selector is empty, so that it selects no pods")
        recorded = await self._record(owner, selector)
        if recorded is None:
            return None
        pods = await self._claim(owner, selector)
        return await self._sync(owner, recorded, pods)

    async def _record(self, owner: StatefulSet, selector: LabelSelector) -> Recorded | None:
        """Return the revisions of a set. For a set that is being deleted these are the ones in its status."""
        if owner.metadata.deletion_timestamp is not None:
            status = owner.status
            return Recorded(status.current_revision, status.update_revision, status.collision_count or 0)
        return await self._revisions.record(owner, selector, claimable_by(self._revision_informer, owner))

    async def _claim(self, owner: StatefulSet, selector: LabelSelector) -> list[Pod]:
        """Return the pods that the set controls: those with a name of the set that match its selector."""
        manager = ControllerRefManager(self._client, STATEFUL_SETS, owner)
        pods = await self._own.claimable_by(owner, selector)
        return await manager.claim(PODS, pods, lambda pod: _is_member(owner, selector, pod))

    async def _sync(self, owner: StatefulSet, recorded: Recorded, pods: Sequence[Pod]) -> Requeue | None:
        now, find = clock.utc_now(), partial(self._find, owner.metadata.namespace)
        seen = StatefulSetState(owner, by_ordinal(owner, pods), find, recorded.update, now, self._limits)
        control = StatefulPodControl(self._client, self._events, owner, recorded, find)
        failure = await self._carry_out(control, decide(seen), ordered=seen.ordered)
        self._own.wrote(owner, *control.created)
        self._own.deleted(owner, *control.deleted)
        if may_be_done(failure):
            self._own.doubt(owner)
        remaining = [*pods_left(pods, control.deleted, now), *control.created]
        status = status_of(owner, remaining, recorded, now)
        if self._metrics is not None:
            self._metrics.set(owner, replace(seen, pods=by_ordinal(owner, remaining)).unavailable)
        await update_status(self._client, STATEFUL_SETS, owner, replace(owner, status=status))
        if failure is not None:
            raise failure
        await self._revisions.clean_up(owner, recorded, remaining)
        seconds = next_look(owner, remaining, now)
        return Requeue(seconds) if seconds is not None else None

    async def _carry_out(
        self, control: StatefulPodControl, rows: Sequence[PodActions], *, ordered: bool
    ) -> ApiError | TransportError | None:
        """Run the actions row by row. Return the first error, after which no further row is run."""
        for row in rows:
            done = await slow_start(row, control.perform, largest=1 if ordered else LARGEST_BATCH)
            if done.error is not None:
                return done.error
        return None

    def _find(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self._claims.get(Key(namespace, name))


def pods_left(pods: Sequence[Pod], deleted: Sequence[Pod], now: datetime) -> Iterator[Pod]:
    """Yield the pods that remain after some were deleted. Those bound to a node are still terminating."""
    uids = {pod.metadata.uid for pod in deleted}
    for pod in pods:
        if pod.metadata.uid not in uids:
            yield pod
        elif pod.spec.node_name:
            yield replace(pod, metadata=replace(pod.metadata, deletion_timestamp=format_time(now)))


def owners_of_deleted_claim(informers: Informers, change: Change[PersistentVolumeClaim]) -> Iterator[Key]:
    """Yield the stateful set of a deleted claim, by its name, because a pod may wait for a new claim."""
    if change.after is not None:
        return
    namespace, parts = change.key.namespace, change.key.name.split("-")
    ordinal = parts.pop()
    if not ordinal.isdecimal() or len(ordinal) > 10:
        return
    sets = informers.get(STATEFUL_SETS)
    for at in range(1, len(parts)):
        key = Key(namespace, "-".join(parts[at:]))
        owner = sets.get(key)
        if owner is not None and any(name == change.key.name for _, name in claim_names(owner, int(ordinal))):
            yield key


def _is_member(owner: StatefulSet, selector: LabelSelector, pod: Pod) -> bool:
    return ordinal_of(owner, pod) is not None and selector.matches(pod.metadata.labels)


def _selects(owner: StatefulSet, pod: Pod) -> bool:
    return ordinal_of(owner, pod) is not None and selects(owner, pod)


SPECS = (
    ControllerSpec(
        name="statefulset-controller",
        sharded_by=STATEFUL_SETS,
        queue="statefulset",
        aliases=("statefulset",),
        reconciler=StatefulSetController,
        options=StatefulSetOptions,
        workers=lambda options: options.concurrent_statefulset_syncs,
        watches=(
            For(STATEFUL_SETS),
            Mapped(PODS, owners_concerned(STATEFUL_SETS, _selects, workload_facts), indexes=BY_CONTROLLER),
            Mapped(PERSISTENT_VOLUME_CLAIMS, owners_of_deleted_claim, whole=True),
            Mapped(CONTROLLER_REVISIONS, indexes=BY_CONTROLLER),
        ),
        rbac=(
            PolicyRule(groups=("apps",), resources=("statefulsets",), verbs=("get", "list", "watch")),
            PolicyRule(
                groups=("apps",), resources=("statefulsets/status", "statefulsets/finalizers"), verbs=("update",)
            ),
            PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch", "create", "delete", "patch")),
            PolicyRule(
                groups=("apps",),
                resources=("controllerrevisions",),
                verbs=("get", "list", "watch", "create", "update", "patch", "delete"),
            ),
            PolicyRule(
                groups=("",), resources=("persistentvolumeclaims",), verbs=("get", "list", "watch", "create", "update")
            ),
        ),
    ),
)
