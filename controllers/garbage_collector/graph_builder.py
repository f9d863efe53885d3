"""Watches all deletable resources of discovery, applies changes to the graph and enqueues the resulting tasks."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.model import BareObject, ObjectMeta, PartialObject
from controller_manager.common.api.resource import Resource
from controller_manager.common.base import clock
from controller_manager.common.base.fair_loop import give_way
from controller_manager.common.base.log import Logger
from controller_manager.framework import Add, Change, Informer, Informers, Priority
from controller_manager.framework.client.discovery import Discovery, ServedResource
from controller_manager.framework.client.events import Recorder

from .graph import Graph, Instruction, Misplaced, ObjectIdentity, Steps, Task

Kind = tuple[str, str]
"""Group and kind."""
Name = tuple[str, str]
"""Group and plural."""

# Events are not owners and expire by themselves.
IGNORED: frozenset[Name] = frozenset({("", "events"), ("events.k8s.io", "events")})
_WATCHED = {"delete", "list", "watch"}


class KnownResources(msgspec.Struct, frozen=True):
    """The merged result of discoveries: the resources to watch, and the resource of each kind."""

    watched: Mapping[Name, Resource[PartialObject]] = {}
    kinds: Mapping[Kind, Resource[PartialObject]] = {}

    def after(self, found: Discovery) -> "KnownResources":
        """Return the result after another discovery.

        Failed groups keep their previous resources. A version in use is kept while it is served.
        """
        kinds = _kinds(found)
        watched: dict[Name, Resource[PartialObject]] = {}
        for one in found.preferred():
            name = one.resource.group, one.resource.plural
            if _is_watched(one):
                before = self.watched.get(name)
                is_same = before is one.resource or (before is not None and found.serves(before))
                watched[name] = before if before is not None and is_same else one.resource
        for name, resource in self.watched.items():
            if name not in watched and found.may_lack(resource):
                watched[name] = resource
        for kind, resource in self.kinds.items():
            if kind not in kinds and found.may_lack(resource):
                kinds[kind] = resource
        return KnownResources(watched, kinds)


def _kinds(found: Discovery) -> dict[Kind, Resource[PartialObject]]:
    """Return the resource of each kind.

    A kind with several resources is omitted, because an object missing in one of them may exist in another.
    """
    candidates: dict[Kind, list[ServedResource]] = {}
    for one in found.preferred():
        if "get" in one.verbs:
            candidates.setdefault((one.resource.group, one.resource.kind), []).append(one)
    kinds: dict[Kind, Resource[PartialObject]] = {}
    for kind, served in candidates.items():
        stored = [one for one in served if _is_watched(one)] or served
        if len(stored) == 1:
            kinds[kind] = stored[0].resource
    return kinds


def _is_watched(one: ServedResource) -> bool:
    return one.verbs >= _WATCHED and (one.resource.group, one.resource.plural) not in IGNORED


# The maximum number of observations or instructions before other coroutines run.
_AT_ONCE = 500


class Observation(NamedTuple):
    """An object was seen (`meta`), deleted, or is `out_of_sight`.

    The latter means that it is no longer watched, or missing in a list after a watch was interrupted. Such a list is
    no proof: servers that start or fail have returned empty ones.
    """

    identity: ObjectIdentity
    meta: ObjectMeta | None
    is_initial: bool = False
    out_of_sight: bool = False


class _Monitor(NamedTuple):
    resource: Resource[PartialObject]
    informer: Informer[Any]
    end: Callable[[], None]


class Monitors:
    """The watches, one per resource.

    Their observations are queued in `seen`, in order. `known` is the merged result of discovery.
    """

    def __init__(self, informers: Informers, log: Logger) -> None:
        self._found: Discovery | None = None
        self._informers = informers
        self._log = log
        self._monitors: dict[Name, _Monitor] = {}
        self._unread: dict[Name, _Monitor] = {}  # those that were unread at the last check
        self._failures: tuple[str, ...] = ()
        self._wake = asyncio.Event()
        self.known = KnownResources()
        self.seen: deque[Observation] = deque()

    async def something(self) -> None:
        """Wait until something was observed."""
        await self._wake.wait()
        self._wake.clear()

    async def refresh(self, since: float) -> bool:
        """Watch the resources of a discovery made at `since` or later. Return whether all groups could be
        discovered.
        """
        found = await self._informers.discovery.since(since)
        if found is self._found:
            return not found.failed
        self._found = found
        if found.failed and found.failed != self._failures:
            self._log.warning("some resources could not be discovered", failures=dict(found.failures))
        self._failures = found.failed
        self.known = self.known.after(found)
        for name, monitor in tuple(self._monitors.items()):
            if self.known.watched.get(name) != monitor.resource:
                self._stop(name)
        for name, resource in self.known.watched.items():
            if name not in self._monitors:
                self._start(name, resource)
        return not found.failed

    def stop(self) -> None:
        """Stop all watches."""
        for monitor in self._monitors.values():
            self._end(monitor)
        self._monitors.clear()
        self._unread.clear()
        self._found = None

    async def synced(self) -> None:
        """Wait until all resources have been listed once."""
        for monitor in tuple(self._monitors.values()):
            await monitor.informer.synced()

    def unread(self) -> tuple[str, ...]:
        """Return the names of the resources that have not been listed yet."""
        self._unread = {name: one for name, one in self._unread.items() if not one.informer.is_synced}
        return tuple(one.resource.name for one in self._unread.values())

    def late(self) -> tuple[float, ...]:
        """Return for how many seconds each watch that may hide objects has failed, or has been starting."""
        now = clock.monotonic()
        found = (one.informer.reflector.late(now) for one in self._monitors.values())
        return tuple(seconds for seconds in found if seconds is not None)

    def _start(self, name: Name, resource: Resource[PartialObject]) -> None:
        informer = self._informers.acquire(replace(resource, type=BareObject))
        group, kind, seen, wake = resource.group, resource.kind, self.seen, self._wake

        def note(change: Change[Any]) -> None:
            meta = change.object.metadata
            identity = ObjectIdentity(group, kind, meta.namespace, meta.name, meta.uid)
            there = None if change.after is None else meta
            seen.append(Observation(identity, there, change.initial, change.missed))
            wake.set()

        self._monitors[name] = self._unread[name] = _Monitor(resource, informer, informer.subscribe(note))
        self._log.debug("watching a resource", resource=resource.name)

    def _stop(self, name: Name) -> None:
        monitor = self._monitors.pop(name)
        self._unread.pop(name, None)
        self._end(monitor)
        group, kind = monitor.resource.group, monitor.resource.kind
        for obj in monitor.informer.list():
            meta = obj.metadata
            identity = ObjectIdentity(group, kind, meta.namespace, meta.name, meta.uid)
            self.seen.append(Observation(identity, None, out_of_sight=True))
        self._wake.set()
        self._log.debug("watching a resource no longer", resource=monitor.resource.name)

    def _end(self, monitor: _Monitor) -> None:
        monitor.end()
        self._informers.release(monitor.informer)


class GraphBuilder:
    """Applies observations to the graph and enqueues the resulting tasks, once `add` is set."""

    def __init__(self, graph: Graph, monitors: Monitors, events: Recorder) -> None:
        self.add: Add = _ignore
        self._graph = graph
        self._monitors = monitors
        self._events = events
        # The observation being applied, and its remaining steps.
        self._under_way: tuple[Observation, Steps] | None = None

    async def begin(self) -> None:
        """Apply everything that was listed at the start before any task is enqueued, since the order of lists
        is arbitrary.
        """
        ordered: dict[Instruction, None] = {}
        while self._monitors.seen:
            for _ in range(min(_AT_ONCE, len(self._monitors.seen))):
                for instructions in self._steps(self._monitors.seen.popleft()):
                    ordered.update(dict.fromkeys(instructions))
                    await give_way()
            await asyncio.sleep(0)
        instructions = list(ordered)
        for start in range(0, len(instructions), _AT_ONCE):
            self.order(instructions[start : start + _AT_ONCE], "found at the start", Priority.LOW)
            await asyncio.sleep(0)

    async def follow(self) -> None:
        """Apply observations until cancelled."""
        while True:
            await self._monitors.something()
            await self.catch_up()

    async def catch_up(self) -> None:
        """Apply all queued observations, yielding to other coroutines regularly."""
        count = 0
        while self._take_step():
            await give_way()
            count += 1
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def _take_step(self) -> bool:
        """Apply the next step of an observation. Return whether there was one."""
        if self._under_way is None:
            if not self._monitors.seen:
                return False
            one = self._monitors.seen.popleft()
            self._under_way = one, self._steps(one)
        one, steps = self._under_way
        instructions = next(steps, None)
        if instructions is None:
            self._under_way = None
        else:
            self.order(instructions, _cause(one), _priority(one))
        return True

    def order(self, instructions: Iterable[Instruction], cause: str, priority: Priority = Priority.NORMAL) -> None:
        """Enqueue the tasks that are still necessary, and record events for misplaced objects."""
        for instruction in instructions:
            match instruction:
                case Task() as task:
                    if self._graph.needs(task):
                        self.add(task, cause, priority)
                case Misplaced(dependent, owner):
                    self._report(dependent, owner)

    def _steps(self, one: Observation) -> Steps:
        if one.meta is not None:
            return self._graph.observe(one.identity, one.meta)
        return self._graph.forget(one.identity) if one.out_of_sight else self._graph.lose(one.identity)

    def _report(self, dependent: ObjectIdentity, owner: ObjectIdentity) -> None:
        resource = self._monitors.known.kinds.get((dependent.group, dependent.kind))
        if resource is not None:
            metadata = ObjectMeta(namespace=dependent.namespace, name=dependent.name, uid=dependent.uid)
            regarding = PartialObject(api_version=resource.api_version, kind=resource.kind, metadata=metadata)
            there = f"in the namespace {dependent.namespace}" if dependent.namespace else "outside all namespaces"
            note = f"The owner it names, {owner.kind} {owner.name} with the uid {owner.uid}, does not exist {there}"
            self._events.warning(regarding, "OwnerRefInvalidNamespace", note)


def _ignore(key: object, cause: str = "", priority: Priority = Priority.NORMAL, *, after: float = 0.0) -> None:
    """Ignore the key, before `add` is set."""


def _cause(one: Observation) -> str:
    what = "out of sight" if one.out_of_sight else "deleted" if one.meta is None else "changed"
    return f"{one.identity.kind} {one.identity.name} {what}"


def _priority(one: Observation) -> Priority:
    return Priority.LOW if one.is_initial else Priority.NORMAL
