"""Deletes what has lost its last owner, and lets go of owners that wait for their dependents."""

import asyncio
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from controller_manager.common.api.errors import ApiError, InvalidName
from controller_manager.common.api.model import ObjectMeta, OwnerReference
from controller_manager.common.base import clock
from controller_manager.common.base.deadlines import wait_or_set
from controller_manager.common.base.fair_loop import Turn
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.common.base.tasks import all_of
from controller_manager.common.options import Int32, Options, flag
from controller_manager.framework.controller import Add, Context, ControllerSpec, PolicyRule, Requeue, TerminalError

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

# Seconds between two discoveries, at least and, while no kind turns up that is not known, at most; for how long such an
# answer serves other controllers as well; and how long the first reading of everything is waited for.
SOONEST_REDISCOVERY, REDISCOVERY, SHARED = 5.0, 10.0, 1.0
FIRST_READING = 30.0
# Seconds until an owner that is there but was never observed is looked at again.
UNOBSERVED = 30.0
# How long an owner is kept back for watches that fail, since they may hide dependents; and how often that is looked at.
# Those that have failed for longer hold up no owner that only waits for its dependents: what was hidden goes after it.
# They do hold up one that orphans them: what was hidden would be collected. It is longer than a watch pauses (30 s), so
# that one which can be mended is.
HELD_BACK, LOOK_AGAIN = 45.0, 1.0
ORPHANED_AT_ONCE, MOST_FAILURES = 20, 100
# A key that stays in the queue until discovery has been asked for an unknown kind, so that the work shows as pending.
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


# Observed: the metadata of every object of every resource that can be deleted, listed and watched, but for events. What
# is found out by the graph is only a suspicion; whether an owner is there is asked for live, unless its deletion was
# seen, and what an object is deleted for is proved by the resourceVersion the deletion is bound to.
#
#   observed                                                   looked at
#   an object names an owner nobody has observed               that owner: if it is not there, its dependents
#   an owner is gone                                           its dependents
#   an owner turns out to be another than a dependent claims   the dependent (event OwnerRefInvalidNamespace)
#   an owner is deleted in the foreground                      its dependents, and the owner
#   it has no dependent any more that holds it up              the owner
#   an owner is deleted, orphaning its dependents              the owner
#
#   an object looked at                                        done
#   it is being deleted, or has an owner it names              nothing
#   else                                                       as `decide.py` says
#   it waits for dependents, and none holds it up              its finalizer is removed
#   it waits, and holds up one who holds it up                 it holds that one up no longer
#   it is to orphan its dependents                             they no longer name it, then its finalizer is removed


