"""Volumes and devices of pods: filters for decisions, and reservations until pods are bound."""

from controller_manager.common.api.core import Pod
from controller_manager.common.api.resource import key_of

from .cluster_state import ClusterState
from .devices import DevicePlan, Devices, PodDevices
from .node_info import NodeInfo
from .requirements import Requirements, with_devices
from .storage import Storage
from .volume_limits import has_moved_volumes
from .volumes import PodVolumes, VolumePlan, claims_of, disks_of


class Reservations:
    """Reserves volumes and devices. Without `storage` or `devices` these are ignored."""

    def __init__(self, state: ClusterState, storage: Storage | None, devices: Devices | None) -> None:
        self._state = state
        self._storage = storage
        self._devices = devices

    def volumes_of(self, pod: Pod) -> PodVolumes | None:
        """Return the volumes of a pod for decisions, or None without relevant ones."""
        disks = disks_of(pod)
        if self._storage is None or not (disks or claims_of(pod) or has_moved_volumes(pod)):
            return None
        return PodVolumes(pod, self._storage, self._state, disks)

    def devices_of(self, pod: Pod, asked: Requirements) -> PodDevices | None:
        """Return the devices of a pod for decisions, or None without requests."""
        if self._devices is None or not (pod.spec.resource_claims or asked.by_devices):
            return None
        return PodDevices(pod, self._devices, asked.by_devices)

    def with_devices(self, asked: Requirements) -> Requirements:
        """Return the requirements with the extended resources that device classes provide at present."""
        resources, devices = asked.requests.others, self._devices
        if not resources or devices is None:
            return asked
        by_devices = frozenset(name for name in resources if devices.class_for(name) is not None)
        return with_devices(asked, by_devices) if by_devices else asked

    def reserve_volumes(self, volumes: PodVolumes | None, node: NodeInfo) -> VolumePlan:
        """Return the volume plan of a pod on a node, and reserve its volumes."""
        if volumes is None or self._storage is None:
            return VolumePlan()
        plan = volumes.plan(node)
        self._storage.taken.update((volume.metadata.name, key_of(claim)) for volume, claim in plan.given)
        return plan

    def reserve_devices(self, devices: PodDevices | None, node: NodeInfo) -> DevicePlan:
        """Return the device plan of a pod on a node, and reserve its devices."""
        if devices is None or self._devices is None:
            return ()
        plan = devices.plan(node)
        for one in plan:
            if one.allocation is not None:
                self._devices.usage.assume(one.claim, one.allocation)
        return plan

    def release(self, volumes: VolumePlan, devices: DevicePlan) -> None:
        """Release reservations, after a pod was bound or its binding failed."""
        if self._storage is not None:
            for volume, _ in volumes.given:
                self._storage.taken.pop(volume.metadata.name, None)
        if self._devices is not None:
            for one in devices:
                if one.allocation is not None:
                    self._devices.usage.forget(key_of(one.claim), self._devices.claim(key_of(one.claim)))
