"""Device claims of pods (dynamic resource allocation, KEP-4381).

The controller creates claims from templates, reserves claims for pods that were bound without the scheduler, and frees
claims that are no longer used.
"""

from typing import ClassVar

from msgspec.structs import replace

from controller_manager.common.api.core import PODS, Pod, PodResourceClaim
from controller_manager.common.api.devices import (
    GROUP,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    ConsumerReference,
    ResourceClaim,
)
from controller_manager.common.api.errors import AlreadyExists, ApiError, NotFound
from controller_manager.common.base.random import seeded
from controller_manager.framework import (
    STALE_CACHE,
    Context,
    ControllerSpec,
    For,
    Int32,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    TerminalError,
    controller_of,
    flag,
    in_parallel,
    key_of,
)
from controller_manager.framework.controller.writes import Refusal, refusal_of

from ..shared.controlled import BY_CONTROLLER, controlled_by
from ..shared.device_claims import PODS_BY_CLAIM, belongs_to_entry, is_of_pod, is_over
from .decide import claim_from_template, is_made_for, needs_claims, released, to_make, to_reserve, wants_admin_access
from .metrics import ResourceClaimMetrics
from .watches import PODS_BY_TEMPLATE, OfPod, pods_of_claim, pods_of_template, work_of_pod

ADMIN_ACCESS = "DRAAdminAccess"
ALTERNATIVES = "DRAPrioritizedList"
EVENT = "FailedResourceClaimCreation"
# The field manager for the claim names in the status of pods.
FIELD_MANAGER = "ResourceClaimController"
# Maximum number of names tried for a claim, since a name may be taken.
_ATTEMPTS = 5


class ResourceClaimOptions(Options):
    """Resource claim controller"""

    title: ClassVar[str] = "Resource claim controller"

    concurrent_resourceclaim_syncs: Int32 = flag(50, "pods and resource claims looked at at the same time", minimum=1)


class Refused(Exception):
    """No claim can be created from a template; the message says why."""


# Observed of a pod that has not ended and is not being deleted: each entry with a template, and its entry in the
# status.
#   no claim is needed                             nothing
#   the claim exists and belongs to the pod        nothing
#   otherwise, confirmed with the server           find the claim that was created for the entry, or create one; one
#                                                  write of the status records all entries
# Then, if the pod is bound to a node, allocated claims that are not reserved for it are reserved, unless they are being
# deleted: the server rejects that.
# Observed of a claim: its consumers.
#   a pod is gone, replaced or has ended           remove it from reservedFor. That a pod is gone is confirmed with the
#                                                  server, since the cache may lag. While the cache lacks the pod, its
#                                                  end may go unnoticed, so the key is requeued
#   no consumer is left, or there was none and     remove the allocation, if the claim has our finalizer, and then the
#   the claim is being deleted                     finalizer
#   no consumer, created for a pod that has        delete it, if it has not changed
#   ended or was replaced


