"""Maintains the pods of daemon sets on their nodes and updates them to the present template."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, DAEMON_SETS, DaemonSet
from controller_manager.common.api.core import NODES, PODS, Node, Pod
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.common.base import clock
from controller_manager.common.base.fair_loop import give_way
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
    PodControl,
    PolicyRule,
    Requeue,
    TransportError,
    controller_of,
    flag,
    in_parallel,
    key_of,
    slow_start,
    update_status,
)

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
from ..shared.pods import PODS_BY_NODE, pods_on, workload_facts
from .backoff import FailedPodsBackoff
from .decide import FAILED, SUCCEEDED, DaemonPods, DaemonSetState, by_node, decide, next_look, status_of
from .placement import facts_of, is_concerned, node_of, placement_of
from .revisions import Present, Revisions
from .templates import DaemonTemplate, generation_of

COMPARES = "TaintTolerationComparisonOperators"
# Maximum number of pods that one sync creates or deletes.
BURST = 250

_STALE = stale_syncs("daemonset")


class DaemonSetOptions(Options):
    """Daemon set controller"""

    concurrent_daemonset_syncs: Int32 = flag(2, "Daemon sets that are worked on at the same time.", minimum=1)


class DaemonSyncResult(NamedTuple):
    """The pods that were created, and the first error."""

    created: Sequence[Pod] = ()
    failure: ApiError | TransportError | None = None


# Observed: the set, its revisions, all nodes (labels and taints), and the pods that it controls or may adopt.
# Decided:                                          Done:
#   gone, or being deleted                          nothing
#   empty selector                                  a warning; nothing else
#   its template has no revision                    create one, or make an equal older one the newest
#   pods are missing, surplus, ended, or on         create and delete them, at most 250, in batches of 1, 2, 4, …
#     ineligible nodes
#   otherwise, a rolling update is in progress      create and delete pods within its limits
#   a failed pod is in backoff, or a ready pod      requeue
#     is not available yet
# `decide.py` decides for each node, `placement.py` which nodes are eligible. Then revisions beyond the history limit
# are deleted, and the status is written. Failures are retried.


class DaemonSetController:
    """Reconciles daemon sets."""

    def __init__(self, context: Context, options: DaemonSetOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._daemon_sets = context.informers.get(DAEMON_SETS)
        self._nodes = context.informers.get(NODES)
        self._pods = context.informers.get(PODS)
        self._revision_informer = context.informers.get(CONTROLLER_REVISIONS)
        self._control = PodControl(context.client, context.events)
        self._revisions = Revisions(context.client, self._control)
        self._own = OwnedObjects(context.client, self._pods, PODS, Counters(_STALE, context.runtime.registry))
        self._backoff = FailedPodsBackoff()
        self._compares = context.enabled(COMPARES)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Take the next step of daemon set `key`."""
        daemon_set = self._daemon_sets.get(key)
        if daemon_set is None:
            self._own.forget(key)
            self._revisions.forget(key)
            self._backoff.forget(key)
            return None
        selector = selector_of(daemon_set)
        if selector.empty:
            self._events.warning(
                daemon_set, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required."
            )
            return None
        if daemon_set.metadata.deletion_timestamp is not None:
            return None
        pods = await self._claim(daemon_set, selector)
        revisions = claimable_by(self._revision_informer, daemon_set)
        present = await self._revisions.present(daemon_set, selector, revisions, pods)
        if present is None:
            return None
        return await self._sync(daemon_set, present, pods)

    async def _claim(self, daemon_set: DaemonSet, selector: LabelSelector) -> list[Pod]:
        pods = await self._own.claimable_by(daemon_set, selector)
        manager = ControllerRefManager(self._client, DAEMON_SETS, daemon_set)
        return await manager.claim(PODS, pods, lambda pod: selector.matches(pod.metadata.labels))

    async def _sync(self, daemon_set: DaemonSet, present: Present, pods: Sequence[Pod]) -> Requeue | None:
        """Decide, perform the changes, and write the status."""
        key, meta = key_of(daemon_set), daemon_set.metadata
        self._backoff.begin(key, meta.uid, meta.generation, clock.monotonic())
        seen = await self._observe(daemon_set, present, pods)
        decision = decide(seen, lambda node: self._backoff.wait(key, node, clock.monotonic()))
        created, failure = await self._carry_out(daemon_set, present, decision)
        if failure is None:
            await self._revisions.clean_up(daemon_set, present, pods)
        if created:
            seen = replace(seen, pods=by_node([*pods, *created]))
        status = replace(status_of(seen), collision_count=present.collisions or daemon_set.status.collision_count)
        await update_status(self._client, DAEMON_SETS, daemon_set, replace(daemon_set, status=status))
        if failure is not None:
            raise failure
        times = [seconds for seconds in (decision.seconds, next_look(seen)) if seconds is not None]
        return Requeue(min(times)) if times else None

    async def _observe(self, daemon_set: DaemonSet, present: Present, pods: Sequence[Pod]) -> DaemonSetState:
        step = partial(placement_of, daemon_set)
        placement = await self._client.worker.run_if_large(len(bytes(daemon_set.spec.template.spec)), step)
        fits = {}
        for node in self._nodes.list():
            fits[node.metadata.name] = placement.of(node, compares=self._compares)
            await give_way()
        generation = generation_of(daemon_set)
        return DaemonSetState(daemon_set, fits, by_node(pods), present.hash_, generation, clock.utc_now())

    async def _carry_out(self, daemon_set: DaemonSet, present: Present, decision: DaemonPods) -> DaemonSyncResult:
        """Create pods and delete pods. Deletions are done even if a create failed."""
        template = DaemonTemplate(daemon_set, present.hash_)
        created = await slow_start(decision.create[:BURST], partial(self._create, daemon_set, template))
        pods = [pod for pod in created.done if pod is not None]
        self._own.wrote(daemon_set, *pods)
        delete = decision.delete[:BURST]
        self._record_finished(daemon_set, delete)
        deleted = await in_parallel(delete, partial(self._delete, daemon_set))
        self._own.deleted(daemon_set, *deleted.done)
        if may_be_done(created.error) or may_be_done(deleted.error):
            self._own.doubt(daemon_set)
        return DaemonSyncResult(pods, created.error or deleted.error)

    def _record_finished(self, daemon_set: DaemonSet, pods: Iterable[Pod]) -> None:
        """Record events for finished pods that are deleted, and the backoff of nodes with failed ones."""
        key, failed = key_of(daemon_set), set()
        for pod in pods:
            described = f"daemon pod {key_of(pod)} on node {node_of(pod)}"
            if pod.status.phase == FAILED:
                failed.add(node_of(pod))
                self._events.warning(daemon_set, "FailedDaemonPod", f"Found failed {described}, will try to kill it")
            elif pod.status.phase == SUCCEEDED:
                message = f"Found succeeded {described}, will try to delete it"
                self._events.normal(daemon_set, "SucceededDaemonPod", message)
        for node in failed:
            self._backoff.note(key, node, clock.monotonic())

    async def _create(self, daemon_set: DaemonSet, template: DaemonTemplate, node: str) -> Pod | None:
        return await self._control.create(daemon_set, template.pod(node))

    async def _delete(self, daemon_set: DaemonSet, pod: Pod) -> Pod:
        await self._control.delete(daemon_set, pod)
        return pod


