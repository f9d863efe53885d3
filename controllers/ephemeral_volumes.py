"""Creates the claims of generic ephemeral volumes of pods (KEP-1698)."""

from collections.abc import Iterator

import msgspec

from controller_manager.common.api.core import PODS, Pod, Volume
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    Informers,
    Int32,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    TerminalError,
    controller_ref,
    flag,
    key_of,
    try_write,
)

from .shared.claims import PODS_BY_CLAIM, claim_name, is_for_pod, pods_with_claim

FAILED = "FailedBinding"
AGAIN = 60.0
"""Seconds until a name conflict with a foreign claim is checked again."""

_CREATES = Family("ephemeral_volume_controller_create_total", "Requests to create a claim.", "counter")
_FAILURES = Family(
    "ephemeral_volume_controller_create_failures_total", "Requests to create a claim that failed.", "counter"
)


class EphemeralVolumeOptions(Options):
    """Ephemeral volume controller"""

    concurrent_ephemeralvolume_syncs: Int32 = flag(
        5, "pods with ephemeral volumes worked on at the same time", minimum=1
    )


# Observed: a pod that is not being deleted, and for each ephemeral volume, in order, the claim of its name.
# Decided:                                       Done:
#   claim controlled by the pod                  nothing
#   no claim                                     create it, controlled by the pod
#   a foreign claim has the name, or the         an event; the following volumes wait
#     server rejects it
# The garbage collector deletes the claims with their pod. A claim that is deleted earlier is created again.


class EphemeralVolumeController:
    """Reconciles the claims of pods."""

    def __init__(self, context: Context, _: EphemeralVolumeOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._pods = context.informers.get(PODS)
        self._claims = context.informers.get(PERSISTENT_VOLUME_CLAIMS)
        self._creates = Counters(_CREATES, context.runtime.registry)
        self._failures = Counters(_FAILURES, context.runtime.registry)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Create the missing claims of a pod."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return None
        for volume in pod.spec.volumes:
            if volume.ephemeral is None:
                continue
            claim = self._claims.get(Key(key.namespace, claim_name(pod, volume)))
            if claim is None:
                if not await self._create(pod, volume):
                    return None
            elif not is_for_pod(claim, pod):
                self._warn(
                    pod, volume, f"the claim {key_of(claim)} was not made for the pod, which does not control it"
                )
                return Requeue(AGAIN)
        return None

    async def _create(self, pod: Pod, volume: Volume) -> bool:
        """Create a claim. Return whether it was created; false also if its namespace is being deleted."""
        claim = new_claim(pod, volume)
        self._creates.add()
        try:
            return await try_write(
                self._client.create(PERSISTENT_VOLUME_CLAIMS, claim),
                lambda error: self._warn(pod, volume, f"the claim {claim.metadata.name} was refused: {error.message}"),
            )
        except ApiError:
            self._failures.add()
            raise

    def _warn(self, pod: Pod, volume: Volume, why: str) -> None:
        self._events.warning(pod, FAILED, f"ephemeral volume {volume.name}: {why}")


def new_claim(pod: Pod, volume: Volume) -> PersistentVolumeClaim:
    """Return the claim of an ephemeral volume, from its template. Raises TerminalError for an invalid template."""
    template = volume.ephemeral.volume_claim_template if volume.ephemeral is not None else None
    if template is None:
        raise TerminalError(f"the ephemeral volume {volume.name} of the pod {key_of(pod)} has no template")
    meta = ObjectMeta(
        name=claim_name(pod, volume),
        namespace=pod.metadata.namespace,
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        owner_references=(controller_ref(PODS, pod),),
    )
    kind = PERSISTENT_VOLUME_CLAIMS
    tree = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": template.spec}
    try:
        return PersistentVolumeClaim.decode(msgspec.json.encode(tree))
    except msgspec.ValidationError as error:
        raise TerminalError(f"the template of {meta.name} makes no claim: {error}") from error


def _new_pods(_: Informers, change: Change[Pod]) -> Iterator[Key]:
    """Yield a new pod with ephemeral volumes. Its relevant fields are immutable."""
    if change.before is None and change.after is not None and has_ephemeral_volumes(change.after):
        yield change.key


def _pods_without(informers: Informers, change: Change[PersistentVolumeClaim]) -> Iterator[Key]:
    """Yield the pods whose claim was deleted."""
    if change.after is None:
        yield from (key_of(pod) for pod in pods_with_claim(informers, change.key) if has_ephemeral_volumes(pod))


def has_ephemeral_volumes(pod: Pod) -> bool:
    """Return whether a pod has ephemeral volumes."""
    return any(volume.ephemeral is not None for volume in pod.spec.volumes)


SPECS = (
    ControllerSpec(
        name="ephemeral-volume-controller",
        queue="ephemeral_volume",
        aliases=("ephemeral-volume",),
        reporter="ephemeral_volume",
        reconciler=EphemeralVolumeController,
        options=EphemeralVolumeOptions,
        workers=lambda options: options.concurrent_ephemeralvolume_syncs,
        watches=(
            Mapped(PODS, _new_pods, indexes=PODS_BY_CLAIM),
            Mapped(PERSISTENT_VOLUME_CLAIMS, _pods_without),
        ),
        rbac=(
            PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch")),
            PolicyRule(groups=("",), resources=("persistentvolumeclaims",), verbs=("list", "watch", "create")),
            PolicyRule(groups=("",), resources=("pods/finalizers",), verbs=("update",)),
        ),
    ),
)