class ResourceClaimController:
    """Reconciles a claim, or the claims of a pod (`OfPod`)."""

    def __init__(self, context: Context, _: ResourceClaimOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._pods = context.informers.get(PODS)
        self._claims = context.informers.get(RESOURCE_CLAIMS)
        self._templates = context.informers.get(RESOURCE_CLAIM_TEMPLATES)
        self._admin_access = context.enabled(ADMIN_ACCESS)
        self._alternatives = context.enabled(ALTERNATIVES)
        self._metrics = ResourceClaimMetrics(context.runtime.registry, self._claims)

    async def reconcile(self, key: Key | OfPod) -> Requeue | None:
        """Create and reserve the claims of a pod, or free claim `key` of consumers that no longer need it."""
        if isinstance(key, OfPod):
            pod = self._pods.get(key.pod)
            if pod is not None and needs_claims(pod):
                await self._provide(pod)
            return None
        claim = self._claims.get(key)
        return await self._release(claim) if claim is not None else None

    async def _provide(self, pod: Pod) -> None:
        if to_make(pod, self._claims.get):
            # The pod is read from the server before a claim is created: it may be gone, or have its claims already.
            current = await self._pod(key_of(pod), pod.metadata.uid, live=True)
            if current is None or not needs_claims(current) or not await self._make_claims(current):
                return
        for claim in to_reserve(pod, self._claims.get):
            mine = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
            status = replace(claim.status, reserved_for=(*claim.status.reserved_for, mine))
            await self._client.update(RESOURCE_CLAIMS, replace(claim, status=status), subresource="status")

    async def _make_claims(self, pod: Pod) -> bool:
        """Create and record all claims of a pod. Return False if its namespace is being deleted."""
        named = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
        made: dict[str, str] = {}
        for entry in to_make(pod, self._claims.get):
            try:
                name = await self._make(pod, entry, named.get(entry.name) or "")
            except (ApiError, Refused) as error:
                self._events.warning(pod, EVENT, f"PodResourceClaim {entry.name}: {error}")
                if isinstance(error, Refused):
                    raise TerminalError(str(error)) from None
                raise
            if name is None:
                return False
            made[entry.name] = name
        if made.items() - named.items():
            statuses = [{"name": entry, "resourceClaimName": name} for entry, name in (named | made).items() if name]
            fields = {"status": {"resourceClaimStatuses": statuses}}
            meta = pod.metadata
            await self._client.apply(PODS, key_of(pod), fields, FIELD_MANAGER, uid=meta.uid, subresource="status")
        return True

    async def _make(self, pod: Pod, entry: PodResourceClaim, known: str) -> str | None:
        """Return the name of the claim of an entry; create it if necessary. Return None if the namespace is being
        deleted.

        `known` is the name of its previous claim.
        """
        there = controlled_by(self._claims, pod.metadata.uid)
        found = next((one for one in there if is_made_for(one, entry)), None)
        if found is not None:
            return found.metadata.name
        if known and await self._has(pod, entry, known):
            return known
        template = self._templates.get(Key(pod.metadata.namespace, entry.resource_claim_template_name))
        if template is None:
            raise Refused(f'resource claim template "{entry.resource_claim_template_name}" does not exist')
        claim = claim_from_template(pod, entry, template)
        if not self._admin_access and wants_admin_access(claim):
            raise Refused("admin access is requested, but the feature is disabled")
        if not self._alternatives and any(one.first_available for one in claim.spec.devices.requests):
            raise Refused("template includes a prioritized list of subrequests, but the feature is disabled")
        return await self._create(pod, entry, claim, known)

    async def _create(self, pod: Pod, entry: PodResourceClaim, claim: ResourceClaim, name: str) -> str | None:
        """Create a claim and return its name, or None if the namespace is being deleted.

        The name is derived from the pod, the entry and the previous name, so that a create without a response is found
        again.
        """
        for _ in range(_ATTEMPTS):
            name = claim.metadata.generate_name + seeded(f"{pod.metadata.uid}/{entry.name}/{name}").suffix()
            try:
                return await self._create_as(name, claim)
            except AlreadyExists:
                if await self._has(pod, entry, name):
                    return name
        raise Refused("all names that a claim may have are taken")

    async def _has(self, pod: Pod, entry: PodResourceClaim, name: str) -> bool:
        """Return whether the server has a claim of that name that was created for the entry."""
        try:
            claim = await self._client.get(RESOURCE_CLAIMS, Key(pod.metadata.namespace, name))
        except NotFound:
            return False
        return is_made_for(claim, entry) and belongs_to_entry(pod, entry, claim)

    async def _create_as(self, name: str, claim: ResourceClaim) -> str | None:
        try:
            await self._client.create(RESOURCE_CLAIMS, replace(claim, metadata=replace(claim.metadata, name=name)))
        except AlreadyExists:
            raise
        except ApiError as error:
            if refusal_of(error) is Refusal.NAMESPACE_ENDS:
                return None
            self._metrics.created(claim, failed=True)
            raise
        self._metrics.created(claim, failed=False)
        return name

    async def _release(self, claim: ResourceClaim) -> Requeue | None:
        consumers = claim.status.reserved_for
        judged = await in_parallel(consumers, lambda one: self._needs(claim.metadata.namespace, one))
        if judged.error is not None:
            raise judged.error
        remaining = tuple(one for one, needs in zip(consumers, judged.done, strict=True) if needs)
        after = released(claim, remaining)
        finalizers = after.metadata.finalizers
        if after.status != claim.status:
            after = replace(after, metadata=claim.metadata)
            after = await self._client.update(RESOURCE_CLAIMS, after, subresource="status")
        if finalizers != claim.metadata.finalizers:
            after = replace(after, metadata=replace(after.metadata, finalizers=finalizers))
            after = await self._client.update(RESOURCE_CLAIMS, after)
        meta = after.metadata
        if not remaining and meta.deletion_timestamp is None and await self._is_left_over(claim):
            key, version = key_of(claim), meta.resource_version
            await self._client.delete(RESOURCE_CLAIMS, key, uid=meta.uid, resource_version=version)
        return None if all(self._knows(meta.namespace, one) for one in remaining) else STALE_CACHE

    def _knows(self, namespace: str, consumer: ConsumerReference) -> bool:
        """Return whether the end of a consumer would be observed."""
        pod = self._pods.get(Key(namespace, consumer.name))
        return not is_of_pod(consumer) or (pod is not None and pod.metadata.uid == consumer.uid)

    async def _needs(self, namespace: str, consumer: ConsumerReference) -> bool:
        """Return whether a claim stays reserved for a consumer. Consumers other than pods always stay."""
        if not is_of_pod(consumer):
            return True
        pod = await self._pod(Key(namespace, consumer.name), consumer.uid)
        return pod is not None and not is_over(pod)

    async def _is_left_over(self, claim: ResourceClaim) -> bool:
        """Return whether a claim was created for a pod that has ended or was replaced.

        If the pod is gone, the garbage collector deletes the claim.
        """
        owner = controller_of(claim)
        if owner is None or (owner.api_version, owner.kind) != ("v1", "Pod"):
            return False
        key = Key(claim.metadata.namespace, owner.name)
        if self._pods.get(key) is None:
            return False
        pod = await self._pod(key, owner.uid)
        return pod is None or is_over(pod)

    async def _pod(self, key: Key, uid: str, *, live: bool = False) -> Pod | None:
        """Return the pod of that uid, from the server if it is not in the cache or `live` is set, or None."""
        pod = self._pods.get(key)
        if live or pod is None or pod.metadata.uid != uid:
            try:
                pod = await self._client.get(PODS, key)
            except NotFound:
                return None
        return pod if pod.metadata.uid == uid else None


SPECS = (
    ControllerSpec(
        name="resourceclaim-controller",
        aliases=("resource-claim-controller",),
        queue="resource_claim",
        reporter="resource_claim",
        service_account="resource-claim-controller",
        gates=("DynamicResourceAllocation",),
        reconciler=ResourceClaimController,
        options=ResourceClaimOptions,
        workers=lambda options: options.concurrent_resourceclaim_syncs,
        watches=(
            For(RESOURCE_CLAIMS, indexes=BY_CONTROLLER),
            Mapped(RESOURCE_CLAIMS, pods_of_claim),
            Mapped(PODS, work_of_pod, indexes={**PODS_BY_CLAIM, **PODS_BY_TEMPLATE}),
            Mapped(RESOURCE_CLAIM_TEMPLATES, pods_of_template),
        ),
        rbac=(
            PolicyRule(groups=("",), resources=("pods",), verbs=("get", "list", "watch")),
            PolicyRule(groups=("",), resources=("pods/status",), verbs=("patch",)),
            PolicyRule(
                groups=(GROUP,), resources=("resourceclaims",),
                verbs=("get", "list", "watch", "create", "update", "delete"),
            ),
            PolicyRule(groups=(GROUP,), resources=("resourceclaims/status",), verbs=("update",)),
            # Servers ask for it of those who reserve and free claims.
            PolicyRule(groups=(GROUP,), resources=("resourceclaims/binding",), verbs=("update",)),
            PolicyRule(groups=(GROUP,), resources=("resourceclaimtemplates",), verbs=("list", "watch")),
        ),
    ),
)  # fmt: skip
