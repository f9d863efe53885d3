"""The watches of the garbage collector: one for each resource whose objects can be deleted, as these come and go."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from controller_manager.api.model import BareObject, ObjectMeta, PartialObject
from controller_manager.api.resource import Resource
from controller_manager.base import clock
from controller_manager.base.log import Logger
from controller_manager.client import Client
from controller_manager.client.discovery import resources
from controller_manager.controller import Change, Informer, Informers

from .identity import Identity
from .resources import Known, Name


class Observation(NamedTuple):
    """An object was seen (`meta`), was deleted, or is `out_of_sight`: it is watched no longer, or was not found again
    after a break. A listing that lacks it is less than being told: servers that start or fail have shown empty ones.
    """

    identity: Identity
    meta: ObjectMeta | None
    is_initial: bool = False
    out_of_sight: bool = False


class _Monitor(NamedTuple):
    resource: Resource[PartialObject]
    informer: Informer[Any]
    end: Callable[[], None]


class Monitors:
    """What they saw waits in `seen`, in order; `known` is what the last discovery told."""

    def __init__(self, client: Client, informers: Informers, log: Logger) -> None:
        self._client = client
        self._informers = informers
        self._log = log
        self._monitors: dict[Name, _Monitor] = {}
        self._failures: tuple[str, ...] = ()
        self._wake = asyncio.Event()
        self.known = Known()
        self.seen: deque[Observation] = deque()

    async def something(self) -> None:
        """Wait until something was seen."""
        await self._wake.wait()
        self._wake.clear()

    async def refresh(self) -> bool:
        """Ask which resources there are, and watch these; whether all could be asked for."""
        found = await resources(self._client)
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
        """Watch nothing more."""
        for monitor in self._monitors.values():
            self._end(monitor)
        self._monitors.clear()

    async def synced(self) -> None:
        """Wait until everything was read once."""
        for monitor in tuple(self._monitors.values()):
            await monitor.informer.synced()

    def unread(self) -> tuple[str, ...]:
        """The resources not read yet, by name."""
        return tuple(one.resource.name for one in self._monitors.values() if not one.informer.is_synced)

    def late(self) -> tuple[float, ...]:
        """Of the watches that may hide objects, since they fail or have only begun: for how many seconds they have."""
        now = clock.monotonic()
        found = (one.informer.reflector.late(now) for one in self._monitors.values())
        return tuple(seconds for seconds in found if seconds is not None)

    def _start(self, name: Name, resource: Resource[PartialObject]) -> None:
        informer = self._informers.acquire(replace(resource, type=BareObject))
        group, kind, seen, wake = resource.group, resource.kind, self.seen, self._wake

        def note(change: Change[Any]) -> None:
            meta = change.object.metadata
            identity = Identity(group, kind, meta.namespace, meta.name, meta.uid)
            there = None if change.after is None else meta
            seen.append(Observation(identity, there, change.initial, change.missed))
            wake.set()

        self._monitors[name] = _Monitor(resource, informer, informer.subscribe(note))
        self._log.debug("watching a resource", resource=resource.name)

    def _stop(self, name: Name) -> None:
        monitor = self._monitors.pop(name)
        self._end(monitor)
        group, kind = monitor.resource.group, monitor.resource.kind
        for obj in monitor.informer.list():
            meta = obj.metadata
            identity = Identity(group, kind, meta.namespace, meta.name, meta.uid)
            self.seen.append(Observation(identity, None, out_of_sight=True))
        self._wake.set()
        self._log.debug("watching a resource no longer", resource=monitor.resource.name)

    def _end(self, monitor: _Monitor) -> None:
        monitor.end()
        self._informers.release(monitor.informer)
