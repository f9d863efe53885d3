"""Performs attach and detach operations and tracks them until they end.

operation   steps                                              ends with
attach      create a VolumeAttachment, unless it exists;       its status, its deletion, or a timeout;
            or call a FlexVolume driver                        its response
detach      1. remove the volume from the node's status        the pods, if they want it again
            2. check on the server that the node does not      a refusal
               use it, or that it timed out and has no
               unknown pods; skipped if out of service
            3. delete the VolumeAttachment;                    its absence, its status, or a timeout;
               or call the FlexVolume driver                   its response

After a failure the volume counts as possibly attached. The cache is trusted only about the very VolumeAttachment that
was created or found. That it is gone is confirmed with the server.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping

from controller_manager.common.api.core import NODES, PODS, Pod
from controller_manager.common.api.errors import AlreadyExists, ApiError, NotFound
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.storage import VOLUME_ATTACHMENTS, VolumeAttachment
from controller_manager.common.base.clock import monotonic
from controller_manager.framework import Context, TransportError, in_parallel

from ..shared.pods import is_gone
from ..shared.volume_specs import CSI
from .attachments import TIMEOUT, attachment_name, judge_attachment, judge_detachment, new_attachment
from .decide import LATE, TAINT, Attach, AttachPlan, Detach, Refuse, needs_volumes, node_facts, refusal
from .flex_drivers import FlexDrivers
from .metrics import AttachDetachMetrics
from .state import ActualState, AttachableVolume, Attachment, DesiredState, OperationResult, Verb, VolumeOperation


class Operations:
    """Works on volumes, one call at a time for each. `changed(volume, node)` enqueues both by name."""

    def __init__(
        self,
        context: Context,
        actual: ActualState,
        desired: DesiredState,
        metrics: AttachDetachMetrics,
        flex: FlexDrivers,
        changed: Callable[[str, str], None],
    ) -> None:
        self._client = context.client
        self._events = context.events
        self._log = context.log
        self._pods = context.informers.get(PODS)
        self._attachments = context.informers.get(VOLUME_ATTACHMENTS)
        self._actual = actual
        self._desired = desired
        self._metrics = metrics
        self._flex = flex
        self._changed = changed
        # The volume and the node of each VolumeAttachment.
        self.places: dict[str, tuple[str, str]] = {}

    async def perform(self, volume: AttachableVolume, plan: AttachPlan) -> None:
        """Perform a plan and the remaining steps of detach operations.

        Raises the first error of the server. The failed operation has a backoff by then.
        """

        async def take(step: Attach | Detach | Refuse) -> None:
            match step:
                case Attach(node=node):
                    await self._attach(volume, node)
                case Detach():
                    self._unlist(volume, step)
                case Refuse(node=node, others=others):
                    self._refuse(volume, node, others)

        first = await in_parallel(plan.steps, take)
        waiting = [one for one in volume.attachments.values() if _may_be_asked(one.operation)]
        second = await in_parallel(waiting, lambda one: self._detach(volume, one))
        error = first.error or second.error
        if error is not None:
            raise error

    async def follow(self, volume: AttachableVolume, wanted: Mapping[str, Collection[Key]]) -> float | None:
        """Complete operations that have ended. Return the time (of the loop) of the next timeout."""
        times = []
        for attachment in list(volume.attachments.values()):
            operation = attachment.operation
            if operation is None:
                continue
            if operation.verb is Verb.ATTACH:
                self._follow_attachment(volume, attachment, operation)
            elif operation.asked:
                await self._follow_detachment(volume, attachment, operation)
            elif attachment.node in wanted:  # no driver was called yet: it stays attached
                attachment.operation, attachment.reported = None, attachment.confirmed
                self._changed(volume.spec.name, attachment.node)
            if attachment.operation is not None and _ends_by_time(volume, operation):
                times.append(operation.since + TIMEOUT)
        return min(times, default=None)

    def detached(self, volume: AttachableVolume, node: str) -> None:
        """Record that a volume is no longer attached to a node."""
        volume.detach(node)
        self.places.pop(attachment_name(volume.spec, node), None)
        self._changed(volume.spec.name, node)

    def unconfirm(self, volume: AttachableVolume, attachment: Attachment) -> None:
        """Record that a volume may no longer be attached to a node."""
        attachment.confirmed = attachment.reported = False
        self._changed(volume.spec.name, attachment.node)

    def _local(self, volume: AttachableVolume, node: str) -> VolumeAttachment | None:
        return self._attachments.get(Key("", attachment_name(volume.spec, node)))

    async def _attach(self, volume: AttachableVolume, node: str) -> None:
        spec = volume.spec
        operation = volume.begin(node, Verb.ATTACH, monotonic())
        self._actual.will_list(node)
        if spec.is_flex:
            self._call_driver(volume, node, operation)
            return
        if spec.plugin != CSI:
            self._attached(volume, node, operation)
            return
        self.places[attachment_name(spec, node)] = (spec.name, node)
        try:
            found = await self._obtain(volume, node)
        except (ApiError, TransportError) as error:
            self._failed(volume, volume.attachments[node], str(error))
            raise
        operation.uid = found.metadata.uid

    def _call_driver(self, volume: AttachableVolume, node: str, operation: VolumeOperation) -> None:
        def ended(outcome: OperationResult) -> None:
            operation.outcome = outcome
            self._changed(volume.spec.name, node)

        self._flex.begin(operation.verb, volume.spec, node, ended)

    async def _obtain(self, volume: AttachableVolume, node: str) -> VolumeAttachment:
        """Return the VolumeAttachment from the server, since the cache may show one that is gone."""
        wanted = new_attachment(volume.spec, node)
        with contextlib.suppress(NotFound):
            if self._local(volume, node) is not None:
                return await self._client.get(VOLUME_ATTACHMENTS, key_of(wanted))
        try:
            return await self._client.create(VOLUME_ATTACHMENTS, wanted)
        except AlreadyExists:
            return await self._client.get(VOLUME_ATTACHMENTS, key_of(wanted))

    def _follow_attachment(self, volume: AttachableVolume, attachment: Attachment, operation: VolumeOperation) -> None:
        outcome = operation.outcome
        if not volume.spec.is_flex:
            outcome = judge_attachment(self._local(volume, attachment.node), operation, monotonic())
        if outcome.problem:
            self._failed(volume, attachment, outcome.problem)
        elif outcome.done:
            self._attached(volume, attachment.node, operation, outcome.device)

    def _attached(self, volume: AttachableVolume, node: str, operation: VolumeOperation, device: str = "") -> None:
        volume.attach(node, device)
        self._metrics.ended(volume.spec, operation.verb, monotonic() - operation.since, failed=False)
        for pod in self._users(volume, (node,)):
            message = f'AttachVolume.Attach succeeded for volume "{volume.spec.title}"'
            self._events.normal(pod, "SuccessfulAttachVolume", message)
        self._changed(volume.spec.name, node)

    def _failed(self, volume: AttachableVolume, attachment: Attachment, problem: str) -> None:
        operation, node = attachment.operation, attachment.node
        volume.fail(node, monotonic())
        self._changed(volume.spec.name, node)
        if operation is None:
            return
        self._metrics.ended(volume.spec, operation.verb, monotonic() - operation.since, failed=True)
        if operation.verb is Verb.DETACH:
            self._log.warning("a volume was not detached", volume=volume.spec.name, node=node, problem=problem)
            return
        for pod in self._users(volume, (node,)):
            message = f'AttachVolume.Attach failed for volume "{volume.spec.title}" : {problem}'
            self._events.warning(pod, "FailedAttachVolume", message)

    def _refuse(self, volume: AttachableVolume, node: str, others: Collection[str]) -> None:
        volume.refused.add(node)
        there = self._users(volume, others)
        for pod in self._users(volume, (node,)):
            self._events.warning(pod, "FailedAttachVolume", refusal(volume.spec.title, pod, there))

    def _users(self, volume: AttachableVolume, nodes: Collection[str]) -> list[Pod]:
        """Return the pods that need a volume on these nodes."""
        wanted = self._desired.nodes_for(volume.spec.name)
        found = (self._pods.get(key) for node in nodes for key in sorted(wanted.get(node, ())))
        return [pod for pod in found if pod is not None]

    def _unlist(self, volume: AttachableVolume, step: Detach) -> None:
        if step.forced:
            self._metrics.forced(step.forced)
        operation = volume.begin(step.node, Verb.DETACH, monotonic())
        operation.verify, operation.late = step.forced != TAINT, step.forced == LATE
        volume.attachments[step.node].reported = False
        self._changed(volume.spec.name, step.node)

    async def _detach(self, volume: AttachableVolume, attachment: Attachment) -> None:
        """Ask the driver to detach a volume that its node no longer lists."""
        operation, node = attachment.operation, attachment.node
        if operation is None:
            return
        operation.since = monotonic()
        try:
            problem = await self._still_used(volume, operation, node) if operation.verify else ""
            if problem:
                self._failed(volume, attachment, problem)
                return
            operation.asked = True
            if volume.spec.is_flex:
                self._call_driver(volume, node, operation)
            if volume.spec.plugin == CSI:
                await self._client.delete(VOLUME_ATTACHMENTS, Key("", attachment_name(volume.spec, node)))
        except NotFound:
            self._ended(volume, node, operation)
            return
        except (ApiError, TransportError) as error:
            self._failed(volume, attachment, str(error))
            raise
        await self._follow_detachment(volume, attachment, operation)

    async def _still_used(self, volume: AttachableVolume, operation: VolumeOperation, node: str) -> str:
        """Return why a volume must not be detached according to the node on the server, or an empty string.

        After a timeout the use by a node that is not ready is ignored, if all its pods are in the cache.
        """
        try:
            found = await self._client.get(NODES, Key("", node))
        except NotFound:
            return ""
        if volume.spec.name in found.status.volumes_in_use:
            silent = operation.late and not node_facts(found, uses=True).ready
            return await self._unknown_pods(node) if silent else "the node still uses the volume"
        if any(one.name == volume.spec.name for one in found.status.volumes_attached):
            return "the node still lists the volume"
        return ""

    async def _unknown_pods(self, node: str) -> str:
        """Return a message if the node has pods that the cache lacks, or an empty string."""
        for pod in (await self._client.list(PODS, fields=f"spec.nodeName={node}")).items:
            known = self._pods.get(key_of(pod))
            if needs_volumes(pod) and (known is None or known.metadata.uid != pod.metadata.uid):
                return f"pod {key_of(pod)} came to the node and is not known here yet"
        return ""

    async def _follow_detachment(
        self, volume: AttachableVolume, attachment: Attachment, operation: VolumeOperation
    ) -> None:
        node, outcome = attachment.node, operation.outcome
        if not volume.spec.is_flex:
            found = self._local(volume, node) if volume.spec.plugin == CSI else None
            outcome = judge_detachment(found, operation, monotonic())
        if outcome.problem:
            self._failed(volume, attachment, outcome.problem)
        elif outcome.done:
            key = Key("", attachment_name(volume.spec, node))
            if volume.spec.plugin != CSI or await is_gone(self._client, VOLUME_ATTACHMENTS, key):
                self._ended(volume, node, operation)

    def _ended(self, volume: AttachableVolume, node: str, operation: VolumeOperation) -> None:
        self._metrics.ended(volume.spec, operation.verb, monotonic() - operation.since, failed=False)
        self.detached(volume, node)


def _ends_by_time(volume: AttachableVolume, operation: VolumeOperation) -> bool:
    """Return whether an operation in progress has a timeout."""
    return not volume.spec.is_flex and (operation.asked or operation.verb is Verb.ATTACH)


def _may_be_asked(operation: VolumeOperation | None) -> bool:
    """Return whether a driver may be asked to detach a volume now."""
    return operation is not None and operation.verb is Verb.DETACH and operation.unlisted and not operation.asked
