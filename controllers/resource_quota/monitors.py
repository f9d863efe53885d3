"""Watches all resources that quotas can count, and returns the usage of each object."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import orjson
from msgspec.structs import replace

from controller_manager.common.api.core import PODS, SERVICES
from controller_manager.common.api.model import BareObject, Object, PartialObject
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.pod_resources import Amounts, plus
from controller_manager.common.api.quota import (
    NOT_COUNTED,
    RESOURCE_CLAIMS,
    DeviceClasses,
    Evaluator,
    Evaluators,
    Measured,
    QuotaScope,
)
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.tree import FrozenTree
from controller_manager.common.base.log import Logger
from controller_manager.framework import Change, Informer, Informers, Key
from controller_manager.framework.client.discovery import Discovery, ServedResource

# What an object that no server admits may raise: it counts by number.
_NO_OBJECT = (AttributeError, KeyError, TypeError, ValueError)
DEVICE_CLASSES = f"deviceclasses.resource.{GROUP_DOMAIN}"
_COUNTED = {"create", "delete", "list", "watch"}


class WholeObject(Object):
    """Any object with all its bytes."""


# Those that count for more than their number.
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, WholeObject)
_WHOLE: Mapping[str, Resource[Any]] = {one.name: one for one in (PODS, SERVICES, CLAIMS)}


class Amount(NamedTuple):
    """What is used, and the moment from which on it may be less (None: nothing changes by itself)."""

    used: Amounts
    until: datetime | None = None


class Monitor(msgspec.Struct, frozen=True):
    """The watch of a resource, and how its objects count."""

    resource: Resource[Any]
    informer: Informer[Any]
    evaluator: Evaluator
    end: Callable[[], None]


OnChange = Callable[[Monitor, Change[Any]], None]
"""Called for each namespaced object that was added or deleted, or whose usage changed."""


class Monitors:
    """The watches, by the names of resources."""

    def __init__(self, informers: Informers, log: Logger, on_change: OnChange) -> None:
        self._found: Discovery | None = None
        self._informers = informers
        self._log = log
        self._on_change = on_change
        self._monitors: dict[str, Monitor] = {}
        self._failures: tuple[str, ...] = ()
        self._classes: Informer[Any] | None = None
        self._evaluators = Evaluators(self)
        # What objects count for that count for more than their number, by uid, at which version.
        self._measured: dict[str, tuple[str, Measured]] = {}
        self.is_complete = False
        """Whether the last discovery was complete."""

    async def refresh(self, since: float) -> Sequence[Monitor]:
        """Watch the resources of a discovery that is not older than `since`. Return the new monitors."""
        found = await self._informers.discovery.since(since)
        if found is self._found:
            return ()
        self._found = found
        if found.failed and found.failed != self._failures:
            self._log.warning("some resources could not be discovered", failures=dict(found.failures))
        self._failures, self.is_complete = found.failed, not found.failed
        wanted = self._wanted(found)
        for name, monitor in tuple(self._monitors.items()):
            if wanted.get(name) != monitor.resource:
                self._stop(name)
        classes = next((one.resource for one in found.preferred() if one.resource.name == DEVICE_CLASSES), None)
        if classes is not None and self._classes is None:
            self._classes = self._informers.get(_as(classes, WholeObject))
        return [self._start(name, resource) for name, resource in wanted.items() if name not in self._monitors]

    def stop(self) -> None:
        """Watch nothing more."""
        for name in tuple(self._monitors):
            self._stop(name)
        self._found = None

    def counting(self, names: Iterable[str]) -> Iterator[tuple[Monitor, list[str]]]:
        """Yield each watch and the resources of a quota that its objects count for, which may be none."""
        for monitor in tuple(self._monitors.values()):
            yield monitor, [name for name in names if monitor.evaluator.counts(name)]

    def amount(
        self,
        monitor: Monitor,
        objects: Iterable[Object],
        names: Sequence[str],
        scopes: Sequence[QuotaScope],
        now: datetime,
    ) -> Amount:
        """Return what objects use of some resources of a quota with these scopes."""
        used: Amounts = {}
        until: datetime | None = None
        for obj in objects:
            measured = self._measure(monitor, obj)
            if not measured.is_in_all(scopes):
                continue
            usage = measured.usage_at(now)
            used = plus(used, {name: usage[name] for name in names if name in usage})
            if measured.until is not None and measured.until >= now:
                until = measured.until if until is None else min(until, measured.until)
        return Amount(used, until)

    # What claims to devices count for depends on (`Cluster`).

    def device_classes(self) -> DeviceClasses:
        """See `Cluster`."""
        return DeviceClasses.of(map(_tree, self._classes.list() if self._classes is not None else ()))

    def pod(self, namespace: str, name: str) -> FrozenTree | None:
        """See `Cluster`."""
        found = self._informers.get(PODS).get(Key(namespace, name))
        return None if found is None else _tree(found)

    def device_claims(self, namespace: str) -> Iterable[FrozenTree]:
        """See `Cluster`."""
        monitor = self._monitors.get(RESOURCE_CLAIMS)
        return map(_tree, monitor.informer.list(namespace)) if monitor is not None else ()

    def _measure(self, monitor: Monitor, obj: Object) -> Measured:
        """Return the usage of an object, cached per version unless it depends on other objects."""
        if monitor.resource.type is BareObject:
            return monitor.evaluator.measure({})
        meta = obj.metadata
        known = self._measured.get(meta.uid)
        if known is not None and known[0] == meta.resource_version:
            return known[1]
        try:
            measured = monitor.evaluator.measure(_tree(obj))
        except _NO_OBJECT:
            measured = Evaluator(monitor.resource.name).measure({})
        if monitor.resource.name != RESOURCE_CLAIMS:
            self._measured[meta.uid] = meta.resource_version, measured
        return measured

    def _wanted(self, found: Discovery) -> Mapping[str, Resource[Any]]:
        """Return the resources to watch after a discovery: those that it could not ask for as before, and in the
        version that is watched, while that is served.
        """
        served = {_address(one.resource) for one in found.resources}
        wanted: dict[str, Resource[Any]] = {}
        for one in found.preferred():
            name = one.resource.name
            if _is_counted(one):
                known = self._monitors.get(name)
                is_same = known is not None and _address(known.resource) in served
                wanted[name] = known.resource if known is not None and is_same else _typed(one.resource)
        for name, monitor in self._monitors.items():
            if name not in wanted and found.may_lack(monitor.resource):
                wanted[name] = monitor.resource
        return wanted

    def _start(self, name: str, resource: Resource[Any]) -> Monitor:
        get = self._informers.acquire if resource.type is BareObject else self._informers.get
        informer: Informer[Any] = get(resource)
        monitor = Monitor(resource, informer, self._evaluators.of(name), lambda: None)
        is_whole = resource.type is not BareObject

        def note(change: Change[Any]) -> None:
            before, after = change.before, change.after
            is_update = before is not None and after is not None
            if change.initial or (is_update and not (is_whole and self._is_other(monitor, before, after))):
                return
            self._on_change(monitor, change)
            if after is None:
                self._measured.pop(change.object.metadata.uid, None)

        monitor = replace(monitor, end=informer.subscribe(note))
        self._monitors[name] = monitor
        self._log.debug("watching a resource", resource=name)
        return monitor

    def _is_other(self, monitor: Monitor, before: Any, after: Any) -> bool:
        """Return whether an object counts otherwise than it did when it was counted last."""
        known = self._measured.get(before.metadata.uid)
        return known is None or self._measure(monitor, after) != known[1]

    def _stop(self, name: str) -> None:
        monitor = self._monitors.pop(name)
        monitor.end()
        self._informers.release(monitor.informer)
        self._log.debug("watching a resource no longer", resource=name)


def _is_counted(one: ServedResource) -> bool:
    return one.resource.namespaced and one.verbs >= _COUNTED and one.resource.name not in NOT_COUNTED


def _typed(resource: Resource[PartialObject]) -> Resource[Any]:
    if resource.name in _WHOLE:
        return _WHOLE[resource.name]
    return _as(resource, WholeObject if resource.name == RESOURCE_CLAIMS else BareObject)


def _address(resource: Resource[Any]) -> tuple[str, str, str, str, bool]:
    """Return which resource it is, whatever its objects are decoded to."""
    return resource.group, resource.version, resource.plural, resource.kind, resource.namespaced


def _as(resource: Resource[Any], form: type[Object]) -> Resource[Any]:
    return replace(resource, type=form)


def _tree(obj: Object) -> Any:
    return orjson.loads(obj.raw)
