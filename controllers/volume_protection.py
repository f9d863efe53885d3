"""Protects claims in use by pods, and bound volumes, from removal after they were deleted."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from controller_manager.common.api.core import PODS, Pod, is_pod_terminal
from controller_manager.common.api.model import Object
from controller_manager.common.api.storage import (
    BOUND,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PV_PROTECTION,
    PVC_PROTECTION,
    PersistentVolume,
    PersistentVolumeClaim,
)
from controller_manager.framework import (
    STALE_CACHE,
    Change,
    Context,
    ControllerSpec,
    Informers,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    in_parallel,
    try_write,
)

from .shared.claims import PODS_BY_CLAIM, claim_name, is_for_pod, pods_with_claim

T = TypeVar("T", bound=Object)

_UNSETTLED = "unsettled"


class ClaimProtectionOptions(Options):
    """PersistentVolumeClaim protection controller"""


class VolumeProtectionOptions(Options):
    """PersistentVolume protection controller"""


# Observed: a claim or a volume, its finalizer, and whether it is in use. A claim is in use by a pod that is bound to a
# node and refers to it, directly or by an ephemeral volume, and is not shut down. A volume is in use while it is bound.
#   not being deleted, no finalizer      add the finalizer
#   being deleted and not in use         remove the finalizer; for a claim only if the pods on the server confirm it,
#                                        else requeue, since a short-lived pod may have gone unnoticed


class ClaimProtectionController:
    """Reconciles the claims of a namespace together, with one list of its pods from the server."""

    def __init__(self, context: Context, _: ClaimProtectionOptions) -> None:
        self._client = context.client
        self._informers = context.informers
        self._claims = context.informers.get(PERSISTENT_VOLUME_CLAIMS)

    async def reconcile(self, namespace: str) -> Requeue | None:
        """Update the finalizers of the claims of a namespace."""
        claims = self._claims.by_index(_UNSETTLED, namespace)
        wanted = [with_finalizer(one, PVC_PROTECTION) for one in claims if one.metadata.deletion_timestamp is None]
        going = [one for one in claims if one.metadata.deletion_timestamp is not None and not self._is_used(one)]
        freed = unused(going, (await self._client.list(PODS, namespace)).items) if going else []
        wanted += [without_finalizer(one, PVC_PROTECTION) for one in freed]
        done = await in_parallel(wanted, self._write)
        if done.error is not None:
            raise done.error
        return STALE_CACHE if len(freed) < len(going) else None

    def _is_used(self, claim: PersistentVolumeClaim) -> bool:
        key = Key(claim.metadata.namespace, claim.metadata.name)
        return any(uses(pod, claim) for pod in pods_with_claim(self._informers, key))

    async def _write(self, claim: PersistentVolumeClaim) -> None:
        await try_write(self._client.update(PERSISTENT_VOLUME_CLAIMS, claim))


class VolumeProtectionController:
    """Reconciles volumes."""

    def __init__(self, context: Context, _: VolumeProtectionOptions) -> None:
        self._client = context.client
        self._volumes = context.informers.get(PERSISTENT_VOLUMES)

    async def reconcile(self, key: Key) -> None:
        """Update the finalizer of volume `key`."""
        volume = self._volumes.get(key)
        if volume is None or not is_unsettled(volume, PV_PROTECTION):
            return
        if volume.metadata.deletion_timestamp is None:
            await self._client.update(PERSISTENT_VOLUMES, with_finalizer(volume, PV_PROTECTION))
        elif volume.status.phase != BOUND:
            await self._client.update(PERSISTENT_VOLUMES, without_finalizer(volume, PV_PROTECTION))


def uses(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return whether a pod of the claim's namespace uses the claim, even if the pod has ended."""
    if not pod.spec.node_name:
        return False
    return any(
        claim_name(pod, volume) == claim.metadata.name
        and (volume.ephemeral is None or (not is_shut_down(pod) and is_for_pod(claim, pod)))
        for volume in pod.spec.volumes
    )


