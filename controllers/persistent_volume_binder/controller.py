"""Reconciles one claim or volume at a time, as `decide` decides."""

import asyncio
import math
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from controller_manager.common.api.core import NODES, PODS, Pod, is_pod_terminal
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.storage import (
    AVAILABLE,
    BOUND,
    FAILED,
    LOST,
    PENDING,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    RELEASED,
    STORAGE_CLASSES,
    PersistentVolume,
    PersistentVolumeClaim,
    class_of,
)
from controller_manager.common.base.clock import loop_clock
from controller_manager.framework import (
    Add,
    Change,
    Context,
    ControllerSpec,
    For,
    Informers,
    Key,
    Mapped,
    PolicyRule,
    Priority,
    key_of,
)

from ..shared.claims import PODS_BY_CLAIM, pods_with_claim
from .changes import migrated, with_finalizers
from .decide import (
    BIND_COMPLETED,
    AssignClass,
    Bind,
    ClaimStep,
    EventText,
    Lose,
    Misbound,
    Provision,
    Refuse,
    Surroundings,
    VolumeStep,
    Wait,
    decide_claim,
    decide_volume,
    default_class,
    waits_for_pod,
)
from .metrics import BinderMetrics
from .options import BinderOptions, check_files
from .provisioning import Provisioner
from .reclaiming import Reclaimer
from .recycler import volume_name
from .writes import Objects

WORKERS = 16


