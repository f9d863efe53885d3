"""Which pods a virtual node admits, and the message of a refusal."""

from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import Node, Pod
from controller_manager.common.api.resource import Key
from controllers.scheduler.node_info import room_of
from controllers.scheduler.pod_requirements import requirements_of
from controllers.virtual_node.admission import AdmittedPods, refusal_of
from controllers.virtual_node.critical_pods import CRITICAL, Occupant, victims_for

Tree = dict[str, Any]
ROOM = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi", "pods": "3", "example.org/card": "1"}


def pod(name: str = "p", *, status: Tree | None = None, labels: Tree | None = None, **spec: Any) -> Pod:
    meta = {"name": name, "namespace": "default", "uid": name, "labels": labels or {}}
    given = {"containers": [{"name": "main", "image": "i"}], "nodeName": "n", **spec}
    return Pod.decode(msgspec.json.encode({"metadata": meta, "spec": given, "status": status or {}}))


def requesting(amounts: Tree, **more: Any) -> Pod:
    return pod(containers=[{"name": "main", "image": "i", "resources": {"requests": amounts}}], **more)


def pod_with_port(number: int, address: str = "", name: str = "p") -> Pod:
    ports = [{"containerPort": 80, "hostPort": number, "hostIP": address}]
    return pod(name, containers=[{"name": "main", "image": "i", "ports": ports}])


def node(*taints: Tree, pressures: tuple[str, ...] = ()) -> Node:
    meta = {"name": "n", "labels": {"kubernetes.io/hostname": "n", "disk": "ssd"}}
    conditions = [{"type": one, "status": "True"} for one in pressures]
    tree = {"metadata": meta, "spec": {"taints": list(taints)}, "status": {"conditions": conditions}}
    return Node.decode(msgspec.json.encode(tree))


def node_affinity(operator: str, *values: str) -> Tree:
    terms = [{"matchExpressions": [{"key": "disk", "operator": operator, "values": list(values)}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


BEST_EFFORT = {"qosClass": "BestEffort"}
GONE = {"key": "gone", "effect": "NoExecute"}
TOLERATES = [{"key": "gone", "operator": "Exists"}]
FULL = [requesting({"cpu": "1500m", "memory": "3Gi"})]
CASES: dict[str, tuple[Pod, Node, list[Pod], str]] = {
    "it fits": (requesting({"cpu": "500m", "memory": "1Gi"}), node(), FULL, ""),
    "too little CPU": (requesting({"cpu": "501m"}), node(), FULL, "OutOfcpu"),
    "too little memory": (requesting({"memory": "2Gi"}), node(), FULL, "OutOfmemory"),
    "too little storage": (requesting({"ephemeral-storage": "11Gi"}), node(), [], "OutOfephemeral-storage"),
    "too many pods": (pod(), node(), [pod("a"), pod("b"), pod("c")], "OutOfpods"),
    "the pod limit is checked first": (
        requesting({"cpu": "9"}),
        node(),
        [pod("a"), pod("b"), pod("c")],
        "OutOfpods",
    ),
    "an extended resource of a device class": (
        requesting(
            {"deviceclass.resource.kubernetes.io/gpu": "2"},
            status={
                "extendedResourceClaimStatus": {
                    "requestMappings": [{"resourceName": "deviceclass.resource.kubernetes.io/gpu"}]
                }
            },
        ),
        node(),
        [],
        "",
    ),
    "an extended resource of a device class, not allocated": (
        requesting({"deviceclass.resource.kubernetes.io/gpu": "2"}),
        node(),
        [],
        "OutOfdeviceclass.resource.kubernetes.io/gpu",
    ),
    "too little of an extended resource": (
        requesting({"example.org/card": "2"}),
        node(),
        [],
        "OutOfexample.org/card",
    ),
    "an unknown extended resource": (requesting({"example.org/other": "2"}), node(), [], ""),
    "pages": (requesting({"hugepages-2Mi": "2Mi"}), node(), [], "OutOfhugepages-2Mi"),
    "another node is selected": (pod(nodeSelector={"disk": "hdd"}), node(), [], "NodeAffinity"),
    "this node is selected": (pod(nodeSelector={"disk": "ssd"}), node(), [], ""),
    "affinity to other nodes": (pod(affinity=node_affinity("NotIn", "ssd")), node(), [], "NodeAffinity"),
    "resources are checked before affinity": (
        requesting({"cpu": "3"}, nodeSelector={"disk": "hdd"}),
        node(),
        [],
        "OutOfcpu",
    ),
    "a port that is taken": (pod_with_port(80), node(), [pod_with_port(80, "10.0.0.1")], "NodePorts"),
    "the port of another address": (pod_with_port(80, "10.0.0.2"), node(), [pod_with_port(80, "10.0.0.1")], ""),
    "a taint": (pod(), node(GONE), [], "TaintToleration"),
    "a tolerated taint": (pod(tolerations=TOLERATES), node(GONE), [], ""),
    "a NoSchedule taint": (pod(), node({**GONE, "effect": "NoSchedule"}), [], ""),
    "another operating system by label": (
        pod(labels={"kubernetes.io/os": "windows"}),
        node(),
        [],
        "PodOSSelectorNodeLabelDoesNotMatch",
    ),
    "another operating system": (pod(os={"name": "windows"}), node(), [], "PodOSNotSupported"),
    "the same operating system": (pod(os={"name": "linux"}, labels={"kubernetes.io/os": "linux"}), node(), [], ""),
    "disk pressure": (requesting({"cpu": "1"}), node(pressures=("DiskPressure",)), [], "Evicted"),
    "disk pressure, critical pod": (pod(priority=CRITICAL), node(pressures=("DiskPressure", "PIDPressure")), [], ""),
    "memory pressure": (pod(status=BEST_EFFORT), node(pressures=("MemoryPressure",)), [], "Evicted"),
    "memory pressure, pod with requests": (
        pod(status={"qosClass": "Burstable"}),
        node(pressures=("MemoryPressure",)),
        [],
        "",
    ),
    "memory pressure, tolerated": (
        pod(status=BEST_EFFORT, tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]),
        node(pressures=("MemoryPressure",)),
        [],
        "",
    ),
    "disk and memory pressure": (
        pod(status={"qosClass": "Burstable"}),
        node(pressures=("MemoryPressure", "DiskPressure")),
        [],
        "Evicted",
    ),
}


@pytest.mark.parametrize(("asks", "there", "others", "reason"), CASES.values(), ids=CASES.keys())
def test_pod_is_refused_with_reason(asks: Pod, there: Node, others: list[Pod], reason: str) -> None:
    found = refusal_of(asks, there, room_of(ROOM), [requirements_of(one) for one in others])
    assert (found.reason if found is not None else "") == reason


def test_refusal_message_contains_amounts() -> None:
    found = refusal_of(requesting({"cpu": "1"}), node(), room_of(ROOM), [requirements_of(one) for one in FULL])
    assert found is not None
    assert found.message == "the pod asks for 1000 thousandths of cpu, and 1500 of 2000 are taken"


def test_admitted_pods_occupy_node_until_they_end() -> None:
    known, new = AdmittedPods(), pod("new")

    def taken(pods: list[Pod]) -> list[Pod]:
        found = [one.pod for one in known.occupants(pods)]
        assert known.requirements(pods) == [requirements_of(one) for one in found]
        return found

    old = pod("old", status={"startTime": "2026-01-01T00:00:00Z", "phase": "Running"})
    ended = pod("ended", status={"startTime": "2026-01-01T00:00:00Z", "phase": "Failed"})
    every = [new, old, ended]
    assert taken(every) == [old]
    known.add(new)
    assert taken(every) == [new, old]
    again = msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, uid="another"))
    assert known.has(new)
    assert not known.has(again)
    assert taken([again]) == []
    known.add(again)
    assert not known.has(new)
    assert taken([again]) == [again]
    known.forget(Key("default", "new"))
    assert not known.has(again)
    assert taken(every) == [old]
    known.end(old)
    assert known.ends(old)
    assert taken(every) == []


