"""What a claim to devices has, and what an update of its status takes away."""

from apiserver_stub.kinds.values.trees import get_in, put_in
from controller_manager.common.api.tree import Tree

_TOLD = ("status", "devices")

# Driver, pool, device, and the share of one that several claims have; empty if it is one's own.
DeviceID = tuple[str, ...]


def id_of(device: Tree) -> DeviceID:
    """Return what a result of an allocation, or what is told of a device, is about."""
    return tuple(device.get(name) or "" for name in ("driver", "pool", "device", "shareID"))


def allocated(claim: Tree) -> set[DeviceID]:
    """Return the devices that a claim has."""
    return {id_of(result) for result in get_in(claim, ("status", "allocation", "devices", "results")) or ()}


def device_claim_on_update(new: Tree, old: Tree, part: str) -> None:
    """Take away what is told of devices that have just been given back (KEP-4817)."""
    told = get_in(new, _TOLD)
    if part == "status" and told:
        gone = allocated(old) - allocated(new)
        put_in(new, _TOLD, [device for device in told if id_of(device) not in gone] or None)
