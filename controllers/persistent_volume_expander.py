"""Expands volumes whose claims request more storage, or marks the claim for the component that does."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import Enum, auto

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.conditions import Condition, with_conditions
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.storage import (
    BOUND,
    FILESYSTEM,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
)
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base import clock
from controller_manager.common.base.clock import utc_now
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    Informers,
    Key,
    Mapped,
    Options,
    PolicyRule,
    update_status,
)

from .shared.claims import PRE_RESIZE_CAPACITY, size_of
from .shared.storage_operations import storage_operations
from .shared.volume_plugins import MIGRATED, plugin_of

RESIZER = f"volume.{PLATFORM_DOMAIN}/storage-resizer"
WORKERS = 10

_EXTERNAL = "ExternalExpanding"
_RESIZING, _PENDING = "Resizing", "FileSystemResizePending"
_OF_RESIZING = frozenset({_RESIZING, _PENDING, "ControllerResizeError", "NodeResizeError"})


class ExpanderOptions(Options):
    """PersistentVolume expander controller"""


class ExpandAction(Enum):
    """The next step for a claim and its volume."""

    NOTHING = auto()
    MIGRATED = auto()
    EXTERNAL = auto()
    EXPAND = auto()
    AWAIT_NODE = auto()
    FORGET = auto()


# Observed: a bound claim, its request and capacity, and its volume.
#   capacity is sufficient                                    nothing
#   a CSI driver has replaced the plugin                      annotate the claim with the driver's name
#   any plugin except FlexVolume                              record an event that an external resizer has to expand it
#   a FlexVolume volume, which only nodes can resize:
#     the volume has the size, the node has not resized yet   wait for the node
#     the node has resized it                                 remove the previous size from the volume
#     otherwise                                               set the size of claim and volume, and wait for the node


class VolumeExpander:
    """Reconciles claims."""

    def __init__(self, context: Context, _: ExpanderOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._claims = context.informers.get(PERSISTENT_VOLUME_CLAIMS)
        self._operations = storage_operations(context.runtime.registry)

    async def reconcile(self, key: Key) -> None:
        """Expand the volume of claim `key`, or leave it to the responsible component."""
        claim = self._claims.get(key)
        if claim is None or claim.status.phase != BOUND or not claim.spec.volume_name:
            return
        volume = await self._client.get(PERSISTENT_VOLUMES, Key("", claim.spec.volume_name))
        if not is_of(volume, claim):
            raise RuntimeError(f"the volume {volume.metadata.name} is not bound to the claim {key}")
        match decide(claim, volume):
            case ExpandAction.MIGRATED:
                await self._leave_to_driver(claim, plugin_of(volume.spec))
            case ExpandAction.EXTERNAL:
                self._events.normal(claim, _EXTERNAL, "An external controller has to expand the volume of this claim")
            case ExpandAction.EXPAND:
                await self._measured(claim, volume)
            case ExpandAction.AWAIT_NODE:
                await self._await_node(claim, volume)
            case ExpandAction.FORGET:
                await self._client.update(PERSISTENT_VOLUMES, _annotated(volume, None))

    async def _leave_to_driver(self, claim: PersistentVolumeClaim, plugin: str) -> None:
        note = f"A CSI driver does the work of {plugin}: its resizer has to expand the volume of this claim"
        self._events.normal(claim, _EXTERNAL, note)
        await self._write(claim, with_resizer(claim, MIGRATED[plugin]))

    async def _measured(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        began, status = clock.monotonic(), "fail-unknown"
        try:
            await self._expand(claim, volume)
            status = "success"
        finally:
            seconds = clock.monotonic() - began
            self._operations.observe(seconds, driver_of(volume), "expand_volume", status, "false")

    async def _expand(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        size = target_size(claim, volume)
        claim = await self._write(claim, in_progress(claim, driver_of(volume), size, format_time(utc_now())))
        spec = replace(volume.spec, capacity={**(volume.spec.capacity or {}), STORAGE: size})
        volume = await self._client.update(PERSISTENT_VOLUMES, replace(volume, spec=spec))
        if volume.spec.volume_mode == FILESYSTEM:
            await self._await_node(claim, volume)
            return
        await self._write(claim, finished(claim, size))
        self._events.normal(claim, "VolumeResizeSuccessful", "The volume of this claim was expanded")

    async def _await_node(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        await self._write(claim, awaiting_node(claim, format_time(utc_now())))
        if PRE_RESIZE_CAPACITY not in (volume.metadata.annotations or {}):
            had = (claim.status.capacity or {}).get(STORAGE, "0")
            await self._client.update(PERSISTENT_VOLUMES, _annotated(volume, had))

    async def _write(self, before: PersistentVolumeClaim, after: PersistentVolumeClaim) -> PersistentVolumeClaim:
        return await update_status(self._client, PERSISTENT_VOLUME_CLAIMS, before, after)


def is_of(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether a volume is bound to a claim."""
    reference, meta = volume.spec.claim_ref, claim.metadata
    return reference is not None and (reference.namespace, reference.uid) == (meta.namespace, meta.uid)


def decide(claim: PersistentVolumeClaim, volume: PersistentVolume) -> ExpandAction:
    """Return the next step for a claim and its volume."""
    wants, has = size_of(claim.spec.resources.requests), size_of(claim.status.capacity)
    remembers = PRE_RESIZE_CAPACITY in (volume.metadata.annotations or {})
    if wants <= has and not remembers:
        return ExpandAction.NOTHING
    if plugin_of(volume.spec) in MIGRATED:
        return ExpandAction.MIGRATED
    if not bytes(volume.spec.flex_volume):
        return ExpandAction.EXTERNAL
    if remembers and has >= max(wants, size_of(volume.spec.capacity)):
        return ExpandAction.FORGET
    return _decide_flex(_progress(claim), is_grown=size_of(volume.spec.capacity) >= wants)


