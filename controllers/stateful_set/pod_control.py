"""Performs the actions on the pods of a stateful set and records events."""

from collections.abc import Callable

from controller_manager.common.api.apps import StatefulSet
from controller_manager.common.api.core import Pod
from controller_manager.common.api.errors import ApiError, conflict
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim
from controller_manager.framework import Client, PodControl, try_write
from controller_manager.framework.client.events import Recorder
from controller_manager.framework.controller.pod_control import FAILED_CREATE, SUCCESSFUL_CREATE

from .claims import Find, claims_to_correct, has_other_controller, new_claims
from .decide import PodAction, PodVerb
from .identity import identity_patch, new_pod, ordinals
from .revisions import Recorded

SUCCESSFUL_UPDATE, FAILED_UPDATE = "SuccessfulUpdate", "FailedUpdate"
CONFLICTING_CONTROLLER = "ConflictingController"


class StatefulPodControl:
    """Writes the pods and the claims of `owner` with the revisions `recorded`; `find` returns cached claims.

    `created` and `deleted` are the pods that were created and deleted.
    """

    def __init__(self, client: Client, events: Recorder, owner: StatefulSet, recorded: Recorded, find: Find) -> None:
        self._client = client
        self._events = events
        self._control = PodControl(client, events)
        self._owner = owner
        self._recorded = recorded
        self._find = find
        self.created: list[Pod] = []
        self.deleted: list[Pod] = []

    async def perform(self, action: PodAction) -> None:
        """Perform an action. Raises the error of the server, or Conflict if a claim is still being deleted."""
        match action:
            case PodAction(PodVerb.CREATE, ordinal):
                await self._create(ordinal)
            case PodAction(PodVerb.DELETE, _, Pod() as pod):
                await self._control.delete(self._owner, pod)
                self.deleted.append(pod)
            case PodAction(PodVerb.REPAIR, ordinal, Pod() as pod):
                await self._repair(pod, ordinal)

    async def _create(self, ordinal: int) -> None:
        template, revision = self._recorded.template(self._owner, ordinal)
        pod = new_pod(self._owner, template, ordinal, revision)
        await self._create_claims(pod, ordinal)
        await self._set_claim_owners(pod, ordinal)
        created = await self._control.create(self._owner, pod)
        if created is not None:
            self.created.append(created)

    async def _create_claims(self, pod: Pod, ordinal: int) -> None:
        """Create the missing claims of a pod. Raises Conflict afterwards if another claim is being deleted."""
        terminating = ""
        for claim in new_claims(self._owner, ordinal):
            existing = self._find(claim.metadata.name)
            if existing is None:
                await self._create_claim(pod, claim)
            elif existing.metadata.deletion_timestamp is not None:
                terminating = claim.metadata.name
        if terminating:
            message = f"Claim {terminating} of pod {pod.metadata.name} is being deleted"
            self._events.warning(self._owner, FAILED_CREATE, message)
            kind = PERSISTENT_VOLUME_CLAIMS
            raise conflict(kind.group, kind.plural, terminating, "it is being deleted")

    async def _create_claim(self, pod: Pod, claim: PersistentVolumeClaim) -> None:
        described = f"claim {claim.metadata.name} of pod {pod.metadata.name}"

        def on_failure(error: ApiError) -> None:
            self._events.warning(self._owner, FAILED_CREATE, f"Error creating {described}: {error.message}")

        if await try_write(self._client.create(PERSISTENT_VOLUME_CLAIMS, claim), on_failure):
            self._events.normal(self._owner, SUCCESSFUL_CREATE, f"Created {described}")

    async def _repair(self, pod: Pod, ordinal: int) -> None:
        if ordinal not in ordinals(self._owner):
            await self._set_claim_owners(pod, ordinal)
            return
        change = identity_patch(self._owner, pod, ordinal)
        if pod.status.phase == "Pending" or "spec" in change:
            await self._create_claims(pod, ordinal)
        has_changed = await self._set_claim_owners(pod, ordinal)
        if change:
            has_changed = await try_write(self._control.patch(pod, change), self._update_failed(pod))
        if has_changed:
            self._events.normal(self._owner, SUCCESSFUL_UPDATE, f"Updated pod: {pod.metadata.name}")

    async def _set_claim_owners(self, pod: Pod, ordinal: int) -> bool:
        """Set the owners of a pod's claims according to the policy. Return whether any has changed."""
        has_changed = False
        for claim in claims_to_correct(self._owner, pod, ordinal, self._find):
            if has_other_controller(self._owner, pod, claim):
                message = (
                    f"Claim {claim.metadata.name} has another controller; the retention policy does not apply to it"
                )
                self._events.warning(self._owner, CONFLICTING_CONTROLLER, message)
            has_changed |= await try_write(
                self._client.update(PERSISTENT_VOLUME_CLAIMS, claim), self._update_failed(pod)
            )
        return has_changed

    def _update_failed(self, pod: Pod) -> Callable[[ApiError], None]:
        def on_failure(error: ApiError) -> None:
            message = f"Error updating pod {pod.metadata.name}: {error.message}"
            self._events.warning(self._owner, FAILED_UPDATE, message)

        return on_failure
