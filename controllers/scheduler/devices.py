"""Where a pod may be because of its claims to devices (KEP-4381): where those that are allocated can be reached; pure.

This scheduler allocates no devices: a pod whose claims are not allocated by somebody else waits. The controller of
claims reserves them for the pod once it is bound.
"""

from collections.abc import Callable

from controller_manager.api.core import Pod
from controller_manager.api.devices import ResourceClaim
from controller_manager.api.resource import Key
from controller_manager.api.scheduling import NodeMatcher

from .._device_claims import is_meant, known_claims
from .filters import Rejection, Rejections
from .node_info import NodeInfo

DEVICES = "DynamicResources"
_ELSEWHERE = (Rejection(DEVICES, "node(s) cannot reach the devices of resourceclaims of the pod", final=True),)


class PodDevices:
    """The claims to devices of one pod, as they are now. `hindrance` is what keeps the pod from every node."""

    def __init__(self, pod: Pod, claim: Callable[[Key], ResourceClaim | None]) -> None:
        self.hindrance: Rejection | None = None
        self._nodes: list[NodeMatcher] = []
        made = {one.name for one in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_template_name and entry.name not in made:
                self._hinder(f"waiting for the resourceclaim of {entry.name} to be created")
        for entry, name in known_claims(pod):
            found = claim(Key(pod.metadata.namespace, name))
            if found is None or not is_meant(pod, entry, found):
                self._hinder(f'resourceclaim "{name}" not found')
            else:
                self._note(name, found)

    def rejects(self, node: NodeInfo) -> Rejections:
        """Return why the pod may not be on a node; nothing if it may."""
        there = node.node
        return () if all(there is not None and one.matches(there) for one in self._nodes) else _ELSEWHERE

    def _note(self, name: str, claim: ResourceClaim) -> None:
        allocation = claim.status.allocation
        if allocation is None:
            self._hinder(f'resourceclaim "{name}" is not allocated, and this scheduler allocates no devices')
        elif allocation.node_selector is not None:
            self._nodes.append(NodeMatcher.of(allocation.node_selector))

    def _hinder(self, reason: str) -> None:
        self.hindrance = self.hindrance or Rejection(DEVICES, reason, final=True)
