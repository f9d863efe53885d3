"""Attaches volumes to the nodes of the pods that use them and detaches them, through CSI and FlexVolume drivers.

The state is in `state`, decisions about a volume are in `decide`, `operations` performs them and `verifier` verifies
attachments.
"""

import asyncio
import math
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Self

from pydantic import model_validator

from controller_manager.common.api.core import NODES, PODS, Node, Pod
from controller_manager.common.api.errors import Conflict, Invalid, NotFound
from controller_manager.common.api.platform import VENDOR
from controller_manager.common.api.storage import (
    CSI_DRIVERS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_ATTACHMENTS,
    VolumeAttachment,
)
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework import (
    STRATEGIC_MERGE_PATCH,
    Add,
    Change,
    Context,
    ControllerSpec,
    Duration,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    flag,
    key_of,
)

from ..shared.claims import PODS_BY_CLAIM
from ..shared.pods import PODS_BY_NODE, pods_on
from ..shared.volume_specs import CSI, VolumeSpec, VolumeSpecs, has_volumes, spec_of_name, spec_of_volume
from .attachments import attachment_name
from .decide import NodeFacts, decide, is_managed, needs_volumes, node_facts, note_wishes
from .flex_drivers import FlexDrivers
from .metrics import AttachDetachMetrics
from .operations import Operations
from .state import ActualState, DesiredState, Verb
from .verifier import Verifier
from .watches import (
    AttachmentName,
    DriverName,
    NodeName,
    Verification,
    VolumeName,
    changed_attachments,
    changed_drivers,
    changed_nodes,
    changed_pods,
    pods_of_bound_claim,
    pods_of_volume,
)

_WORKERS = 32
"""Maximum number of concurrent workers. They wait only for responses of the server, never for a driver."""
_AT_ONCE = 500


class AttachDetachOptions(Options):
    """Attach-detach controller"""

    attach_detach_reconcile_sync_period: Duration = flag(
        "1m", "how often it is verified that what is attached still is; more than one second"
    )
    disable_attach_detach_reconcile_sync: bool = flag(
        False, "never verify that what is attached still is; pods may then lack volumes"
    )
    disable_force_detach_on_timeout: bool = flag(
        False, "leave a volume attached to a node that is not ready, however long its unmounting takes"
    )
    flex_volume_plugin_dir: str = flag(
        f"/usr/libexec/{VENDOR}/node-agent-plugins/volume/exec/",
        "folder of FlexVolume drivers, programs that attach volumes; each is called vendor~name/name",
        metavar="folder",
    )

    @model_validator(mode="after")
    def _is_not_hectic(self) -> Self:
        if self.attach_detach_reconcile_sync_period <= 1:
            raise ValueError("--attach-detach-reconcile-sync-period must be more than 1s")
        return self


# Observed, by key:     recorded:                                      enqueued:
#   a pod               the volumes it needs on its node               volumes that it newly needs or needs no more
#   a node              its volumesInUse; whether we manage it         its pods, its volumes that wait
#   a VolumeAttachment  that it exists, if it is ours                  its volume
#   a driver            volumes listed by nodes, if it attaches them   pods with its volumes
#   a volume            see `decide`
# Done: `operations` works on volumes. A node's status lists an attached volume before its pods mount it, and no longer
#   lists one that is about to be detached.
# A pod that once needed a volume needs it until it ends, even if its claim is deleted. At startup the state is rebuilt
#   from node statuses and VolumeAttachments before anything is done.


