"""The devices allocated to a ResourceClaim, and the cleanup of its status on update."""

from apiserver_stub.kinds.values.trees import get_in, put_in
from controller_manager.common.api.tree import Tree

_DEVICES = ("status", "devices")

# Driver, pool, device and share ID. The share ID is empty for a device that is not shared.
DeviceID = tuple[str, ...]


def id_of(device: Tree) -> DeviceID:
    """Return the ID of the device in an allocation result or in a device status."""
    return tuple(device.get(name) or "" for name in ("driver", "pool", "device", "shareID"))


def allocated(claim: Tree) -> set[DeviceID]:
    """Return the IDs of the devices allocated to a claim."""
    return {id_of(result) for result in get_in(claim, ("status", "allocation", "devices", "results")) or ()}


def device_claim_on_update(new: Tree, old: Tree, part: str) -> None:
    """Remove the status of devices that this update deallocates (KEP-4817)."""
    devices = get_in(new, _DEVICES)
    if part == "status" and devices:
        gone = allocated(old) - allocated(new)
        put_in(new, _DEVICES, [device for device in devices if id_of(device) not in gone] or None)
