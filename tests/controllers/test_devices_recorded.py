"""Devices are allocated as by kube-scheduler 1.36 on the same clusters: `recorded/devices.jsonl`.

A row has a cluster, the claims of a pod, the node that kube-scheduler chose (empty: none) and the allocations. On that
node the allocation follows from the order of pools. Two upstream defects are left out: devices of one request that
violate a distinctness constraint, and counters that are not returned.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from controllers.scheduler.devices import Devices, PodDevices
from controllers.scheduler.node_info import NodeInfo
from tests.controllers.device_builders import device_class, devices_of, pod_with_claims
from tests.controllers.scheduling_builders import cluster, node

Row = Mapping[str, Any]
ROWS: list[Row] = [
    json.loads(line) for line in Path(__file__).with_name("recorded").joinpath("devices.jsonl").read_text().splitlines()
]
FAST = 'device.attributes["d.org"].fast'
CONFIG = [{"opaque": {"driver": "d.org", "parameters": {"apiVersion": "v1", "kind": "Cfast"}}}]
CLASSES: tuple[DeviceClass, ...] = (device_class("any"), device_class("fast", FAST, config=CONFIG))


def devices_and_nodes(row: Row) -> tuple[Devices, Mapping[str, NodeInfo]]:
    claims = [{"metadata": {"name": one["name"]}, "spec": one["spec"]} for one in row["claims"]]
    for one in row["others"]:
        status = {"allocation": {"devices": {"results": [one["result"]]}}}
        claims.append({"metadata": {"name": one["name"]}, "spec": one["spec"], "status": status})
    for each in claims:
        each["metadata"].update(namespace="default", uid=each["metadata"]["name"])
    devices = devices_of(
        [ResourceSlice.decode(msgspec.json.encode(one)) for one in row["slices"]],
        [ResourceClaim.decode(msgspec.json.encode(one)) for one in claims],
        CLASSES,
    )
    return devices, cluster([node(one["name"], one["labels"]) for one in row["nodes"]]).nodes


def without_random_ids(allocation: Any) -> Any:
    """Return an allocation without random identifiers."""
    tree = json.loads(msgspec.json.encode(allocation))
    tree.pop("allocationTimestamp", None)
    for one in tree["devices"]["results"]:
        assert ("shareID" in one) == bool(one.get("consumedCapacity") or one.pop("shareID", None))
        one.pop("shareID", None)
    return tree


@pytest.mark.parametrize("row", ROWS, ids=map(str, range(len(ROWS))))
def test_allocations_equal_recorded_kube_scheduler_results(row: Row) -> None:
    devices, nodes = devices_and_nodes(row)
    found = PodDevices(pod_with_claims(*(one["name"] for one in row["claims"])), devices)
    if not row["node"]:
        assert found.hindrance is not None or all(found.rejects(one) for one in nodes.values())
        return
    assert found.hindrance is None
    assert not found.rejects(nodes[row["node"]])
    allocations = [one.allocation for one in found.plan(nodes[row["node"]])]
    assert [without_random_ids(one) for one in allocations] == [without_random_ids(one) for one in row["allocations"]]