class AttachDetachController:
    """Reconciles a volume, node, pod, attachment or driver."""

    def __init__(self, context: Context, options: AttachDetachOptions) -> None:
        self._client = context.client
        self._log = context.log
        self._options = options
        self._pods = context.informers.get(PODS)
        self._nodes = context.informers.get(NODES)
        self._volumes = context.informers.get(PERSISTENT_VOLUMES)
        self._attachments = context.informers.get(VOLUME_ATTACHMENTS)
        self._specs = VolumeSpecs(context.informers)
        self._actual, self._desired = ActualState(), DesiredState()
        metrics = AttachDetachMetrics(context.runtime.registry, self._actual, self._desired)
        self._flex = FlexDrivers(options.flex_volume_plugin_dir, context.log)
        self._operations = Operations(context, self._actual, self._desired, metrics, self._flex, self._changed)
        self._verifier = Verifier(context, self._actual, self._operations, self._specs, self._flex, metrics)
        self._managed: set[str] = set()
        self._started = False
        # The function that enqueues keys, and the keys enqueued before it is set.
        self._add: Add | None = None
        self._early: dict[Hashable, str] = {}

    async def run(self, add: Add) -> None:
        """Start enqueuing keys, watch volumesInUse of nodes, and verify attachments periodically."""
        self._add = add
        for key, cause in self._early.items():
            add(key, cause)
        self._early.clear()
        self._start()
        end = self._nodes.subscribe(self._note_use)
        try:
            async with Tasks() as tasks:
                tasks.start(self._flex.watch(self._note_driver), name="FlexVolume drivers")
                while not self._options.disable_attach_detach_reconcile_sync:
                    await asyncio.sleep(self._options.attach_detach_reconcile_sync_period)
                    for node in self._actual.nodes():
                        add(Verification(node), "what is attached is verified")
                    await self._verifier.verify_with_drivers()
                await asyncio.Event().wait()
        finally:
            end()

    def _note_driver(self, name: str) -> None:
        self._wake(DriverName(name), f"the driver {name}")

    def _note_use(self, change: Change[Node]) -> None:
        """Record the volumesInUse of a node, or the last ones of a deleted node."""
        self._actual.node_uses(change.key.name, change.object.status.volumes_in_use)

    async def reconcile(
        self, key: Key | VolumeName | NodeName | AttachmentName | DriverName | Verification
    ) -> Requeue | None:
        """Record what is new, or perform what is due."""
        self._start()
        match key:
            case VolumeName(volume=name):
                return await self._reconcile_volume(name)
            case NodeName(node=name):
                await self._reconcile_node(name)
            case AttachmentName(attachment=name):
                self._reconcile_attachment(name)
            case DriverName(driver=name):
                await self._reconcile_driver(name)
            case Verification(verified=name):
                await self._verifier.verify_node(name)
            case Key():
                self._reconcile_pod(key)
        return None

    def _wake(self, key: Hashable, cause: str) -> None:
        if self._add is not None:
            self._add(key, cause)
        else:
            self._early[key] = cause

    def _changed(self, volume: str, node: str) -> None:
        self._wake(NodeName(node), f"the volume {volume}")
        self._wake(VolumeName(volume), f"at the node {node}")

    def _start(self) -> None:
        """Record the existing state once, before any decision."""
        if self._started:
            return
        self._started = True
        for node in self._nodes.list():
            self._record_node(node)
        for found in self._attachments.list():
            self._record_attachment(found)
        for pod in self._pods.list():
            if has_volumes(pod):
                self._reconcile_pod(key_of(pod))
        for name in self._actual.volumes:
            self._wake(VolumeName(name), "the start")

    def _record_node(self, node: Node) -> None:
        name = node.metadata.name
        for listed in node.status.volumes_attached:
            spec = spec_of_name(listed.name)
            if spec is None:
                self._actual.found_foreign(listed.name, name)
                continue
            self._actual.found_listed(spec, name)
            if spec.plugin == CSI:
                self._operations.places[attachment_name(spec, name)] = (spec.name, name)
        self._actual.node_uses(name, node.status.volumes_in_use)
        if is_managed(node):
            self._managed.add(name)

    def _record_attachment(self, found: VolumeAttachment) -> None:
        """Record an unknown VolumeAttachment of this controller: its volume may be attached."""
        volume = self._volumes.get(Key("", found.spec.source.persistent_volume_name or ""))
        spec = spec_of_volume(volume) if volume is not None else None
        node = found.spec.node_name
        if spec is None or found.metadata.name != attachment_name(spec, node):
            return
        self._operations.places[found.metadata.name] = (spec.name, node)
        if self._actual.found_attachment(spec, node):
            self._wake(VolumeName(spec.name), f"the VolumeAttachment {found.metadata.name}")

    def _reconcile_pod(self, key: Key) -> None:
        pod = self._pods.get(key)
        if pod is None or not needs_volumes(pod):
            changed = self._desired.release(key)
        else:
            node, managed = pod.spec.node_name, pod.spec.node_name in self._managed
            changed = self._desired.want(key, pod.metadata.uid, node, self._needed(pod), managed=managed)
        for name in sorted(changed):
            self._wake(VolumeName(name), f"the pod {key}")

    def _needed(self, pod: Pod) -> Mapping[str, VolumeSpec]:
        """Return the volumes of a pod that have to be attached, including those whose claims are gone."""
        found = {spec.name: spec for _, spec in self._specs.of_pod(pod)}
        before = self._desired.volumes_of(key_of(pod), pod.metadata.uid)
        return {name: spec for name, spec in {**before, **found}.items() if self._is_attachable(spec)}

    def _is_attachable(self, spec: VolumeSpec) -> bool:
        return self._flex.attaches(spec.plugin) if spec.is_flex else self._specs.is_attachable(spec)

    async def _reconcile_node(self, name: str) -> None:
        node = self._nodes.get(Key("", name))
        if node is not None and is_managed(node) and name not in self._managed:
            self._managed.add(name)
            for pod in filter(has_volumes, pods_on(self._pods, name)):
                self._wake(key_of(pod), f"the node {name}")
        elif node is None and self._desired.is_empty(name):
            self._managed.discard(name)
        await self._list_attached(name, node)
        for volume, attachment in self._actual.at(name):
            if attachment.unwanted is not None or attachment.operation is not None:
                self._wake(VolumeName(volume.spec.name), f"the node {name}")
        if node is None and name not in self._managed and not any(self._actual.at(name)):
            self._actual.forget_node(name)

    async def _list_attached(self, name: str, node: Node | None) -> None:
        """Write the attached volumes into the status of a node, and continue with volumes that were removed from it."""
        listed = self._actual.to_list(name)
        if node is not None and listed is not None:
            paths = {one.name: one.device_path for one in node.status.volumes_attached}
            wanted = {one: device or paths.get(one, "") for one, device in sorted(listed.items())}
            if wanted != paths:
                await self._write_list(node, wanted)
        for volume, attachment in self._actual.at(name):
            operation = attachment.operation
            if operation is not None and operation.verb is Verb.DETACH and volume.spec.name not in (listed or ()):
                operation.unlisted = True

    async def _write_list(self, node: Node, paths: Mapping[str, str]) -> None:
        volumes = [{"name": name, "devicePath": path} for name, path in paths.items()]
        change = {"metadata": {"uid": node.metadata.uid}, "status": {"volumesAttached": volumes or None}}
        try:
            await self._client.patch(NODES, key_of(node), change, STRATEGIC_MERGE_PATCH, subresource="status")
        except NotFound:
            return
        except Invalid as error:  # another node of that name
            raise Conflict(error.message, error.details) from None

    def _reconcile_attachment(self, name: str) -> None:
        found = self._attachments.get(Key("", name))
        place = self._operations.places.get(name)
        if place is None:
            if found is not None:
                self._record_attachment(found)
            return
        volume = self._actual.volumes.get(place[0])
        if found is not None and volume is not None and found.status.attached:
            volume.resume(place[1], Verb.ATTACH)
        self._wake(VolumeName(place[0]), f"the VolumeAttachment {name}")

    async def _reconcile_driver(self, name: str) -> None:
        for number, pod in enumerate(self._pods.list(), 1):
            if has_volumes(pod) and any(name in (spec.driver, spec.plugin) for _, spec in self._specs.of_pod(pod)):
                self._reconcile_pod(key_of(pod))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        # Pods come first, because volumes without a user are detached.
        for volume, node in self._actual.foreign():
            spec = spec_of_name(volume, self._flex.names)
            if spec is not None:
                self._actual.recognize(volume, node)
                self._actual.found_listed(spec, node)
                self._wake(VolumeName(volume), f"the driver {name}")

    async def _reconcile_volume(self, name: str) -> Requeue | None:
        wanted, spec = self._desired.nodes_for(name), self._desired.spec_of(name)
        volume = self._actual.known(spec) if spec is not None else self._actual.volumes.get(name)
        if volume is None:
            return None
        late = await self._operations.follow(volume, wanted)
        wanted, now = self._desired.nodes_for(name), monotonic()
        note_wishes(volume, wanted, now)
        facts = partial(self._facts, name)
        plan = decide(volume, wanted, facts, now, force=not self._options.disable_force_detach_on_timeout)
        await self._operations.perform(volume, plan)
        late = await self._operations.follow(volume, self._desired.nodes_for(name)) or late
        if not volume.attachments and not self._desired.nodes_for(name):
            self._actual.forget(name)
        again = min(plan.again, late or math.inf)
        return Requeue(max(again - monotonic(), 0.0)) if again < math.inf else None

    def _facts(self, volume: str, node: str) -> NodeFacts:
        return node_facts(self._nodes.get(Key("", node)), uses=self._actual.is_used(volume, node))


