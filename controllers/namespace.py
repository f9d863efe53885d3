"""Empties a namespace that is being deleted, says in its conditions what remains, and finalizes it when empty."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from controller_manager.api.core import NAMESPACES, PODS, Namespace
from controller_manager.api.edit import Condition, with_condition
from controller_manager.api.errors import ApiError, NotFound
from controller_manager.api.model import PartialObject
from controller_manager.api.resource import Key, Resource, key_of
from controller_manager.api.timestamps import format_time, parse_time
from controller_manager.base.clock import utc_now
from controller_manager.base.tasks import all_of
from controller_manager.client.discovery import ServedResource, resources
from controller_manager.controller import Context, For, Requeue, Rule, Spec
from controller_manager.options import Duration, Int32, Options, flag

FINALIZER = "kubernetes"
PARALLEL_RESOURCES = 8
PAGE = 500
ATTEMPTS = 3
# What holders of finalizers are given before the next look, and the longest wait between two looks at pods.
FINALIZERS_WAIT = 15.0
FIRST_WAIT = 0.5
# Before the first look, so that what was let in while not every API server knew of the deletion is there to be found.
LATE_ARRIVALS = 1.0


class NamespaceOptions(Options):
    """Namespace controller"""

    concurrent_namespace_syncs: Int32 = flag(10, "Namespaces emptied at the same time.", minimum=1)
    namespace_sync_period: Duration = flag(
        "5m", "How often, at least, a namespace that is being deleted is looked at again.", minimum=0.1
    )


# Observed, live: the namespace, the deletable resources discovery names, what is left of each in the namespace.
# Decided:
#   not being deleted, or already finalized             nothing
#   pods left, or not known whether                     wait for them; only then the other resources are deleted
#   anything left, or a resource that failed            say so in the conditions, look again later
#   nothing left and everything was looked at           remove our finalizer from the spec


@dataclass(frozen=True, slots=True)
class Remains:
    """What one resource still has in the namespace after its deletion was asked for; `wait` in seconds."""

    resource: str
    count: int = 0
    finalizers: Counter[str] = field(default_factory=Counter)
    wait: float = 0.0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one pass over a namespace: what remains, and the groups discovery could not ask."""

    remains: tuple[Remains, ...] = ()
    undiscovered: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether everything was looked at and nothing was found."""
        return not self.undiscovered and not any(r.count or r.failure for r in self.remains)

    @property
    def wait(self) -> float:
        """Seconds that what remains was promised; 0 when nobody waits for anything."""
        return max((r.wait for r in self.remains), default=0.0)


class NamespaceController:
    """Reconciles one namespace."""

    def __init__(self, context: Context, options: NamespaceOptions) -> None:
        self._client = context.client
        self._period = options.namespace_sync_period
        self._log = context.log

    async def reconcile(self, key: Key) -> Requeue | None:
        """Bring the deletion of namespace `key` forward, if it is being deleted."""
        try:
            namespace = await self._client.get(NAMESPACES, key)
        except NotFound:
            return None
        if namespace.metadata.deletion_timestamp is None or FINALIZER not in namespace.spec.finalizers:
            return None
        outcome = await self._empty(key.name)
        namespace = await self._report(namespace, outcome)
        if outcome.empty:
            await self._finalize(namespace)
            return None
        return Requeue(next_look(outcome, _age(namespace), self._period))

    async def _empty(self, namespace: str) -> Outcome:
        found = await resources(self._client)
        deletable = [r for r in found.preferred() if r.resource.namespaced and r.verbs >= {"delete", "list"}]
        pods = [r for r in deletable if (r.resource.group, r.resource.plural) == (PODS.group, PODS.plural)]
        others = [r for r in deletable if r not in pods]
        first = [await self._clear(served, namespace) for served in pods]
        pods_unknown = not pods and found.failed
        if pods_unknown or any(r.count or r.failure for r in first):
            return Outcome(tuple(first), tuple(found.failed))
        gate = asyncio.Semaphore(PARALLEL_RESOURCES)

        async def clear(served: ServedResource) -> Remains:
            async with gate:
                return await self._clear(served, namespace)

        return Outcome((*first, *await all_of(*map(clear, others))), tuple(found.failed))

    async def _clear(self, served: ServedResource, namespace: str) -> Remains:
        """Delete what one resource has in the namespace; its failure is its own and holds up nobody else.

        A namespace goes only after a pass in which every resource answered: a passing failure is asked again at once.
        """
        name = served.resource.name
        failure = ""
        for _ in range(ATTEMPTS):
            try:
                return await self._clear_once(served, namespace)
            except NotFound:
                return Remains(name)
            except (ApiError, OSError) as error:
                failure = f"{name}: {error}"
        self._log.warning("a resource could not be emptied", resource=name, namespace=namespace, error=failure)
        return Remains(name, failure=failure)

    async def _clear_once(self, served: ServedResource, namespace: str) -> Remains:
        resource = served.resource.metadata_only()
        objects = await self._objects(resource, namespace)
        if not objects:
            return Remains(resource.name)
        if "deletecollection" in served.verbs:
            await self._client.delete_collection(resource, namespace, propagation="Background")
        else:
            await self._delete_each(resource, objects)
        return remains_of(resource.name, await self._objects(resource, namespace))

    async def _objects(self, resource: Resource[PartialObject], namespace: str) -> list[PartialObject]:
        objects: list[PartialObject] = []
        token = ""
        while True:
            page = await self._client.list(resource, namespace, limit=PAGE, continue_token=token)
            objects += page.items
            token = page.continue_token
            if not token:
                return objects

    async def _delete_each(self, resource: Resource[PartialObject], objects: Iterable[PartialObject]) -> None:
        for obj in objects:
            with contextlib.suppress(NotFound):
                await self._client.delete(resource, key_of(obj), propagation="Background", uid=obj.metadata.uid)

    async def _report(self, namespace: Namespace, outcome: Outcome) -> Namespace:
        conditions = with_outcome(namespace.status.conditions, outcome, utc_now())
        if conditions == namespace.status.conditions:
            return namespace
        status = msgspec.structs.replace(namespace.status, conditions=conditions)
        return await self._client.update(
            NAMESPACES, msgspec.structs.replace(namespace, status=status), subresource="status"
        )

    async def _finalize(self, namespace: Namespace) -> None:
        left = tuple(f for f in namespace.spec.finalizers if f != FINALIZER)
        spec = msgspec.structs.replace(namespace.spec, finalizers=left)
        with contextlib.suppress(NotFound):
            await self._client.update(NAMESPACES, msgspec.structs.replace(namespace, spec=spec), subresource="finalize")


SPECS = (
    Spec(
        name="namespace-controller",
        queue="namespace",
        aliases=("namespace",),
        reconciler=NamespaceController,
        options=NamespaceOptions,
        workers=lambda options: options.concurrent_namespace_syncs,
        watches=(For(NAMESPACES, delay=lambda _: LATE_ARRIVALS),),
        qps_factor=20,  # it asks for everything of each resource there is
        rbac=(
            Rule(groups=("",), resources=("namespaces",), verbs=("get", "list", "watch")),
            Rule(groups=("",), resources=("namespaces/finalize", "namespaces/status"), verbs=("update",)),
            Rule(groups=("*",), resources=("*",), verbs=("get", "list", "delete", "deletecollection")),
        ),
    ),
)


def remains_of(resource: str, objects: Sequence[PartialObject]) -> Remains:
    """What `objects`, still there after their deletion was asked for, mean."""
    finalizers = Counter(f for obj in objects for f in obj.metadata.finalizers)
    graces = (float(obj.metadata.deletion_grace_period_seconds or 0) for obj in objects)
    wait = max(graces, default=0.0)
    return Remains(resource, len(objects), finalizers, max(wait, FINALIZERS_WAIT) if finalizers else wait)


def next_look(outcome: Outcome, age: float, period: float) -> float:
    """Seconds until the next look: soon at first, then as long as the deletion has taken, never past the promise.

    A promise of 30 s of grace is a bound, not a duration: most pods stop sooner.
    """
    bound = outcome.wait / 2 + 1 if outcome.wait else FINALIZERS_WAIT
    return min(max(FIRST_WAIT, age / 2), bound, period)


def with_outcome(conditions: Sequence[Condition], outcome: Outcome, now: datetime) -> tuple[Condition, ...]:
    """The conditions of a namespace after a pass.

    A condition is True where there is something to say, and turns False when that is over.
    """
    changed = tuple(conditions)
    for kind, reason, message in _findings(outcome):
        known = any(c.type == kind for c in changed)
        if not message and not known:
            continue
        changed = with_condition(
            changed,
            Condition(
                type=kind,
                status="True" if message else "False",
                reason=reason if message else _SETTLED[kind][0],
                message=message or _SETTLED[kind][1],
                last_transition_time=format_time(now),
            ),
        )
    return changed


_SETTLED = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "Every API group answered"),
    "NamespaceDeletionContentFailure": ("ContentDeleted", "Every resource accepted the deletion of its content"),
    "NamespaceContentRemaining": ("ContentRemoved", "Nothing is left"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "No finalizer is waited for"),
}


def _findings(outcome: Outcome) -> tuple[tuple[str, str, str], ...]:
    left = [r for r in outcome.remains if r.count]
    finalizers = sum((r.finalizers for r in left), Counter())
    contents = ", ".join(f"{r.resource} has {_instances(r.count)}" for r in left)
    holders = ", ".join(f"{name} in {_instances(count)}" for name, count in sorted(finalizers.items()))
    return (
        (
            "NamespaceDeletionDiscoveryFailure",
            "DiscoveryFailed",
            f"Discovery failed for some groups: {', '.join(outcome.undiscovered)}" if outcome.undiscovered else "",
        ),
        (
            "NamespaceDeletionContentFailure",
            "ContentDeletionFailed",
            "; ".join(r.failure for r in outcome.remains if r.failure),
        ),
        ("NamespaceContentRemaining", "SomeResourcesRemain", f"Still there: {contents}" if contents else ""),
        (
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain",
            f"Finalizers still waited for: {holders}" if holders else "",
        ),
    )


def _instances(count: int) -> str:
    return f"{count} resource instance{'s' if count > 1 else ''}"


def _age(namespace: Namespace) -> float:
    deleted = namespace.metadata.deletion_timestamp
    return (utc_now() - parse_time(deleted)).total_seconds() if deleted else 0.0
