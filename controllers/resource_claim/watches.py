"""Maps changes to device claims and to pods with such claims; pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.devices import RESOURCE_CLAIMS, ResourceClaim, ResourceClaimTemplate
from controller_manager.framework import Change, Informer, Informers, Key, key_of

from ..shared.controlled import controlled_by
from ..shared.device_claims import is_over, known_claims, pods_with_claim

_TEMPLATE = "resource claim template"


class OfPod(NamedTuple):
    """A pod whose claims have to be created and reserved."""

    pod: Key


def _templates_of(pod: Pod) -> Iterable[str]:
    namespace = pod.metadata.namespace
    names = [one.resource_claim_template_name for one in pod.spec.resource_claims]
    return dict.fromkeys(f"{namespace}/{name}" for name in names if name)


# The index that the controller declares for its watch of pods.
PODS_BY_TEMPLATE: Mapping[str, Callable[[Pod], Iterable[str]]] = MappingProxyType({_TEMPLATE: _templates_of})


def work_of_pod(informers: Informers, change: Change[Pod]) -> Iterator[Key | OfPod]:
    """Yield the claims of a pod that has ended or is gone, else the pod itself."""
    before, after = change.before, change.after
    claims = informers.get(RESOURCE_CLAIMS)
    if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
        yield from used_by(before, claims)
    if after is not None and is_over(after):
        yield from used_by(after, claims)
    elif after is not None and after.spec.resource_claims:
        yield OfPod(change.key)


def used_by(pod: Pod, claims: Informer[ResourceClaim]) -> Iterator[Key]:
    """Yield the claims of a pod, including unrecorded ones and the one for its extended resources."""
    namespace, extended = pod.metadata.namespace, pod.status.extended_resource_claim_status
    for _, name in known_claims(pod):
        yield Key(namespace, name)
    yield from map(key_of, controlled_by(claims, pod.metadata.uid))
    if extended is not None:
        yield Key(namespace, extended.resource_claim_name)


def pods_of_claim(informers: Informers, change: Change[ResourceClaim]) -> Iterator[OfPod]:
    """Yield the pods that use a claim."""
    yield from (OfPod(key_of(pod)) for pod in pods_with_claim(informers.get(PODS), change.key))


def pods_of_template(informers: Informers, change: Change[ResourceClaimTemplate]) -> Iterator[OfPod]:
    """Yield the pods that refer to a template that was created or changed."""
    if change.after is not None:
        yield from (OfPod(key_of(pod)) for pod in informers.get(PODS).by_index(_TEMPLATE, str(change.key)))
