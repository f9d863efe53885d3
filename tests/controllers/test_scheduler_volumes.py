"""Nodes that the volumes of a pod allow, and the volume plan for a node."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import Pod
from controller_manager.common.api.model import Object
from controller_manager.common.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from controllers.scheduler.cluster_state import ClusterState
from controllers.scheduler.decide import Choice, Decider, Wanted
from controllers.scheduler.node_info import PlacedPod
from controllers.scheduler.pod_requirements import requirements_of
from controllers.scheduler.storage import Storage
from controllers.scheduler.volumes import PodVolumes, claims_of, disks_of
from tests.controllers.scheduling_builders import cluster, node, pod

ZONE = "topology.kubernetes.io/zone"
Tree = Mapping[str, Any]


def in_zone(zone: str) -> Tree:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}


def claim(name: str = "c", volume: str = "", *, modes: Sequence[str] = ("ReadWriteOnce",), storage_class: str = "late",
          selected: str = "", phase: str = "Bound", **meta: Any) -> Tree:  # fmt: skip
    notes = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    if selected:
        notes["volume.kubernetes.io/selected-node"] = selected
    spec = {"accessModes": list(modes), "storageClassName": storage_class, "volumeName": volume}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": notes, **meta},
        "spec": {**spec, "resources": {"requests": {"storage": "5Gi"}}},
        "status": {"phase": phase if volume else "Pending"},
    }


def volume(name: str, size: str = "5Gi", labels: Tree | None = None, storage_class: str = "late", **spec: Any) -> Tree:
    common = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class}
    meta = {"name": name, "uid": name, "labels": labels or {}}
    return {"metadata": meta, "spec": {**common, **spec}, "status": {"phase": "Available"}}


def decoded(kind: type[Object], trees: Sequence[Tree]) -> Mapping[str, Any]:
    found = (kind.decode(msgspec.json.encode(tree)) for tree in trees)
    return {one.metadata.name: one for one in found}


def storage(claims: Sequence[Tree] = (), volumes: Sequence[Tree] = (), **more: Any) -> Storage:
    late = {"metadata": {"name": "late"}, "provisioner": "made", "volumeBindingMode": "WaitForFirstConsumer"}
    classes = decoded(
        StorageClass,
        (
            {**late, **more.get("late", {})},
            {**late, "metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"},
            {"metadata": {"name": "now"}, "provisioner": "made"},
        ),
    )
    of_claims, of_volumes = decoded(PersistentVolumeClaim, claims), decoded(PersistentVolume, volumes)
    nodes, drivers = decoded(CSINode, more.get("nodes", ())), decoded(CSIDriver, more.get("drivers", ()))
    attachments = decoded(VolumeAttachment, more.get("attachments", ())).values()
    return Storage(
        claim=lambda key: of_claims.get(key.name),
        volume=of_volumes.get,
        volumes=of_volumes.values,
        storage_class=classes.get,
        csi_node=nodes.get,
        csi_driver=drivers.get,
        capacities=decoded(CSIStorageCapacity, more.get("capacities", ())).values,
        attachments=lambda name: [one for one in attachments if one.spec.node_name == name],
    )


def pod_with(*names: str, name: str = "p", **spec: Any) -> Pod:
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in names]
    return pod(name, volumes=volumes, **spec)


def zoned() -> ClusterState:
    return cluster([node("a", {ZONE: "x"}), node("b", {ZONE: "y"})])


def find_nodes(there: Storage, one: Pod, state: ClusterState | None = None) -> tuple[set[str], str]:
    """Return the nodes that the pod fits, and the message if there is none."""
    state = state or zoned()
    volumes = PodVolumes(one, there, state, disks_of(one))
    want = Wanted("p", requirements_of(one), attached=(volumes,), hindrance=volumes.hindrance)
    found = Decider(state).decide(want)
    if not isinstance(found, Choice):
        return set(), found.message.removeprefix("0/2 nodes are available: ")
    return {each.name for each in state.order if not volumes.rejects(each)}, ""


CSI = {"driver": "made", "volumeHandle": "h"}
SMALL = {"metadata": {"name": "s"}, "storageClassName": "late", "nodeTopology": {}, "capacity": "1Gi"}
ROOMY = {
    "metadata": {"name": "r"},
    "storageClassName": "late",
    "nodeTopology": {"matchLabels": {ZONE: "y"}},
    "capacity": "9Gi",
}
COUNTS = {"metadata": {"name": "made"}, "spec": {"storageCapacity": True}}
ROWS: Sequence[tuple[str, Storage, Pod, set[str], str]] = (
    ("missing claim", storage(), pod_with("c"), set(), 'persistentvolumeclaim "c" not found.'),
    (
        "claim being deleted",
        storage([claim(deletionTimestamp="2026-01-01T00:00:00Z")]),
        pod_with("c"),
        set(),
        'persistentvolumeclaim "c" is being deleted.',
    ),
    (
        "bound without a pod, later",
        storage([claim(storage_class="now")]),
        pod_with("c"),
        set(),
        "pod has unbound immediate PersistentVolumeClaims.",
    ),
    ("bound", storage([claim(volume="v")], [volume("v")]), pod_with("c"), {"a", "b"}, ""),
    (
        "bound, reachable from some nodes",
        storage([claim(volume="v")], [volume("v", **in_zone("y"))]),
        pod_with("c"),
        {"b"},
        "",
    ),
    ("bound, of a zone", storage([claim(volume="v")], [volume("v", labels={ZONE: "x__z"})]), pod_with("c"), {"a"}, ""),
    ("to be provisioned anywhere", storage([claim()]), pod_with("c"), {"a", "b"}, ""),
    ("being provisioned at a node", storage([claim(selected="b")]), pod_with("c"), {"b"}, ""),
    (
        "to be provisioned in a zone",
        storage(
            [claim()],
            late={"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["y"]}]}]},
        ),
        pod_with("c"),
        {"b"},
        "",
    ),
    (
        "where there is space",
        storage([claim()], drivers=[COUNTS], capacities=[SMALL, ROOMY]),
        pod_with("c"),
        {"b"},
        "",
    ),
    (
        "without space",
        storage([claim()], drivers=[COUNTS], capacities=[SMALL]),
        pod_with("c"),
        set(),
        "2 node(s) did not have enough free storage.",
    ),
    (
        "an existing volume",
        storage([claim(storage_class="local")], [volume("v", storage_class="local", **in_zone("x"))]),
        pod_with("c"),
        {"a"},
        "",
    ),
    (
        "an existing volume is too small",
        storage([claim(storage_class="local")], [volume("v", "1Gi", storage_class="local", **in_zone("x"))]),
        pod_with("c"),
        set(),
        "2 node(s) didn't find available persistent volumes to bind.",
    ),
    (
        "one volume for two claims",
        storage(
            [claim(storage_class="local"), claim("d", storage_class="local")],
            [volume("v", storage_class="local"), volume("w", storage_class="local", **in_zone("y"))],
        ),
        pod_with("c", "d"),
        {"b"},
        "",
    ),
    (
        "as many as the driver allows",
        storage(
            [claim(volume="v")],
            [volume("v", csi=CSI)],
            nodes=[
                {
                    "metadata": {"name": "a"},
                    "spec": {"drivers": [{"name": "made", "nodeID": "a", "allocatable": {"count": 0}}]},
                }
            ],
        ),
        pod_with("c"),
        {"b"},
        "",
    ),
)


@pytest.mark.parametrize(("there", "one", "nodes", "message"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_allowed_nodes_by_volumes(there: Storage, one: Pod, nodes: set[str], message: str) -> None:
    assert find_nodes(there, one) == (nodes, message)


def test_volume_plan_for_node() -> None:
    there = storage(
        [claim(storage_class="local"), claim("d")],
        [volume("large", "9Gi", storage_class="local"), volume("small", "6Gi", storage_class="local")],
    )
    state, one = zoned(), pod_with("c", "d")
    plan = PodVolumes(one, there, state).plan(state.nodes["a"])
    assert [(given.metadata.name, to.metadata.name) for given, to in plan.given] == [("small", "c")]
    assert [made.metadata.name for made in plan.made] == ["d"]
    assert plan.claims == claims_of(one)
    there.taken["small"] = claims_of(pod_with("other"))[0]
    plan = PodVolumes(one, there, state).plan(state.nodes["a"])
    assert [given.metadata.name for given, _ in plan.given] == ["large"]


def test_read_write_once_pod_claim_is_exclusive() -> None:
    there = storage([claim(volume="v", modes=["ReadWriteOncePod"])], [volume("v")])
    state, other = zoned(), pod_with("c", name="other")
    assert find_nodes(there, pod_with("c"), state) == ({"a", "b"}, "")
    state.place(PlacedPod(other, "a", requirements_of(other), claims_of(other)))
    assert find_nodes(there, pod_with("c"), state)[0] == set()
    imagined = state.nodes["a"].copy()
    imagined.remove(state.pods["other"])
    assert not PodVolumes(pod_with("c"), there, state).rejects(imagined)


def limited(most: int, driver: str = "made") -> Tree:
    return {
        "metadata": {"name": "a"},
        "spec": {"drivers": [{"name": driver, "nodeID": "a", "allocatable": {"count": most}}]},
    }


def attached(volume: str, node: str = "a", attacher: str = "made") -> Tree:
    spec = {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return {"metadata": {"name": f"{volume}-{node}"}, "spec": spec}


EBS = "ebs.csi.aws.com"
OURS, THEIRS = volume("v", csi=CSI), volume("w", csi={**CSI, "volumeHandle": "i"})
MOVED = volume("v", awsElasticBlockStore={"volumeID": "aws://z/vol-1"})
INLINE = {"name": "d", "awsElasticBlockStore": {"volumeID": "vol-1"}}
LIMITS: dict[str, tuple[Storage, Pod, list[Pod], set[str]]] = {
    "another volume uses the whole limit": (
        storage([claim(volume="v"), claim("d", volume="w")], [OURS, THEIRS], nodes=[limited(1)]),
        pod_with("c"),
        [pod_with("d", name="other")],
        {"b"},
    ),
    "the same volume is in use on the node": (
        storage([claim(volume="v")], [OURS], nodes=[limited(1)]),
        pod_with("c"),
        [pod_with("c", name="other")],
        {"a", "b"},
    ),
    "one that is attached but not used": (
        storage([claim(volume="v")], [OURS, THEIRS], nodes=[limited(1)], attachments=[attached("w")]),
        pod_with("c"),
        [],
        {"b"},
    ),
    "one that is attached elsewhere": (
        storage([claim(volume="v")], [OURS, THEIRS], nodes=[limited(1)], attachments=[attached("w", "b")]),
        pod_with("c"),
        [],
        {"a", "b"},
    ),
    "one that is attached, and of another driver": (
        storage([claim(volume="v")], [OURS, THEIRS], nodes=[limited(1)], attachments=[attached("w", attacher="other")]),
        pod_with("c"),
        [],
        {"a", "b"},
    ),
    "its own attached volume": (
        storage([claim(volume="v")], [OURS], nodes=[limited(1)], attachments=[attached("v")]),
        pod_with("c"),
        [],
        {"a", "b"},
    ),
    "one that is attached and used": (
        storage(
            [claim(volume="v"), claim("d", volume="w")],
            [OURS, THEIRS],
            nodes=[limited(2)],
            attachments=[attached("w")],
        ),
        pod_with("c"),
        [pod_with("d", name="other")],
        {"a", "b"},
    ),
    "one of a migrated driver": (
        storage([claim(volume="v")], [MOVED], nodes=[limited(0, EBS)]),
        pod_with("c"),
        [],
        {"b"},
    ),
    "one to be provisioned by a migrated driver": (
        storage([claim()], late={"provisioner": "kubernetes.io/aws-ebs"}, nodes=[limited(0, EBS)]),
        pod_with("c"),
        [],
        {"b"},
    ),
    "an inline volume of the pod": (storage(nodes=[limited(0, EBS)]), pod(volumes=[INLINE]), [], {"b"}),
    "an inline volume of another pod": (
        storage([claim(volume="v")], [volume("v", csi={"driver": EBS, "volumeHandle": "h"})], nodes=[limited(1, EBS)]),
        pod_with("c"),
        [pod("other", volumes=[INLINE])],
        {"b"},
    ),
}


@pytest.mark.parametrize(("there", "one", "others", "nodes"), LIMITS.values(), ids=LIMITS.keys())
def test_volume_limits_of_drivers(there: Storage, one: Pod, others: list[Pod], nodes: set[str]) -> None:
    state = zoned()
    for other in others:
        state.place(PlacedPod(other, "a", requirements_of(other), claims_of(other)))
    assert find_nodes(there, one, state)[0] == nodes


@pytest.mark.parametrize(
    ("ours", "theirs", "nodes"), [(False, False, {"b"}), (True, False, {"b"}), (True, True, {"a", "b"})]
)
def test_exclusive_disks_are_not_shared(ours: bool, theirs: bool, nodes: set[str]) -> None:
    def with_disk(name: str, only_read: bool) -> Pod:
        disk = {"name": "d", "gcePersistentDisk": {"pdName": "disk", "readOnly": only_read}}
        return pod(name, volumes=[disk])

    state, other = zoned(), with_disk("other", theirs)
    state.place(PlacedPod(other, "a", requirements_of(other), (), disks_of(other)))
    assert find_nodes(storage(), with_disk("p", ours), state)[0] == nodes


@pytest.mark.parametrize(
    ("theirs", "nodes"),
    [
        ({"monitors": ["m1", "m2"], "image": "i"}, {"b"}),
        ({"monitors": ["m3"], "image": "i"}, {"a", "b"}),
        ({"monitors": ["m2"], "image": "other"}, {"a", "b"}),
        ({"monitors": ["m2"], "image": "i", "pool": "p"}, {"a", "b"}),
        ({"monitors": ["m2"], "image": "i", "readOnly": True}, {"b"}),
    ],
)
def test_ceph_image_is_identified_across_monitors(theirs: Tree, nodes: set[str]) -> None:
    ours = {"monitors": ["m2"], "image": "i"}
    other = pod("other", volumes=[{"name": "d", "rbd": theirs}])
    state = zoned()
    state.place(PlacedPod(other, "a", requirements_of(other), (), disks_of(other)))
    assert find_nodes(storage(), pod("p", volumes=[{"name": "d", "rbd": ours}]), state)[0] == nodes