def is_shut_down(pod: Pod) -> bool:
    """Return whether the kubelet has reported that a pod is shut down."""
    return pod.metadata.deletion_timestamp is not None and pod.metadata.deletion_grace_period_seconds == 0


def unused(claims: Sequence[PersistentVolumeClaim], pods: Iterable[Pod]) -> list[PersistentVolumeClaim]:
    """Return the claims of a namespace that none of its pods uses."""
    named: dict[str, list[Pod]] = {}
    for pod in pods:
        for volume in pod.spec.volumes:
            named.setdefault(claim_name(pod, volume), []).append(pod)
    return [one for one in claims if not any(uses(pod, one) for pod in named.get(one.metadata.name, ()))]


def is_unsettled(one: Object, finalizer: str) -> bool:
    """Return whether an object needs the finalizer, or is being deleted and may lose it."""
    return (finalizer in one.metadata.finalizers) is (one.metadata.deletion_timestamp is not None)


def with_finalizer(one: T, finalizer: str) -> T:
    """Return an object with an additional finalizer."""
    return replace(one, metadata=replace(one.metadata, finalizers=(*one.metadata.finalizers, finalizer)))


def without_finalizer(one: T, finalizer: str) -> T:
    """Return an object without a finalizer."""
    left = tuple(other for other in one.metadata.finalizers if other != finalizer)
    return replace(one, metadata=replace(one.metadata, finalizers=left))


def _unsettled(claim: PersistentVolumeClaim) -> Iterator[str]:
    """Yield the namespace of a claim that may need an update."""
    if is_unsettled(claim, PVC_PROTECTION):
        yield claim.metadata.namespace


def _of_claim(_: Informers, change: Change[PersistentVolumeClaim]) -> Iterator[str]:
    if change.after is not None:
        yield from _unsettled(change.after)


def _of_pod(informers: Informers, change: Change[Pod]) -> Iterator[str]:
    """Yield the namespace of a pod that may no longer use a claim that is being deleted."""
    now = change.after
    if now is not None and now.spec.node_name and not is_pod_terminal(now) and not is_shut_down(now):
        return
    namespace = change.key.namespace
    names = {claim_name(change.object, volume) for volume in change.object.spec.volumes}
    unsettled = informers.get(PERSISTENT_VOLUME_CLAIMS).by_index(_UNSETTLED, namespace) if names else ()
    if any(one.metadata.name in names for one in unsettled):
        yield namespace


def _of_volume(_: Informers, change: Change[PersistentVolume]) -> Iterator[Key]:
    if change.after is not None and is_unsettled(change.after, PV_PROTECTION):
        yield change.key


SPECS = (
    ControllerSpec(
        name="persistentvolumeclaim-protection-controller",
        queue="pvcprotection",
        aliases=("pvc-protection",),
        service_account="pvc-protection-controller",
        reconciler=ClaimProtectionController,
        options=ClaimProtectionOptions,
        workers=lambda _: 30,
        watches=(
            Mapped(PERSISTENT_VOLUME_CLAIMS, _of_claim, indexes={_UNSETTLED: _unsettled}),
            Mapped(PODS, _of_pod, indexes=PODS_BY_CLAIM),
        ),
        rbac=(
            PolicyRule(groups=("",), resources=("persistentvolumeclaims",), verbs=("get", "list", "watch", "update")),
            PolicyRule(groups=("",), resources=("pods",), verbs=("get", "list", "watch")),
        ),
    ),
    ControllerSpec(
        name="persistentvolume-protection-controller",
        queue="pvprotection",
        aliases=("pv-protection",),
        service_account="pv-protection-controller",
        reconciler=VolumeProtectionController,
        options=VolumeProtectionOptions,
        watches=(Mapped(PERSISTENT_VOLUMES, _of_volume),),
        rbac=(PolicyRule(groups=("",), resources=("persistentvolumes",), verbs=("get", "list", "watch", "update")),),
    ),
)