class VolumeBinder:
    """Reconciles claims and volumes. The key of a volume has no namespace."""

    def __init__(self, context: Context, options: BinderOptions) -> None:
        self._events = context.events
        self._log = context.log
        self._informers = context.informers
        self._claims = context.informers.get(PERSISTENT_VOLUME_CLAIMS)
        self._watched = context.informers.get(PERSISTENT_VOLUMES)
        self._classes = context.informers.get(STORAGE_CLASSES)
        self._options = options
        self._objects = Objects(context)
        self._volumes = self._objects.volumes
        self._metrics = BinderMetrics(context.runtime.registry, self._watched, self._claims)
        self._provisioner = Provisioner(context, options, self._objects, self._metrics)
        self._reclaimer = Reclaimer(context, options, self._objects, self._metrics)
        self._add: Add | None = None
        self._filled = asyncio.Event()
        self._changed = asyncio.Event()  # set once there may be claims or volumes

    async def run(self, add: Add) -> None:
        """Maintain the volume index, and enqueue all claims and volumes periodically.

        Most events that a claim waits for, such as a matching volume, a class or a node, do not enqueue it.
        """
        self._add = add
        ends = (
            self._watched.subscribe(self._volumes.note),
            self._watched.subscribe(self._note),
            self._claims.subscribe(self._note),
        )
        self._filled.set()
        now, period = loop_clock(), self._options.pvclaimbinder_sync_period
        due = now()
        try:
            while True:
                await self._changed.wait()  # where there is none of them, there is nothing to compare
                due += period * max(1, math.floor((now() - due) / period) + 1)
                await asyncio.sleep(due - now())
                every = (*self._claims.list(), *self._watched.list())
                if not every:
                    self._changed.clear()
                for one in every:
                    add(key_of(one), "compared now and then", Priority.LOW)
        finally:
            for end in ends:
                end()

    def _note(self, _: Change[Any]) -> None:
        self._changed.set()

    async def reconcile(self, key: Key) -> None:
        """Take the next step for claim or volume `key`."""
        await self._filled.wait()
        if not key.namespace:
            await self._reconcile_volume(key)
            return
        claim = self._claims.get(key)
        if claim is None:
            self._metrics.forget(key)
            return
        claim = await self._objects.write_claim(claim, migrated(claim))
        await self._take(claim, decide_claim(claim, self._around(claim)))

    def _around(self, claim: PersistentVolumeClaim) -> Surroundings:
        """Return the objects that matter for a claim. A bound claim needs only its volume."""
        named = self._volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if claim.spec.volume_name or BIND_COMPLETED in (claim.metadata.annotations or {}):
            return Surroundings(named)
        found = self._classes.get(Key("", class_of(claim))) if class_of(claim) else None
        waits = waits_for_pod(found)
        match = self._volumes.match(claim, bound_only=waits)
        if match is not None:
            return Surroundings(match=match)
        pods = pods_with_claim(self._informers, key_of(claim)) if waits else []
        return Surroundings(
            storage_class=found,
            default=default_class(self._classes.list()),
            unscheduled=[one.metadata.name for one in pods if not one.spec.node_name and not is_pod_terminal(one)],
            provisioning=self._options.enable_dynamic_provisioning,
        )

    async def _take(self, claim: PersistentVolumeClaim, step: ClaimStep) -> None:
        match step:
            case Bind(volume):
                await self._bind(volume, claim)
            case AssignClass(name):
                await self._assign(claim, name)
            case Provision():
                await self._provisioner.provision(claim, step)
            case Wait(event):
                self._report(claim, event)
                await self._objects.write_claim_phase(claim, PENDING)
            case Refuse(event):
                self._report(claim, event)
            case Lose(event):
                await self._lose(claim, event)
            case Misbound():
                self._log.warning("the volume of a claim is bound to another one", claim=str(key_of(claim)))

    def _report(self, claim: PersistentVolumeClaim, event: EventText | None) -> None:
        if event is not None:
            self._events.event(claim, *event)

    async def _bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        try:
            await self._objects.bind(volume, claim)
        except ApiError:
            self._metrics.fail(key_of(claim))
            raise
        self._metrics.end(key_of(claim))

    async def _assign(self, claim: PersistentVolumeClaim, name: str) -> None:
        """Set the class of a claim. The change enqueues it again."""
        changed = replace(claim, spec=replace(claim.spec, storage_class_name=name))
        try:
            await self._objects.write_claim(claim, changed)
        except ApiError:
            self._metrics.assigned(failed=True)
            raise
        self._metrics.assigned()

    async def _lose(self, claim: PersistentVolumeClaim, event: EventText) -> None:
        """Mark a claim as lost if the server confirms it, since the cache may lag."""
        if claim.status.phase == LOST:
            return
        if claim.spec.volume_name:
            volume = await self._objects.fresh_volume(claim.spec.volume_name)
            step = decide_claim(claim, Surroundings(volume))
            if isinstance(step, Bind):
                await self._bind(step.volume, claim)
                return
        self._report(await self._objects.write_claim_phase(claim, LOST), event)

    async def _reconcile_volume(self, key: Key) -> None:
        volume = self._volumes.get(key.name)
        if volume is None:
            self._reclaimer.gone(key)
            return
        volume = await self._objects.write_volume(volume, with_finalizers(migrated(volume)))
        claim = await self._claim_of(volume)
        match decide_volume(volume, claim):
            case VolumeStep.AVAILABLE:
                await self._objects.write_phase(volume, AVAILABLE)
            case VolumeStep.BOUND:
                await self._objects.write_phase(volume, BOUND)
            case VolumeStep.CLAIM_DECIDES if claim is not None and self._add is not None:
                self._add(key_of(claim), f"{key} is bound to it")
            case VolumeStep.MISMATCH if claim is not None:
                note = f"the volume {key} cannot be bound to the claim {key_of(claim)}: they are of different modes"
                self._events.warning(volume, "VolumeMismatch", note)
                self._events.warning(claim, "VolumeMismatch", note)
            case VolumeStep.UNBIND:
                await self._objects.unbind(volume)
            case VolumeStep.RECLAIM:
                await self._reclaimer.reclaim(volume)

    async def _claim_of(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """Return the claim that a volume is bound to. The server is queried if the claim seems to be gone."""
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            return None
        claim = self._claims.get(Key(reference.namespace, reference.name))
        known = claim is not None and claim.metadata.uid == reference.uid
        if known or volume.status.phase in (RELEASED, FAILED):
            return claim
        return await self._objects.fresh_claim_of(volume)


def _of_volume(_: Informers, change: Change[PersistentVolume]) -> Iterator[Key]:
    """Yield a volume, and its claim if the volume was added or deleted."""
    yield change.key
    reference = change.object.spec.claim_ref
    if reference is not None and (change.before is None or change.after is None):
        yield Key(reference.namespace, reference.name)


def _of_claim(_: Informers, change: Change[PersistentVolumeClaim]) -> Iterator[Key]:
    """Yield the volume of a deleted claim."""
    if change.after is None and change.object.spec.volume_name:
        yield Key("", change.object.spec.volume_name)


def _of_pod(_: Informers, change: Change[Pod]) -> Iterator[Key]:
    """Yield the volume of a recycler pod."""
    volume = volume_name(change.key.name)
    if volume:
        yield Key("", volume)


SPECS = (
    ControllerSpec(
        name="persistentvolume-binder-controller",
        queue="claims",
        aliases=("persistentvolume-binder",),
        service_account="persistent-volume-binder",
        reporter="persistentvolume-controller",
        reconciler=VolumeBinder,
        options=BinderOptions,
        check=check_files,
        workers=lambda _: WORKERS,
        watches=(
            For(PERSISTENT_VOLUME_CLAIMS),
            Mapped(PERSISTENT_VOLUME_CLAIMS, _of_claim),
            Mapped(PERSISTENT_VOLUMES, _of_volume),
            Mapped(STORAGE_CLASSES),
            Mapped(PODS, _of_pod, indexes=PODS_BY_CLAIM),
            Mapped(NODES),
        ),
        rbac=(
            PolicyRule(
                groups=("",),
                resources=("persistentvolumes",),
                verbs=("get", "list", "watch", "create", "update", "delete"),
            ),
            PolicyRule(groups=("",), resources=("persistentvolumeclaims",), verbs=("get", "list", "watch", "update")),
            PolicyRule(
                groups=("",), resources=("persistentvolumes/status", "persistentvolumeclaims/status"), verbs=("update",)
            ),
            PolicyRule(groups=("",), resources=("pods",), verbs=("get", "list", "watch", "create", "delete")),
            PolicyRule(groups=("",), resources=("nodes",), verbs=("list", "watch")),
            PolicyRule(
                groups=(f"storage.{GROUP_DOMAIN}",), resources=("storageclasses",), verbs=("get", "list", "watch")
            ),
        ),
    ),
)