def sets_for_node(informers: Informers, change: Change[Node]) -> Iterator[Key]:
    """Yield the daemon sets that a change of a node may affect. Initial lists are skipped, as all sets are
    synced anyway.
    """
    before, after = change.before, change.after
    if change.initial or facts_of(before) == facts_of(after):
        return
    references = map(controller_of, pods_on(informers.get(PODS), change.key.name))
    controllers = {reference.uid for reference in references if reference is not None}
    for daemon_set in informers.get(DAEMON_SETS).list():
        if is_concerned(daemon_set, before, after, controllers):
            yield key_of(daemon_set)


def _facts(pod: Pod) -> object:
    return workload_facts(pod), pod.spec.node_name


SPECS = (
    ControllerSpec(
        name="daemonset-controller",
        sharded_by=DAEMON_SETS,
        queue="daemonset",
        aliases=("daemonset",),
        service_account="daemon-set-controller",
        reconciler=DaemonSetController,
        options=DaemonSetOptions,
        workers=lambda options: options.concurrent_daemonset_syncs,
        watches=(
            For(DAEMON_SETS),
            Mapped(CONTROLLER_REVISIONS, owners_concerned(DAEMON_SETS, selects), indexes=BY_CONTROLLER),
            Mapped(PODS, owners_concerned(DAEMON_SETS, selects, _facts), indexes={**BY_CONTROLLER, **PODS_BY_NODE}),
            Mapped(NODES, sets_for_node),
        ),
        rbac=(
            PolicyRule(groups=("apps",), resources=("daemonsets",), verbs=("get", "list", "watch")),
            PolicyRule(groups=("apps",), resources=("daemonsets/status", "daemonsets/finalizers"), verbs=("update",)),
            PolicyRule(
                groups=("apps",),
                resources=("controllerrevisions",),
                verbs=("get", "list", "watch", "create", "update", "patch", "delete"),
            ),
            PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch", "create", "delete", "patch")),
            PolicyRule(groups=("",), resources=("nodes",), verbs=("list", "watch")),
        ),
    ),
)
