"""Creates, patches and deletes pods for an owner with a pod template, and records events on the owner."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from controller_manager.common.api.core import PODS, Pod, PodTemplateSpec
from controller_manager.common.api.errors import ApiError, Conflict, Invalid, NotFound
from controller_manager.common.api.model import Object, ObjectMeta, controller_of
from controller_manager.common.api.resource import Resource, key_of
from controller_manager.framework.client.client import STRATEGIC_MERGE_PATCH, Client
from controller_manager.framework.client.events import Recorder
from controller_manager.framework.controller.references import controller_ref, is_other
from controller_manager.framework.controller.writes import Refusal, refusal_of
from controller_manager.framework.work.loop import TerminalError

# Event reasons on the owner, as in Kubernetes' workload controllers.
SUCCESSFUL_CREATE, FAILED_CREATE = "SuccessfulCreate", "FailedCreate"
SUCCESSFUL_DELETE, FAILED_DELETE = "SuccessfulDelete", "FailedDelete"

_LONGEST_NAME = 253
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def pod_from_template(
    kind: Resource[Any],
    owner: Object,
    template: PodTemplateSpec,
    *,
    name: str = "",
    generate_name: str = "",
    namespace: str = "",
) -> Pod:
    """Build a pod from a template, controlled by `owner`, an object of the resource `kind`; it is not created yet.

    Labels, annotations, finalizers and the whole spec come from the template, including fields that `Pod` does not
    model; `replace` keeps these. Without a `name`, the server generates one from `generate_name`, by default the
    owner's name and a dash. The namespace is the owner's by default. Raises TerminalError for an invalid template.
    """
    meta = template.metadata
    made = ObjectMeta(
        name=name,
        generate_name="" if name else generate_name or _prefix(owner.metadata.name),
        namespace=namespace or owner.metadata.namespace,
        labels=meta.labels,
        annotations=meta.annotations,
        finalizers=meta.finalizers,
        owner_references=(controller_ref(kind, owner),),
    )
    spec = template.spec if bytes(template.spec) not in (b"", b"null") else {}
    data = msgspec.json.encode({"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": made, "spec": spec})
    try:
        return Pod.decode(data)
    except msgspec.ValidationError as error:
        raise TerminalError(f"the pod template of {kind.kind} {key_of(owner)} is invalid: {error}") from error


class PodControl:
    """Writes the pods of a controller, and records successes and failures as `events` on the owner.

    The controller needs `create`, `delete` and `patch` on pods for the methods that it calls.
    """

    def __init__(self, client: Client, events: Recorder) -> None:
        self._client = client
        self._events = events

    async def create(self, owner: Object, pod: Pod) -> Pod | None:
        """Create a pod that `owner` controls; return it, or None if its namespace is gone or being deleted.

        Raises ValueError if the pod has no labels or the owner does not control it, and other errors of the server.
        """
        _check(owner, pod)
        try:
            made = await self._client.create(PODS, pod)
        except ApiError as error:
            refusal = refusal_of(error)
            if refusal is Refusal.NAMESPACE_ENDS:
                return None
            if refusal is Refusal.FAILED:
                self._events.warning(owner, FAILED_CREATE, f"Error creating: {error.message}")
            raise
        self._events.normal(owner, SUCCESSFUL_CREATE, f"Created pod: {made.metadata.name}")
        return made

    async def delete(self, owner: Object, pod: Pod, *, grace: int | None = None) -> bool:
        """Delete the pod with that uid; return whether it existed. `grace` is in seconds, None for the pod's own.

        Raises Conflict if another pod now has its name.
        """
        try:
            await self._client.delete(PODS, key_of(pod), grace=grace, uid=pod.metadata.uid)
        except NotFound:
            return False
        except ApiError as error:
            if refusal_of(error) is Refusal.FAILED:
                self._events.warning(owner, FAILED_DELETE, f"Error deleting: {error.message}")
            raise
        self._events.normal(owner, SUCCESSFUL_DELETE, f"Deleted pod: {pod.metadata.name}")
        return True

    async def patch(self, pod: Pod, change: Mapping[str, Any]) -> Pod:
        """Apply a strategic merge patch to the pod with that uid; return the result.

        Raises Conflict if another pod now has its name, and NotFound.
        """
        bound = {**change, "metadata": {**change.get("metadata", {}), "uid": pod.metadata.uid}}
        try:
            return await self._client.patch(PODS, key_of(pod), bound, STRATEGIC_MERGE_PATCH)
        except Invalid as error:
            if is_other(error):
                raise Conflict(error.message, error.details) from None
            raise


def _check(owner: Object, pod: Pod) -> None:
    """Raise ValueError for a pod that the owner could not recognize as its own."""
    reference = controller_of(pod)
    if not pod.metadata.labels:
        raise ValueError("the pod has no labels, so no selector can match it")
    if reference is None or not reference.uid or reference.uid != owner.metadata.uid:
        raise ValueError(f"the owner with the uid {owner.metadata.uid!r} does not control the pod")
    if not (reference.api_version and reference.kind and reference.block_owner_deletion):
        raise ValueError("the controller reference of a pod has an apiVersion, a kind, and blockOwnerDeletion")


def _prefix(name: str) -> str:
    """Return the name and a dash, or only the name if a pod name cannot start like that."""
    prefix = f"{name}-"
    # The letter stands for the suffix that the server appends.
    fits = len(prefix) <= _LONGEST_NAME and _SUBDOMAIN.fullmatch(f"{name}a")
    return prefix if fits else name
