"""Which device claims to create and reserve for a pod, and how to free a claim; pure."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.core import Pod, PodResourceClaim
from controller_manager.common.api.devices import (
    DELETE_PROTECTION,
    POD_CLAIM,
    RESOURCE_CLAIMS,
    ConsumerReference,
    ResourceClaim,
    ResourceClaimTemplate,
)
from controller_manager.common.api.model import ObjectMeta, OwnerReference
from controller_manager.framework import Key

from ..shared.device_claims import belongs_to_entry, is_over, is_reserved_for, known_claims

_LONGEST_PREFIX = 57  # what is drawn for a name comes behind it, and a label holds 63 characters


def to_make(pod: Pod, claim_of: Callable[[Key], ResourceClaim | None]) -> list[PodResourceClaim]:
    """Return the entries of a pod whose claim has to be created or recorded."""
    settled = {one.name for one in pod.status.resource_claim_statuses if one.resource_claim_name is None}
    for entry, name in known_claims(pod):
        claim = claim_of(Key(pod.metadata.namespace, name))
        if claim is not None and belongs_to_entry(pod, entry, claim):
            settled.add(entry.name)
    templated = (one for one in pod.spec.resource_claims if one.resource_claim_template_name)
    return [entry for entry in templated if entry.name not in settled]


def to_reserve(pod: Pod, claim_of: Callable[[Key], ResourceClaim | None]) -> list[ResourceClaim]:
    """Return the allocated claims to reserve for a pod that the scheduler did not reserve."""
    if not pod.spec.node_name:
        return []
    known = ((entry, claim_of(Key(pod.metadata.namespace, name))) for entry, name in known_claims(pod))
    usable = (claim for entry, claim in known if claim is not None and belongs_to_entry(pod, entry, claim))
    return [
        claim
        for claim in usable
        if claim.status.allocation is not None
        and claim.metadata.deletion_timestamp is None
        and not is_reserved_for(claim, pod)
    ]


def needs_claims(pod: Pod) -> bool:
    """Return whether claims are created and reserved for a pod."""
    return pod.metadata.deletion_timestamp is None and not is_over(pod)


def is_made_for(claim: ResourceClaim, entry: PodResourceClaim) -> bool:
    """Return whether a claim of a pod was created for that entry."""
    return (claim.metadata.annotations or {}).get(POD_CLAIM) == entry.name


def claim_from_template(pod: Pod, entry: PodResourceClaim, template: ResourceClaimTemplate) -> ResourceClaim:
    """Return the claim of an entry, created from a template and controlled by the pod, without its name."""
    meta, of_claims = pod.metadata, template.spec.metadata
    made = ObjectMeta(
        generate_name=prefix(meta.name, entry.name),
        namespace=meta.namespace,
        labels=of_claims.labels,
        annotations={**(of_claims.annotations or {}), POD_CLAIM: entry.name},
        owner_references=(OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True),),
    )
    kind = {"apiVersion": RESOURCE_CLAIMS.api_version, "kind": RESOURCE_CLAIMS.kind}
    spec = template.spec.spec if bytes(template.spec.spec) not in (b"", b"null") else {}
    return ResourceClaim.decode(msgspec.json.encode({**kind, "metadata": made, "spec": spec}))


def prefix(pod: str, entry: str) -> str:
    """Return the prefix of a claim's name. Names that are too long are shortened in proportion."""
    whole = f"{pod}-{entry}-"
    if len(whole) <= _LONGEST_PREFIX:
        return whole
    first, second = (name[: len(name) * _LONGEST_PREFIX // len(whole)] for name in (pod, entry))
    return f"{first}-{second}"


def released(claim: ResourceClaim, remaining: Sequence[ConsumerReference]) -> ResourceClaim:
    """Return the claim with only the `remaining` consumers."""
    status, meta = claim.status, claim.metadata
    was_used = len(remaining) < len(status.reserved_for)
    is_idle = not remaining and (was_used or meta.deletion_timestamp is not None)
    status = replace(status, reserved_for=tuple(remaining)) if was_used else status
    if not (is_idle and DELETE_PROTECTION in meta.finalizers):
        return replace(claim, status=status)
    finalizers = tuple(one for one in meta.finalizers if one != DELETE_PROTECTION)
    return replace(claim, status=replace(status, allocation=None), metadata=replace(meta, finalizers=finalizers))


def wants_admin_access(claim: ResourceClaim) -> bool:
    """Return whether a claim requests admin access; alternatives cannot (KEP-5018)."""
    return any(one.exactly is not None and one.exactly.admin_access for one in claim.spec.devices.requests)
