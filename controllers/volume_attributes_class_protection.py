"""Protects VolumeAttributesClasses in use by claims or volumes from removal (KEP-3751)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_ATTRIBUTES_CLASSES,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttributesClass,
)
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    For,
    Informers,
    Key,
    Mapped,
    Options,
    PolicyRule,
)

FINALIZER = f"{PLATFORM_DOMAIN}/vac-protection"
GATE = "VolumeAttributesClass"

_CLASS = "volume attributes class"


class VolumeAttributesClassProtectionOptions(Options):
    """Volume attributes class protection controller"""


# Observed: a class, and whether a claim or a volume uses it.
# Decided:                                   Done:
#   not being deleted, no finalizer          add the finalizer
#   being deleted and not in use             remove the finalizer
# Usage is checked in the cache only: a claim created while its class is deleted may end up without it.


class VolumeAttributesClassProtection:
    """Reconciles classes."""

    def __init__(self, context: Context, _: VolumeAttributesClassProtectionOptions) -> None:
        self._client = context.client
        self._classes = context.informers.get(VOLUME_ATTRIBUTES_CLASSES)
        self._claims = context.informers.get(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = context.informers.get(PERSISTENT_VOLUMES)

    async def reconcile(self, key: Key) -> None:
        """Add or remove the finalizer of a class."""
        found = self._classes.get(key)
        if found is None:
            return
        finalizers = desired_finalizers(found, used=self._is_used(key.name))
        if finalizers != found.metadata.finalizers:
            changed = replace(found, metadata=replace(found.metadata, finalizers=finalizers))
            await self._client.update(VOLUME_ATTRIBUTES_CLASSES, changed)

    def _is_used(self, name: str) -> bool:
        return bool(self._volumes.by_index(_CLASS, name) or self._claims.by_index(_CLASS, name))


def desired_finalizers(one: VolumeAttributesClass, *, used: bool) -> tuple[str, ...]:
    """Return the finalizers that a class should have."""
    known = one.metadata.finalizers
    if one.metadata.deletion_timestamp is None:
        return known if FINALIZER in known else (*known, FINALIZER)
    return known if used else tuple(name for name in known if name != FINALIZER)


def classes_of_claim(claim: PersistentVolumeClaim) -> set[str]:
    """Return the names of the classes that a claim requests, has, or is changing to."""
    modified = claim.status.modify_volume_status
    names = (
        claim.spec.volume_attributes_class_name,
        claim.status.current_volume_attributes_class_name,
        modified.target_volume_attributes_class_name if modified is not None else None,
    )
    return {name for name in names if name}


def classes_of_volume(volume: PersistentVolume) -> set[str]:
    """Return the class name of a volume as a set."""
    name = volume.spec.volume_attributes_class_name
    return {name} if name else set()


_CLAIMS_BY_CLASS: Mapping[str, Callable[[PersistentVolumeClaim], Iterable[str]]] = MappingProxyType(
    {_CLASS: classes_of_claim}
)
_VOLUMES_BY_CLASS: Mapping[str, Callable[[PersistentVolume], Iterable[str]]] = MappingProxyType(
    {_CLASS: classes_of_volume}
)


def _left_by_claim(_: Informers, change: Change[PersistentVolumeClaim]) -> Iterator[Key]:
    """Yield the classes that a claim no longer uses."""
    if change.before is not None:
        after = classes_of_claim(change.after) if change.after is not None else set()
        yield from (Key("", name) for name in sorted(classes_of_claim(change.before) - after))


def _left_by_volume(_: Informers, change: Change[PersistentVolume]) -> Iterator[Key]:
    """Yield the class that a volume no longer uses."""
    if change.before is not None:
        after = classes_of_volume(change.after) if change.after is not None else set()
        yield from (Key("", name) for name in sorted(classes_of_volume(change.before) - after))


SPECS = (
    ControllerSpec(
        name="volumeattributesclass-protection-controller",
        queue="vacprotection",
        gates=(GATE,),
        reconciler=VolumeAttributesClassProtection,
        options=VolumeAttributesClassProtectionOptions,
        watches=(
            For(VOLUME_ATTRIBUTES_CLASSES),
            Mapped(PERSISTENT_VOLUME_CLAIMS, _left_by_claim, indexes=_CLAIMS_BY_CLASS),
            Mapped(PERSISTENT_VOLUMES, _left_by_volume, indexes=_VOLUMES_BY_CLASS),
        ),
        rbac=(
            PolicyRule(
                groups=("",), resources=("persistentvolumeclaims", "persistentvolumes"), verbs=("list", "watch")
            ),
            PolicyRule(
                groups=(VOLUME_ATTRIBUTES_CLASSES.group,),
                resources=("volumeattributesclasses",),
                verbs=("list", "watch", "update"),
            ),
        ),
    ),
)
