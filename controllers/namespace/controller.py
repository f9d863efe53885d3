"""Empties a namespace that is being deleted, reports the remaining content in its conditions, and finalizes it."""

import contextlib
from collections.abc import Iterator

import msgspec

from controller_manager.common.api.core import NAMESPACES, PODS, Namespace
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.base.clock import monotonic, utc_now
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    Duration,
    Informers,
    Int32,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    flag,
    update_status,
)
from controller_manager.framework.client.discovery import ServedResource

from .outcome import PassOutcome, addressable, next_look, with_outcome
from .resources_deleter import NamespacedResourcesDeleter

FINALIZER = "kubernetes"
# Seconds after a deletion was seen in which other API servers may still admit objects: kube-apiserver checks a cache of
# namespaces that may lag. Pods are deleted during this time, but only after it is the namespace checked for remaining
# content.
LATE_ARRIVALS = 1.0
# Seconds for which a discovery result is shared by all namespaces whose deletion was seen early enough before it.
SHARED = 1.0

_PODS = ServedResource(PODS.metadata_only(), frozenset(("list", "delete", "deletecollection")), {})


class NamespaceOptions(Options):
    """Namespace controller"""

    concurrent_namespace_syncs: Int32 = flag(10, "Namespaces emptied at the same time.", minimum=1)
    namespace_sync_period: Duration = flag(
        "5m", "How often, at least, a namespace that is being deleted is looked at again.", minimum=0.1
    )


# Observed, live: the namespace, its pods, the deletable resources of discovery, the remains of each (KEP-5080).
# Decided:                                         Done:
#   not being deleted, or without our finalizer    nothing
#   pods left, or their list failed                delete them; set conditions; requeue
#   no pods, deletion seen just now                requeue after the time for late arrivals
#   no pods                                        delete the content of every other resource
#   objects left, a resource or the discovery      set conditions; requeue; everything that can be reached is
#     of a group failed                            deleted nevertheless
#   nothing left and every resource checked        remove our finalizer from the spec


class NamespaceController:
    """Reconciles namespaces."""

    def __init__(self, context: Context, options: NamespaceOptions) -> None:
        self._client = context.client
        self._period = options.namespace_sync_period
        self._discovery = context.informers.discovery
        self._deleter = NamespacedResourcesDeleter(context.client, context.log)
        # The uid of each namespace that is being deleted, and when its deletion was first seen.
        self._seen: dict[Key, tuple[str, float]] = {}

    async def reconcile(self, key: Key) -> Requeue | None:
        """Continue the deletion of namespace `key`, if it is being deleted."""
        namespace = await self._terminating(key)
        if namespace is None:
            self._seen.pop(key, None)
            return None
        uid, seen = self._seen.get(key, ("", 0.0))
        if uid != namespace.metadata.uid:
            seen = monotonic()
            self._seen[key] = namespace.metadata.uid, seen
        outcome = await self._empty(key.name, seen + LATE_ARRIVALS)
        if outcome is None:
            return Requeue(max(0.0, seen + LATE_ARRIVALS - monotonic()))
        namespace = await self._report(namespace, outcome)
        if outcome.empty:
            await self._finalize(namespace)
            return None
        return Requeue(next_look(outcome, monotonic() - seen, self._period))

    async def _terminating(self, key: Key) -> Namespace | None:
        """Return the live namespace, or None if it is gone, not being deleted, or without our finalizer."""
        try:
            namespace = await self._client.get(NAMESPACES, key)
        except NotFound:
            return None
        return namespace if _is_ours(namespace) else None

    async def _empty(self, name: str, ripe: float) -> PassOutcome | None:
        """Run one pass: delete the pods; without pods, after the time `ripe`, the rest. Return None before that
        time.
        """
        pods = await self._deleter.clear(_PODS, name)
        if pods.count or pods.failure:
            return PassOutcome((pods,))
        now = monotonic()
        if now < ripe:
            return None
        found = await self._discovery.since(max(ripe, now - SHARED))
        served, unparsable = addressable(found.preferred())
        others = [one for one in served if one.resource.name != PODS.name]
        rest = await self._deleter.clear_all(others, name)
        return PassOutcome((pods, *rest), tuple(sorted(found.failures.items())), unparsable)

    async def _report(self, namespace: Namespace, outcome: PassOutcome) -> Namespace:
        """Write the conditions if they have changed, unless the namespace is about to be removed."""
        goes = outcome.empty and namespace.spec.finalizers == (FINALIZER,) and not namespace.metadata.finalizers
        conditions = with_outcome(namespace.status.conditions, outcome, utc_now())
        if goes:
            return namespace
        status = msgspec.structs.replace(namespace.status, conditions=conditions)
        changed = msgspec.structs.replace(namespace, status=status)
        return await update_status(self._client, NAMESPACES, namespace, changed)

    async def _finalize(self, namespace: Namespace) -> None:
        left = tuple(f for f in namespace.spec.finalizers if f != FINALIZER)
        spec = msgspec.structs.replace(namespace.spec, finalizers=left)
        with contextlib.suppress(NotFound):
            await self._client.update(NAMESPACES, msgspec.structs.replace(namespace, spec=spec), subresource="finalize")


def deletions(_: Informers, change: Change[Namespace]) -> Iterator[Key]:
    """Yield a namespace whose deletion starts, one found deleting at startup, and one that is gone; not our own
    writes.
    """
    before, after = change.before, change.after
    gone = after is None
    begins = after is not None and _is_ours(after) and (change.initial or before is None or not _is_ours(before))
    if gone or begins:
        yield change.key


SPECS = (
    ControllerSpec(
        name="namespace-controller",
        sharded_by=NAMESPACES,
        queue="namespace",
        aliases=("namespace",),
        reconciler=NamespaceController,
        options=NamespaceOptions,
        workers=lambda options: options.concurrent_namespace_syncs,
        watches=(Mapped(NAMESPACES, deletions),),
        qps_factor=20,  # it asks for everything of each resource there is
        rbac=(
            PolicyRule(groups=("",), resources=("namespaces",), verbs=("get", "list", "watch")),
            PolicyRule(groups=("",), resources=("namespaces/finalize", "namespaces/status"), verbs=("update",)),
            PolicyRule(groups=("*",), resources=("*",), verbs=("get", "list", "delete", "deletecollection")),
        ),
    ),
)


def _is_ours(namespace: Namespace) -> bool:
    return namespace.metadata.deletion_timestamp is not None and FINALIZER in namespace.spec.finalizers