SPECS = (
    ControllerSpec(
        name="persistentvolume-attach-detach-controller",
        aliases=("attachdetach",),
        service_account="attachdetach-controller",
        reporter="attachdetach-controller",
        reconciler=AttachDetachController,
        options=AttachDetachOptions,
        workers=lambda _: _WORKERS,
        watches=(
            Mapped(PODS, changed_pods, indexes={**PODS_BY_CLAIM, **PODS_BY_NODE}),
            Mapped(NODES, changed_nodes),
            Mapped(PERSISTENT_VOLUME_CLAIMS, pods_of_bound_claim),
            Mapped(PERSISTENT_VOLUMES, pods_of_volume),
            Mapped(VOLUME_ATTACHMENTS, changed_attachments),
            Mapped(CSI_DRIVERS, changed_drivers),
        ),
        rbac=(
            PolicyRule(
                groups=("",),
                resources=("pods", "nodes", "persistentvolumeclaims", "persistentvolumes"),
                verbs=("list", "watch"),
            ),
            PolicyRule(groups=("",), resources=("nodes",), verbs=("get",)),
            PolicyRule(groups=("",), resources=("nodes/status",), verbs=("patch",)),
            PolicyRule(groups=(CSI_DRIVERS.group,), resources=("csidrivers",), verbs=("list", "watch")),
            PolicyRule(
                groups=(VOLUME_ATTACHMENTS.group,),
                resources=("volumeattachments",),
                verbs=("list", "watch", "get", "create", "delete"),
            ),
        ),
    ),
)