def _decide_flex(progress: str, *, is_grown: bool) -> ExpandAction:
    if is_grown and progress in ("NodeResizeInProgress", "NodeResizePending"):
        return ExpandAction.NOTHING
    return ExpandAction.AWAIT_NODE if is_grown and progress == "NodeResizeInfeasible" else ExpandAction.EXPAND


def _progress(claim: PersistentVolumeClaim) -> str:
    return (claim.status.allocated_resource_statuses or {}).get(STORAGE, "")


def target_size(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    """Return the target size of a FlexVolume volume. An expansion in progress has precedence over the request
    (KEP-1790).
    """
    wanted = (claim.spec.resources.requests or {}).get(STORAGE, "0")
    begun = (claim.status.allocated_resources or {}).get(STORAGE)
    if begun is None:
        return wanted
    progress, is_grown = _progress(claim), size_of(volume.spec.capacity) >= size_of(claim.spec.resources.requests)
    resumed = {"ControllerResizeInProgress", "NodeResizePending", "NodeResizeInProgress", "NodeResizeInfeasible"}
    if is_grown:
        resumed = {"ControllerResizeInProgress", "ControllerResizeInfeasible", ""}
    return begun if progress in resumed else wanted


def driver_of(volume: PersistentVolume) -> str:
    """Return the name of the driver of a FlexVolume volume."""
    return str(msgspec.json.decode(volume.spec.flex_volume).get("driver", ""))


def with_resizer(claim: PersistentVolumeClaim, name: str) -> PersistentVolumeClaim:
    """Return a claim annotated with its resizer."""
    annotations = {**(claim.metadata.annotations or {}), RESIZER: name}
    return replace(claim, metadata=replace(claim.metadata, annotations=annotations))


def in_progress(claim: PersistentVolumeClaim, resizer: str, size: str, now: str) -> PersistentVolumeClaim:
    """Return a claim whose volume is being expanded."""
    others = [one for one in claim.status.conditions if one.type not in _OF_RESIZING - {_RESIZING}]
    status = replace(
        claim.status,
        conditions=with_conditions(others, [Condition(type=_RESIZING, status="True")], now),
        allocated_resources={**(claim.status.allocated_resources or {}), STORAGE: size},
        allocated_resource_statuses=_with_progress(claim.status, "ControllerResizeInProgress"),
    )
    return with_resizer(replace(claim, status=status), resizer)


def awaiting_node(claim: PersistentVolumeClaim, now: str) -> PersistentVolumeClaim:
    """Return a claim that waits for the node to resize the file system."""
    message = "The file system grows on the node once a pod with this claim is started there (again)"
    condition = Condition(type=_PENDING, status="True", message=message)
    status = replace(
        claim.status,
        conditions=with_conditions(claim.status.conditions, [condition], now),
        allocated_resource_statuses=_with_progress(claim.status, "NodeResizePending"),
    )
    return replace(claim, status=status)


def finished(claim: PersistentVolumeClaim, size: str) -> PersistentVolumeClaim:
    """Return a claim after its expansion."""
    left = tuple(one for one in claim.status.conditions if one.type not in _OF_RESIZING)
    capacity = {**(claim.status.capacity or {}), STORAGE: size}
    progress = claim.status.allocated_resource_statuses or {}
    others = {name: value for name, value in progress.items() if name != STORAGE}
    status = replace(claim.status, conditions=left, capacity=capacity, allocated_resource_statuses=others or None)
    return replace(claim, status=status)


def _with_progress(status: PersistentVolumeClaimStatus, progress: str) -> Mapping[str, str]:
    return {**(status.allocated_resource_statuses or {}), STORAGE: progress}


def _annotated(volume: PersistentVolume, capacity: str | None) -> PersistentVolume:
    """Return a volume annotated with its previous capacity, or without the annotation."""
    others = {name: value for name, value in (volume.metadata.annotations or {}).items() if name != PRE_RESIZE_CAPACITY}
    annotations = others if capacity is None else {**others, PRE_RESIZE_CAPACITY: capacity}
    return replace(volume, metadata=replace(volume.metadata, annotations=annotations))


def _grown(_: Informers, change: Change[PersistentVolumeClaim]) -> Iterator[Key]:
    """Yield a bound claim that is new or whose request or capacity has increased."""
    before, after = change.before, change.after
    if (
        after is not None
        and after.status.phase == BOUND
        and (before is None or change.initial or _is_more(before, after))
    ):
        yield change.key


def _is_more(before: PersistentVolumeClaim, after: PersistentVolumeClaim) -> bool:
    def sizes(claim: PersistentVolumeClaim) -> tuple[Decimal, Decimal]:
        return size_of(claim.spec.resources.requests), size_of(claim.status.capacity)

    return any(new > old for new, old in zip(sizes(after), sizes(before), strict=True))


SPECS = (
    ControllerSpec(
        name="persistentvolume-expander-controller",
        queue="volume_expand",
        aliases=("persistentvolume-expander",),
        service_account="expand-controller",
        reporter="volume_expand",
        reconciler=VolumeExpander,
        options=ExpanderOptions,
        workers=lambda _: WORKERS,
        watches=(Mapped(PERSISTENT_VOLUME_CLAIMS, _grown),),
        rbac=(
            PolicyRule(
                groups=("",), resources=("persistentvolumes",), verbs=("get", "list", "watch", "update", "patch")
            ),
            PolicyRule(groups=("",), resources=("persistentvolumeclaims",), verbs=("get", "list", "watch")),
            PolicyRule(groups=("",), resources=("persistentvolumeclaims/status",), verbs=("update", "patch")),
        ),
    ),
)