def taking(name: str, qos: str, priority: int = 0, **amounts: str) -> Occupant:
    one = requesting(amounts, status={"qosClass": qos}, priority=priority)
    return Occupant(msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, name=name)),
                    requirements_of(one))  # fmt: skip


GUARANTEED, BURSTABLE = "Guaranteed", "Burstable"
VICTIMS: dict[str, tuple[dict[str, int], list[Occupant], list[str] | None]] = {
    "no pod may be evicted": ({"cpu": 1}, [taking("a", BURSTABLE, CRITICAL, cpu="1")], None),
    "not enough": ({"cpu": 1500}, [taking("a", BURSTABLE, cpu="1")], None),
    "burstable ones before guaranteed ones": (
        {"cpu": 500},
        [taking("a", GUARANTEED, cpu="500m"), taking("b", BURSTABLE, cpu="1")],
        ["b"],
    ),
    "guaranteed ones if others do not free enough": (
        {"cpu": 1500},
        [taking("a", GUARANTEED, cpu="500m"), taking("b", BURSTABLE, cpu="1"), taking("c", GUARANTEED, cpu="2")],
        ["a", "b"],
    ),
    "the fewest": (
        {"cpu": 1000},
        [taking("a", BURSTABLE, cpu="500m"), taking("b", BURSTABLE, cpu="500m"), taking("c", BURSTABLE, cpu="1")],
        ["c"],
    ),
    "the smallest sufficient ones": (
        {"cpu": 500},
        [taking("a", BURSTABLE, cpu="2"), taking("b", BURSTABLE, cpu="600m"), taking("c", BURSTABLE, cpu="400m")],
        ["b"],
    ),
    "the pod limit": ({"pods": 1}, [taking("a", BURSTABLE, cpu="1"), taking("b", "BestEffort")], ["b"]),
    "several resources": (
        {"cpu": 500, "memory": 1024},
        [taking("a", BURSTABLE, cpu="1"), taking("b", BURSTABLE, memory="1Ki"), taking("c", BURSTABLE, cpu="4")],
        ["a", "b"],
    ),
}


@pytest.mark.parametrize(("lacking", "there", "names"), VICTIMS.values(), ids=VICTIMS.keys())
def test_victims_for_critical_pod(lacking: dict[str, int], there: list[Occupant], names: list[str] | None) -> None:
    found = victims_for(requirements_of(pod(priority=CRITICAL)), lacking, there)
    assert (sorted(one.pod.metadata.name for one in found) if found is not None else None) == names


def test_critical_pod_that_cannot_run_evicts_none() -> None:
    there = [requirements_of(one) for one in FULL]
    asked = requesting({"cpu": "1"}, priority=CRITICAL)
    assert refusal_of(asked, node(), room_of(ROOM), there) == (
        "OutOfcpu",
        "the pod asks for 1000 thousandths of cpu, and 1500 of 2000 are taken",
        {"cpu": 500},
    )
    found = refusal_of(asked, node(GONE), room_of(ROOM), there)
    assert found is not None
    assert (found.reason, found.lacking) == ("TaintToleration", {})
