"""Deletes objects whose last owner is gone, and removes the finalizers of owners whose dependents are gone."""

import asyncio
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from controller_manager.common.api.errors import ApiError, InvalidName
from controller_manager.common.api.model import ObjectMeta, OwnerReference
from controller_manager.common.base import clock
from controller_manager.common.base.deadlines import wait_or_set
from controller_manager.common.base.fair_loop import give_way
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.common.base.tasks import all_of
from controller_manager.framework import (
    Add,
    Context,
    ControllerSpec,
    Int32,
    Options,
    PolicyRule,
    Requeue,
    TerminalError,
    flag,
)

from .graph import (
    FOREGROUND,
    ORPHAN,
    Graph,
    GraphNode,
    ObjectIdentity,
    Task,
    What,
    claim_of,
    is_orphaning,
    is_waiting,
)
from .graph_builder import GraphBuilder, Monitors
from .live import BoundWriter, Delete, LiveLookup, OwnerState, SetOwners, Unclear, UnknownKind, decide

# Minimum and maximum seconds between two discoveries (an unknown kind triggers one sooner), how long a discovery result
# is shared with other controllers, and the timeout of the first listing of all resources.
SOONEST_REDISCOVERY, REDISCOVERY, SHARED = 5.0, 10.0, 1.0
FIRST_READING = 30.0
# Seconds until an owner that exists but was never observed is checked again.
UNOBSERVED = 30.0
# Maximum seconds for which the deletion of an owner waits for failing watches, which may hide dependents, and the
# interval of these checks. After that time an owner in foreground deletion is released: hidden dependents are collected
# later. Orphaning still waits, because hidden dependents would be collected. The time is longer than the longest
# backoff of a watch (30 s), so that a transient failure does not count.
HELD_BACK, LOOK_AGAIN = 45.0, 1.0
ORPHANED_AT_ONCE, MOST_FAILURES = 20, 100
# A key that stays in the queue until discovery has refreshed for an unknown kind, so that the work counts as pending.
_REDISCOVERY = Task(What.LOOK, "")

_SYNC_ERRORS = Family(
    "garbagecollector_controller_resources_sync_error_total",
    "Discoveries of resources that failed in part or whole, or after which a resource could not be read in time.",
    "counter",
)


class GarbageCollectorOptions(Options):
    """Garbage collector controller"""

    enable_garbage_collector: bool = flag(
        True, "delete objects whose owners are gone; must be as the API server has it."
    )
    concurrent_gc_syncs: Int32 = flag(20, "Objects looked at at the same time.", minimum=1)


# Observed: the metadata of every object of every deletable resource, listed and watched, except events. The graph only
# suggests work. The existence of an owner is read live, unless its deletion was observed, and every delete carries the
# resourceVersion of the state it was decided on.
#   observed                                              enqueued
#   an object refers to an owner that was not observed    the owner; if it does not exist, its dependents
#   an owner is gone                                      its dependents
#   an owner does not match the reference                 the dependent (event OwnerRefInvalidNamespace)
#   an owner is in foreground deletion                    its dependents, and the owner
#   it has no blocking dependent any more                 the owner
#   an owner is deleted, orphaning its dependents         the owner
#   object                                                action
#   is being deleted, or has an existing owner            nothing
#   else                                                  as `live.py` decides
#   waits for dependents, and none blocks it              remove its finalizer
#   waits, and blocks an owner that blocks it (cycle)     clear blockOwnerDeletion of that reference
#   orphans its dependents                                remove it from their owners, then remove its finalizer


