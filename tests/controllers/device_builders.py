"""Builders of device slices, classes and claims."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from controller_manager.common.api.core import Pod
from controller_manager.common.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from controller_manager.common.api.resource import Key, key_of
from controllers.scheduler.device_pools import DevicePools
from controllers.scheduler.devices import Devices
from tests.controllers.scheduling_builders import pod

Tree = Mapping[str, Any]
DRIVER = "d.org"


def device(name: str, capacity: Tree | None = None, **parts: Any) -> Tree:
    """Return a device; parts that are not fields of devices become attributes."""
    fields = {key: parts.pop(key) for key in tuple(parts) if key in _FIELDS}
    attributes = {key: {_TYPES[type(value)]: value} for key, value in parts.items()}
    sizes = {key: value if isinstance(value, Mapping) else {"value": value} for key, value in (capacity or {}).items()}
    return {"name": name, "attributes": attributes, "capacity": sizes, **fields}


_TYPES = {bool: "bool", int: "int", str: "string"}
_FIELDS = {
    *("consumesCounters", "nodeName", "nodeSelector", "allNodes", "taints", "bindsToNode", "allowMultipleAllocations"),
    *("bindingConditions", "bindingFailureConditions"),
}


def device_slice(name: str, *devices: Tree | str, pool: str = "", generation: int = 1, count: int = 1,
              driver: str = DRIVER, **spec: Any) -> ResourceSlice:  # fmt: skip
    """Return a slice of the node `name`, unless the spec selects nodes itself."""
    where = (
        {}
        if spec.keys() & {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection", "sharedCounters"}
        else {"nodeName": name}
    )
    listed = [device(one) if isinstance(one, str) else one for one in devices]
    of = {"name": pool or name, "generation": generation, "resourceSliceCount": count}
    tree = {"metadata": {"name": name}, "spec": {"driver": driver, "pool": of, "devices": listed, **where, **spec}}
    return ResourceSlice.decode(msgspec.json.encode(tree))


def device_class(name: str = "any", *selectors: str, **spec: Any) -> DeviceClass:
    cel = [{"cel": {"expression": one}} for one in selectors]
    tree = {"metadata": {"name": name, "uid": name}, "spec": {"selectors": cel, **spec}}
    return DeviceClass.decode(msgspec.json.encode(tree))


def request(name: str = "r", *selectors: str, of: str = "any", **more: Any) -> Tree:
    return {"name": name, "exactly": exactly(*selectors, of=of, **more)}


def exactly(*selectors: str, of: str = "any", **more: Any) -> Tree:
    return {"deviceClassName": of, "selectors": [{"cel": {"expression": one}} for one in selectors], **more}


def claim(name: str, *requests: Tree, constraints: Sequence[Tree] = (), status: Tree | None = None,
          config: Sequence[Tree] = (), **meta: Any) -> ResourceClaim:  # fmt: skip
    tree = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", **meta},
        "spec": {"devices": {"requests": list(requests), "constraints": list(constraints), "config": list(config)}},
        "status": status or {},
    }
    return ResourceClaim.decode(msgspec.json.encode(tree))


def allocated_claim(name: str, *names: str, pool: str = "a", **more: Any) -> ResourceClaim:
    """Return a claim with allocated devices of a pool."""
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": one, **more} for one in names]
    return claim(name, request(), status={"allocation": {"devices": {"results": results}}})


def pod_with_claims(*claims: str, name: str = "p", **spec: Any) -> Pod:
    """Return a pod with resource claims."""
    listed = [{"name": one, "resourceClaimName": one} for one in claims]
    return pod(name, resourceClaims=listed, **spec)


def devices_of(
    slices: Sequence[ResourceSlice], claims: Sequence[ResourceClaim] = (), classes: Sequence[DeviceClass] = ()
) -> Devices:
    """Return the scheduler's view of slices, claims and classes."""
    by_key: dict[Key, ResourceClaim] = {key_of(one): one for one in claims}
    by_name = {one.metadata.name: one for one in (device_class(), *classes)}
    devices = Devices(claim=by_key.get, device_class=by_name.get, pools=DevicePools())
    for one in slices:
        devices.pools.set_slice(one.metadata.name, one)
    for key, each in by_key.items():
        devices.usage.set_claim(key, each)
    return devices