class GarbageCollector:
    """Works on one object at a time, named by its uid."""

    def __init__(self, context: Context, options: GarbageCollectorOptions) -> None:
        self._enabled = options.enable_garbage_collector
        self._log = context.log
        self._errors = Counters(_SYNC_ERRORS, context.runtime.registry)
        self._graph = Graph()
        self._monitors = Monitors(context.informers, context.log)
        self._graph_builder = GraphBuilder(self._graph, self._monitors, context.events)
        self._lookup = LiveLookup(context.client, lambda: self._monitors.known, self._graph)
        self._writes = BoundWriter(context.client, self._lookup)
        # What could not be looked at because of a kind nobody knows, and whether discovery was asked since.
        self._unknown_kinds: dict[Task, bool] = {}
        self._kind_unknown = asyncio.Event()
        # Since when an owner is kept back.
        self._held_back: dict[Task, float] = {}

    async def run(self, add: Add) -> None:
        """Watch everything, and order looks, until cancelled."""
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
        """Look at one object, or orphan its dependents, if there still is a reason to."""
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

    # Looks

    async def _look(self, task: Task, node: GraphNode) -> Requeue | None:
        if node.identity is None or node.meta is None:
            return await self._find_virtual(node)
        if task.what is What.ORPHAN:
            return await self._orphan(node, node.identity, node.meta)
        if node.is_waiting:
            return await self._let_go(node, node.identity, node.meta)
        await self._collect(node, node.identity, node.meta)
        return None

    async def _find_virtual(self, owner: GraphNode) -> Requeue | None:
        """Look for an owner nobody has observed, wherever its dependents say it is."""
        trouble: UnknownKind | Unclear | ApiError | None = None
        is_there, turn = False, Turn()
        for claim in tuple(owner.claims):
            await turn.give_way()
            try:
                state = await self._lookup.owner(claim)
            except (UnknownKind, Unclear, ApiError) as error:
                # Somebody may claim nonsense of the owner of others: these are judged by what they claim.
                trouble = error if trouble is None or isinstance(trouble, UnknownKind | InvalidName) else trouble
                continue
            if state is OwnerState.GONE:
                self._graph_builder.order(self._graph.claimants(claim), f"{claim.kind} {claim.name} is not there")
            is_there = is_there or state in (OwnerState.SOLID, OwnerState.WAITING)
        if trouble is not None and not (is_there and isinstance(trouble, UnknownKind)):
            raise trouble
        return Requeue(UNOBSERVED) if is_there else None

    async def _collect(self, node: GraphNode, identity: ObjectIdentity, seen: ObjectMeta) -> None:
        """Have an object stay or go, as its owners are."""

        async def judge(meta: ObjectMeta) -> None:
            if meta.deletion_timestamp is not None:
                return
            states, turn = [], Turn()
            for reference in meta.owner_references:
                states.append(await self._owner_state(identity, reference))
                await turn.give_way()
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

    async def _let_go(self, node: GraphNode, identity: ObjectIdentity, seen: ObjectMeta) -> Requeue | None:
        """Let an owner go that nobody holds up; untie it from those who wait for each other in a circle."""

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
        """Have nobody name the owner any more, then let it go."""

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
        """Take the owner from these dependents; one that refuses is no reason to spare the others, many are."""
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
        """Return whether an owner is not let go yet, as there may be dependents of it nobody here has seen."""
        since = self._held_back.setdefault(task, clock.monotonic())
        if is_late and clock.monotonic() - since < HELD_BACK:
            return True
        del self._held_back[task]
        return False

    # Which resources there are, and what is in them

    async def _read_everything(self) -> None:
        try:
            async with asyncio.timeout(FIRST_READING):
                await self._monitors.synced()
        except TimeoutError:
            self._errors.add()
            self._log.warning("going on without what could not be read", resources=self._monitors.unread())
        await self._graph_builder.begin()

    async def _rediscover(self) -> None:
        """Ask again at intervals, and sooner when a kind turned up that is not known."""
        since, unread = clock.monotonic(), self._monitors.unread()
        while True:
            await self._until_due(since + REDISCOVERY)
            if clock.monotonic() >= since + REDISCOVERY:
                self._tell_late(set(unread).intersection(self._monitors.unread()))
                since, unread = clock.monotonic(), self._monitors.unread()
            await self._discover()

    async def _until_due(self, at: float) -> None:
        soonest = clock.monotonic() + SOONEST_REDISCOVERY
        await wait_or_set(self._kind_unknown, at, housekeeping=True)
        await asyncio.sleep(soonest - clock.monotonic())

    def _tell_late(self, late: set[str]) -> None:
        if late:
            self._errors.add()
            self._log.warning("resources can't be read", resources=sorted(late))

    async def _discover(self) -> None:
        self._kind_unknown.clear()
        kinds, new = self._monitors.known.kinds, [task for task, asked in self._unknown_kinds.items() if not asked]
        if not await self._monitors.refresh(clock.monotonic() - (0.0 if new else SHARED)):
            self._errors.add()
        # What is gone meanwhile puzzles nobody, nor is it held back.
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
    """The references, none of which holds up any of these owners."""
    for reference in references:
        yield replace(reference, block_owner_deletion=False) if reference.uid in owners else reference