class GarbageCollector:
    """Processes one object at a time, by its uid."""

    def __init__(self, context: Context, options: GarbageCollectorOptions) -> None:
        self._enabled = options.enable_garbage_collector
        self._log = context.log
        self._errors = Counters(_SYNC_ERRORS, context.runtime.registry)
        self._graph = Graph()
        self._monitors = Monitors(context.informers, context.log)
        self._graph_builder = GraphBuilder(self._graph, self._monitors, context.events)
        self._lookup = LiveLookup(context.client, lambda: self._monitors.known, self._graph)
        self._writes = BoundWriter(context.client, self._lookup)
        # Tasks that wait for an unknown kind, and whether discovery has run since.
        self._unknown_kinds: dict[Task, bool] = {}
        self._kind_unknown = asyncio.Event()
        # Since when the deletion of an owner waits for failing watches.
        self._held_back: dict[Task, float] = {}

    async def run(self, add: Add) -> None:
        """Watch all resources and enqueue tasks until cancelled."""
        if not self._enabled:
            return
        self._graph_builder.add = add
        try:
            await self._discover()
            await self._read_everything()
            await all_of(self._graph_builder.follow(), self._rediscover())
        finally:
            self._monitors.stop()

    async def reconcile(self, task: Task) -> Requeue | None:
        """Process one object, or orphan its dependents, if that is still necessary."""
        if task == _REDISCOVERY:
            return None if all(self._unknown_kinds.values()) else Requeue(LOOK_AGAIN)
        node = self._graph.get(task.uid)
        if node is None or not self._graph.needs(task):
            return None
        try:
            outcome = await self._look(task, node)
        except UnknownKind as error:
            if self._unknown_kinds.setdefault(task, False):
                raise TerminalError(str(error)) from None
            self._kind_unknown.set()  # the kind may be newer than what is known
            self._graph_builder.add(_REDISCOVERY, "an owner is of an unknown kind", after=LOOK_AGAIN)
            return None
        self._unknown_kinds.pop(task, None)
        return outcome

    # Tasks

    async def _look(self, task: Task, node: GraphNode) -> Requeue | None:
        if node.identity is None or node.meta is None:
            return await self._find_virtual(node)
        if task.what is What.ORPHAN:
            return await self._orphan(node, node.identity, node.meta)
        if node.is_waiting:
            return await self._release(node, node.identity, node.meta)
        await self._collect(node, node.identity, node.meta)
        return None

    async def _find_virtual(self, owner: GraphNode) -> Requeue | None:
        """Look up an owner that was not observed at each place where its dependents claim it is."""
        problem: UnknownKind | Unclear | ApiError | None = None
        is_there = False
        for claim in tuple(owner.claims):
            await give_way()
            try:
                state = await self._lookup.owner(claim)
            except (UnknownKind, Unclear, ApiError) as error:
                # A dependent may refer to an owner with wrong data. Other dependents are judged by their own
                # references.
                problem = error if problem is None or isinstance(problem, UnknownKind | InvalidName) else problem
                continue
            if state is OwnerState.GONE:
                self._graph_builder.order(self._graph.claimants(claim), f"{claim.kind} {claim.name} is not there")
            is_there = is_there or state in (OwnerState.SOLID, OwnerState.WAITING)
        if problem is not None and not (is_there and isinstance(problem, UnknownKind)):
            raise problem
        return Requeue(UNOBSERVED) if is_there else None

    async def _collect(self, node: GraphNode, identity: ObjectIdentity, seen: ObjectMeta) -> None:
        """Keep or delete an object, depending on its owners."""

        async def judge(meta: ObjectMeta) -> None:
            if meta.deletion_timestamp is not None:
                return
            states = []
            for reference in meta.owner_references:
                states.append(await self._owner_state(identity, reference))
                await give_way()
            match decide(meta, states, has_dependents=bool(node.claims)):
                case SetOwners(owners):
                    await self._writes.own(identity, meta, owners)
                case Delete(policy):
                    await self._writes.delete(identity, meta, policy)

        await self._writes.on_latest(identity, seen, judge)

    async def _owner_state(self, identity: ObjectIdentity, reference: OwnerReference) -> OwnerState:
        if reference.uid == identity.uid:
            return OwnerState.SOLID
        state = await self._lookup.owner(claim_of(identity, reference))
        if state is None:
            raise TerminalError(
                f"{reference.kind} {reference.name}, an owner, is in a namespace, and the object is not"
            )
        return state

    async def _release(self, node: GraphNode, identity: ObjectIdentity, seen: ObjectMeta) -> Requeue | None:
        """Remove the finalizer of an owner without blocking dependents. Break cycles of owners that wait for
        each other.
        """

        async def untie(meta: ObjectMeta) -> None:
            cycles = self._graph.cycles(identity.uid)
            owners = tuple(_unblocking(meta.owner_references, cycles))
            if owners != meta.owner_references:
                await self._writes.own(identity, meta, owners)

        async def release(meta: ObjectMeta) -> None:
            if is_waiting(meta):
                await self._writes.release(identity, meta, FOREGROUND)

        if node.blocking:
            if self._graph.cycles(identity.uid):
                await self._writes.on_latest(identity, seen, untie)
        elif self._holds_back(Task(What.LOOK, identity.uid), min(self._monitors.late(), default=HELD_BACK) < HELD_BACK):
            return Requeue(LOOK_AGAIN)
        else:
            await self._writes.on_latest(identity, seen, release)
        return None

    async def _orphan(self, owner: GraphNode, identity: ObjectIdentity, seen: ObjectMeta) -> Requeue | None:
        """Remove the owner from the references of all dependents, then remove its finalizer."""

        async def release(meta: ObjectMeta) -> None:
            if is_orphaning(meta):
                await self._writes.release(identity, meta, ORPHAN)

        if self._holds_back(Task(What.ORPHAN, identity.uid), bool(self._monitors.late())):
            return Requeue(LOOK_AGAIN)
        latest = await self._lookup.read(identity)
        if not is_orphaning(latest):
            return None
        freed: set[str] = set()
        while True:
            await self._graph_builder.catch_up()
            rest = [uid for uid in owner.dependents() if uid not in freed]
            if not rest:
                break
            freed.update(rest)
            await self._disown_all(rest, identity.uid)
        await self._writes.on_latest(identity, seen, release)
        return None

    async def _disown_all(self, dependents: Iterable[str], owner: str) -> None:
        """Remove the owner from these dependents. Up to MOST_FAILURES errors do not stop the others."""
        queue = iter(dependents)
        failures: list[Exception] = []

        async def work() -> None:
            for uid in queue:
                node = self._graph.get(uid)
                if node is not None and node.identity is not None and node.meta is not None:
                    try:
                        await self._disown_one(node.identity, node.meta, owner)
                    except (ApiError, OSError, Unclear, UnknownKind) as error:
                        failures.append(error)
                if len(failures) >= MOST_FAILURES:
                    break

        await all_of(*(work() for _ in range(ORPHANED_AT_ONCE)))
        if failures:
            raise failures[0]

    async def _disown_one(self, dependent: ObjectIdentity, seen: ObjectMeta, owner: str) -> None:
        async def disown(meta: ObjectMeta) -> None:
            owners = tuple(reference for reference in meta.owner_references if reference.uid != owner)
            if len(owners) < len(meta.owner_references):
                await self._writes.own(dependent, meta, owners)

        await self._writes.on_latest(dependent, seen, disown)

    def _holds_back(self, task: Task, is_late: bool) -> bool:
        """Return whether the deletion of an owner has to wait, because failing watches may hide dependents."""
        since = self._held_back.setdefault(task, clock.monotonic())
        if is_late and clock.monotonic() - since < HELD_BACK:
            return True
        del self._held_back[task]
        return False

    # Discovery and watches

    async def _read_everything(self) -> None:
        try:
            async with asyncio.timeout(FIRST_READING):
                await self._monitors.synced()
        except TimeoutError:
            self._errors.add()
            self._log.warning("going on without what could not be read", resources=self._monitors.unread())
        await self._graph_builder.begin()

    async def _rediscover(self) -> None:
        """Run discovery at intervals, and sooner if an unknown kind was found."""
        since, unread = clock.monotonic(), self._monitors.unread()
        while True:
            await self._until_due(since + REDISCOVERY)
            if clock.monotonic() >= since + REDISCOVERY:
                self._log_late(set(unread).intersection(self._monitors.unread()))
                since, unread = clock.monotonic(), self._monitors.unread()
            await self._discover()

    async def _until_due(self, at: float) -> None:
        soonest = clock.monotonic() + SOONEST_REDISCOVERY
        await wait_or_set(self._kind_unknown, at, housekeeping=True)
        await asyncio.sleep(soonest - clock.monotonic())

    def _log_late(self, late: set[str]) -> None:
        if late:
            self._errors.add()
            self._log.warning("resources can't be read", resources=sorted(late))

    async def _discover(self) -> None:
        self._kind_unknown.clear()
        kinds, new = self._monitors.known.kinds, [task for task, asked in self._unknown_kinds.items() if not asked]
        if not await self._monitors.refresh(clock.monotonic() - (0.0 if new else SHARED)):
            self._errors.add()
        # Drop tasks that are no longer necessary.
        self._unknown_kinds = {task: asked for task, asked in self._unknown_kinds.items() if self._graph.needs(task)}
        self._held_back = {task: since for task, since in self._held_back.items() if self._graph.needs(task)}
        self._unknown_kinds.update(dict.fromkeys(self._unknown_kinds.keys() & new, True))
        came_or_went = self._monitors.known.kinds != kinds
        self._graph_builder.order(self._unknown_kinds if came_or_went else new, "discovery was asked for its kind")


SPECS = (
    ControllerSpec(
        name="garbage-collector-controller",
        queue="garbage_collector_attempt_to_delete",
        aliases=("garbagecollector",),
        service_account="generic-garbage-collector",
        reconciler=GarbageCollector,
        options=GarbageCollectorOptions,
        workers=lambda options: options.concurrent_gc_syncs,
        watches=(),
        qps_factor=20,  # each object is a request
        rbac=(PolicyRule(groups=("*",), resources=("*",), verbs=("get", "list", "watch", "patch", "delete")),),
    ),
)


def _unblocking(references: Iterable[OwnerReference], owners: frozenset[str]) -> Iterator[OwnerReference]:
    """Return the references, without blockOwnerDeletion for these owners."""
    for reference in references:
        yield replace(reference, block_owner_deletion=False) if reference.uid in owners else reference
