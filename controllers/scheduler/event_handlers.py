"""Handles events of the cluster: queues them as informers report them, and applies them between two decisions."""

import asyncio
import importlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from controller_manager.common.api.apps import REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS
from controller_manager.common.api.core import NAMESPACES, NODES, PODS, SERVICES, Namespace, Node, Pod
from controller_manager.common.api.devices import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.storage import VOLUME_ATTACHMENTS, PersistentVolumeClaim, VolumeAttachment
from controller_manager.common.base import clock
from controller_manager.common.base.worker_thread import LARGE
from controller_manager.framework import Change, Context

from . import filters
from .binding_cycle import BindingCycle
from .devices import DEVICES
from .events import label_of
from .failure_handler import FailureHandler
from .keys import Binding, Enqueue
from .pod_requirements import requirements_of
from .scheduler import Scheduler
from .sources import RULES, STORAGE
from .volumes import BY_VOLUMES, LIMITS
from .workloads import DefaultSpread

# The module that evaluates device selectors. It is loaded on demand, because loading takes long and few clusters need
# it.
_SELECTORS = "controller_manager.common.cel.devices"
AT_ONCE = 100
"""Maximum number of changes applied before other coroutines run."""


class _Noted(NamedTuple):
    """A change, and its handler."""

    take: Callable[[Change[Any]], None]
    change: Change[Any]


class EventHandlers:
    """The queued changes. Pods that wait for a claim continue when it changes.

    Device slices wait until the evaluator of selectors has been loaded in a thread.
    """

    def __init__(
        self,
        context: Context,
        scheduler: Scheduler,
        spread: DefaultSpread,
        bindings: BindingCycle,
        failures: FailureHandler,
        enqueue: Enqueue,
    ) -> None:
        self._context = context
        self._scheduler = scheduler
        self._spread = spread
        self._bindings = bindings
        self._failures = failures
        self._enqueue = enqueue
        self._noted: deque[_Noted] = deque()
        self._slices: list[Change[ResourceSlice]] = []
        self._has_selectors = False
        self._wake = asyncio.Event()

    async def run(self, go_on: Callable[[], None]) -> None:
        """Apply events, and trigger scheduling cycles while pods are pending."""
        ends = [self._subscribe(resource, take) for resource, take in self._takers()]
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._noted:
                    for _ in range(AT_ONCE):
                        await self._take_in_next()
                    await asyncio.sleep(0)
                if self._slices:
                    await self._load_selectors()
                go_on()
        finally:
            for end in ends:
                end()

    async def _load_selectors(self) -> None:
        await asyncio.to_thread(importlib.import_module, _SELECTORS)
        self._has_selectors = True
        self._noted.extend(_Noted(self._take_slice, change) for change in self._slices)
        self._slices.clear()
        self._wake.set()

    async def take_in_all(self) -> None:
        """Apply all queued changes."""
        while self._noted:
            await self._take_in_next()

    def _takers(self) -> list[tuple[Any, Callable[[Change[Any]], None]]]:
        """Return the watched resources and their handlers. Nodes come before their pods."""
        workloads = (SERVICES, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS)
        return [
            (NODES, self._take_node),
            (NAMESPACES, self._take_namespace),
            (PODS, self._take_pod),
            *((resource, self._spread.note) for resource in workloads),
            *((resource, partial(self._take_storage, resource)) for resource in STORAGE),
            (VOLUME_ATTACHMENTS, self._take_attachment),
            (RESOURCE_CLAIMS, self._take_claim),
            (RESOURCE_SLICES, self._take_slice),
            (DEVICE_CLASSES, self._take_class),
            *(
                ((DEVICE_TAINT_RULES, partial(self._take_devices, DEVICE_TAINT_RULES)),)
                if self._context.enabled(RULES)
                else ()
            ),
        ]

    def _subscribe(self, resource: Any, take: Callable[[Change[Any]], None]) -> Callable[[], None]:
        def note(change: Change[Any]) -> None:
            self._noted.append(_Noted(take, change))
            self._wake.set()

        return self._context.informers.get(resource).subscribe(note)

    async def _take_in_next(self) -> None:
        """Apply the oldest queued change, unless another caller is doing so."""
        if not self._noted:
            return
        one = self._noted[0]
        if isinstance(one.change.object, Pod):
            await self._read_if_large(one.change.before, one.change.after)
        if self._noted and self._noted[0] is one:
            self._noted.popleft()
            one.take(one.change)

    async def _read_if_large(self, *pods: Pod | None) -> None:
        """Read the requirements of large pods in the worker thread. The results are cached."""
        for pod in pods:
            if pod is not None and len(pod.raw) > LARGE:
                with suppress(msgspec.ValidationError, ValueError):  # reported when the pod is added
                    await self._context.runtime.worker.run(partial(requirements_of, pod))

    def _take_node(self, change: Change[Node]) -> None:
        if change.after is not None:
            self._scheduler.node_changed(change.after, clock.monotonic())
        else:
            self._scheduler.node_gone(change.key.name, clock.monotonic())

    def _take_namespace(self, change: Change[Namespace]) -> None:
        labels = (change.after.metadata.labels if change.after is not None else None) or {}
        self._scheduler.namespace_changed(change.key.name, labels.items(), clock.monotonic(), filters.POD_AFFINITY)

    def _take_storage(self, resource: Resource[Any], change: Change[Any]) -> None:
        """Handle a change of volumes: pods may fit now, and waiting pods may continue."""
        self._scheduler.happened(BY_VOLUMES, label_of(resource, change.before, change.after), clock.monotonic())
        if isinstance(change.object, PersistentVolumeClaim):
            for uid in self._bindings.waiting_for_volume(change.key):
                self._enqueue(Binding(uid), "its claim changed")

    def _take_attachment(self, change: Change[VolumeAttachment]) -> None:
        if change.after is None:
            label = label_of(VOLUME_ATTACHMENTS, change.before, None)
            self._scheduler.happened((LIMITS,), label, clock.monotonic())

    def _take_claim(self, change: Change[ResourceClaim]) -> None:
        """Handle a change of a device claim: pods may fit now, and waiting pods may continue."""
        self._scheduler.claim_changed(change.key, change.before, change.after, clock.monotonic())
        for uid in self._bindings.waiting_for_devices(change.key):
            self._enqueue(Binding(uid), "its claim changed")

    def _take_slice(self, change: Change[ResourceSlice]) -> None:
        if not self._has_selectors:
            self._slices.append(change)
            return
        if self._scheduler.devices is not None:
            self._scheduler.devices.pools.set_slice(change.key.name, change.after)
        self._take_devices(RESOURCE_SLICES, change)

    def _take_class(self, change: Change[DeviceClass]) -> None:
        if change.after is not None:
            self._scheduler.device_class_changed(change.before, change.after, clock.monotonic())

    def _take_devices(self, resource: Resource[Any], change: Change[Any]) -> None:
        if change.after is not None:
            label = label_of(resource, change.before, change.after)
            self._scheduler.happened((DEVICES,), label, clock.monotonic())

    def _take_pod(self, change: Change[Pod]) -> None:
        try:
            self._scheduler.pod_changed(change.before, change.after, clock.monotonic())
        except (msgspec.ValidationError, ValueError) as error:
            self._context.log.warning("a pod cannot be read and is left alone", pod=str(change.key), why=str(error))
        if change.after is None or change.after.spec.node_name:
            self._failures.forget(change.object.metadata.uid)
