"""The claims of a stateful set's pod: claims to create, and their owners by the retention policy; pure.

whenScaled   whenDeleted   owner while the pod stays   owner when the pod is scaled down
Retain       Retain        none                        none
Retain       Delete        the set                     the set
Delete       Retain        none                        the pod
Delete       Delete        the set                     the pod

The owner controls the claim, which is garbage collected after it. A claim that refers to a previous set or pod of the
same name is not changed. A claim with another controller gets no owner, unless both policies are Retain.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.apps import DELETE, STATEFUL_SETS, StatefulSet
from controller_manager.common.api.core import PODS, PersistentVolumeClaimTemplate, Pod
from controller_manager.common.api.model import Object, ObjectMeta, OwnerReference
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim
from controller_manager.framework import controller_ref

from .identity import claim_name, claim_names, ordinals, pod_name

# Returns the cached claim of that name in the namespace of the set, or None.
Find = Callable[[str], PersistentVolumeClaim | None]


def new_claims(owner: StatefulSet, ordinal: int) -> Iterator[PersistentVolumeClaim]:
    """Yield the claims to create for the pod of an ordinal within the replicas."""
    policy = owner.spec.persistent_volume_claim_retention_policy
    references = (controller_ref(STATEFUL_SETS, owner),) if policy.when_deleted == DELETE else ()
    for template in owner.spec.volume_claim_templates:
        yield _new_claim(owner, template, ordinal, references)


def _new_claim(
    owner: StatefulSet, template: PersistentVolumeClaimTemplate, ordinal: int, references: tuple[OwnerReference, ...]
) -> PersistentVolumeClaim:
    kind, meta = PERSISTENT_VOLUME_CLAIMS, template.metadata
    metadata = ObjectMeta(
        name=claim_name(owner, template, ordinal),
        namespace=owner.metadata.namespace,
        labels={**(meta.labels or {}), **(owner.spec.selector.match_labels or {})},
        annotations=meta.annotations,
        finalizers=meta.finalizers,
        owner_references=(*meta.owner_references, *references),
    )
    spec = template.spec if bytes(template.spec) not in (b"", b"null") else {}
    data = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    return PersistentVolumeClaim.decode(msgspec.json.encode(data))


def is_any_stale(owner: StatefulSet, ordinal: int, find: Find) -> bool:
    """Return whether a claim of a missing pod still has the previous pod as owner, and is deleted with it."""
    if owner.spec.persistent_volume_claim_retention_policy.when_scaled != DELETE:
        return False
    name = pod_name(owner, ordinal)
    claims = (find(claim) for _, claim in claim_names(owner, ordinal))
    return any(_is_named(one, PODS, name) for claim in claims if claim for one in claim.metadata.owner_references)


def is_any_missing(owner: StatefulSet, ordinal: int, find: Find) -> bool:
    """Return whether a claim of the pod is missing or being deleted."""
    claims = (find(claim) for _, claim in claim_names(owner, ordinal))
    return any(claim is None or claim.metadata.deletion_timestamp is not None for claim in claims)


def claims_to_correct(owner: StatefulSet, pod: Pod, ordinal: int, find: Find) -> Iterator[PersistentVolumeClaim]:
    """Yield the claims of a pod whose owners differ from the policy, with the owners that the policy demands."""
    for _, name in claim_names(owner, ordinal):
        claim = find(name)
        if claim is not None:
            wanted = owners_of_claim(owner, pod, claim, stays=ordinal in ordinals(owner))
            if wanted != claim.metadata.owner_references:
                yield replace(claim, metadata=replace(claim.metadata, owner_references=wanted))


def owners_of_claim(
    owner: StatefulSet, pod: Pod, claim: PersistentVolumeClaim, *, stays: bool
) -> tuple[OwnerReference, ...]:
    """Return the desired owner references of a claim, which are the present ones if nothing has to change."""
    known = claim.metadata.owner_references
    pairs: tuple[tuple[Resource[Any], Object], ...] = ((STATEFUL_SETS, owner), (PODS, pod))
    ours = [one for one in known if any(_is_named(one, kind, obj.metadata.name) for kind, obj in pairs)]
    if any(one.uid not in (owner.metadata.uid, pod.metadata.uid) for one in ours):
        return known
    others = tuple(one for one in known if one not in ours)
    policy = owner.spec.persistent_volume_claim_retention_policy
    if policy.when_scaled == DELETE and not stays:
        wanted: tuple[OwnerReference, ...] = (controller_ref(PODS, pod),)
    elif policy.when_deleted == DELETE:
        wanted = (controller_ref(STATEFUL_SETS, owner),)
    else:
        wanted = ()
    if has_other_controller(owner, pod, claim):
        wanted = ()
    if {one.uid for one in ours} == {one.uid for one in wanted} and all(one.controller for one in ours):
        return known
    return (*others, *wanted)


def has_other_controller(owner: StatefulSet, pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return whether a claim that the policy applies to has another controller."""
    policy = owner.spec.persistent_volume_claim_retention_policy
    if DELETE not in (policy.when_scaled, policy.when_deleted):
        return False
    mine = (owner.metadata.uid, pod.metadata.uid)
    return any(one.controller and one.uid not in mine for one in claim.metadata.owner_references)


def _is_named(reference: OwnerReference, kind: Resource[Any], name: str) -> bool:
    return (reference.api_version, reference.kind, reference.name) == (kind.api_version, kind.kind, name)
