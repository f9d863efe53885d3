"""Claims of pods: the claims of their volumes, and the pods of a claim."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType

from controller_manager.common.api.core import PODS, Pod, Volume
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.storage import STORAGE, PersistentVolumeClaim
from controller_manager.framework import Change, Informers, Key, controller_of, key_of

PRE_RESIZE_CAPACITY = f"volume.alpha.{PLATFORM_DOMAIN}/pre-resize-capacity"
"""The annotation of a volume with its capacity before an expansion, until the node has resized the file system."""

_CLAIM = "claim"


def claim_name(pod: Pod, volume: Volume) -> str:
    """Return the name of the claim of a pod's volume, or an empty string.

    The claim name of a generic ephemeral volume is derived from pod and volume (KEP-1698).
    """
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


def is_for_pod(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Return whether a claim was created for a generic ephemeral volume of the pod."""
    owner = controller_of(claim)
    return owner is not None and owner.uid == pod.metadata.uid


def _claims_of(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        name = claim_name(pod, volume)
        if name:
            yield f"{pod.metadata.namespace}/{name}"


# The index that a controller declares for its watch of pods if it uses the function below.
PODS_BY_CLAIM: Mapping[str, Callable[[Pod], Iterable[str]]] = MappingProxyType({_CLAIM: _claims_of})


def pods_with_claim(informers: Informers, claim: Key) -> list[Pod]:
    """Return the pods that refer to a claim, by name or by the derived name of an ephemeral volume."""
    return informers.get(PODS).by_index(_CLAIM, str(claim))


def pods_of_claim(informers: Informers, change: Change[PersistentVolumeClaim]) -> Iterator[Key]:
    """Yield the keys of the pods that refer to a claim."""
    return (key_of(pod) for pod in pods_with_claim(informers, change.key))


def size_of(amounts: Mapping[str, str] | None) -> Decimal:
    """Return the bytes of storage in requests or in a capacity; 0 if they do not contain storage."""
    return _bytes((amounts or {}).get(STORAGE, "0"))


@lru_cache(4096)
def _bytes(text: str) -> Decimal:
    return parse(text).number
