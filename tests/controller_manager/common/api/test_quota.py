"""Quota usage of objects, and quota scopes."""

from datetime import UTC, datetime
from typing import Any

import pytest

from controller_manager.common.api.quota import DeviceClasses, Evaluators, scopes_of


class Cluster:
    """A device class for an extended resource, one for none, and a pod with its claims."""

    def __init__(self, pod: Any = None, claims: Any = ()) -> None:
        self._pod, self._claims = pod, claims

    def device_classes(self) -> DeviceClasses:
        return DeviceClasses({"gpu": "example.com/gpu", "nic": None})

    def pod(self, namespace: str, name: str) -> Any:
        return self._pod

    def device_claims(self, namespace: str) -> Any:
        return self._claims


EVALUATORS = Evaluators(Cluster())
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def usage_of(resource: str, evaluators: Evaluators = EVALUATORS, **tree: Any) -> dict[str, str]:
    usage = evaluators.of(resource).measure(tree).usage_at(NOW)
    return {name: str(amount) for name, amount in usage.items()}


def container(name: str = "c", requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def test_pod_usage_counts_requests_and_limits() -> None:
    asks = container(requests={"cpu": "1", "example.com/gpu": "2", "hugepages-2Mi": "4Mi"}, limits={"cpu": "2"})
    spec = {"containers": [asks, container("d", requests={"cpu": "500m"})], "overhead": {"cpu": "250m"}}
    assert usage_of("pods", spec=spec) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "1750m",
        "requests.cpu": "1750m",
        "limits.cpu": "2250m",
        "requests.example.com/gpu": "2",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
    }
    assert usage_of("pods", spec=spec, status={"phase": "Succeeded"}) == {"count/pods": "1"}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container(requests={"cpu": "1"})], "initContainers": [container(requests={"cpu": "3"})]}, "3"),
        (
            {
                "containers": [container(requests={"cpu": "1"})],
                "initContainers": [
                    container(requests={"cpu": "2"}, restartPolicy="Always"),
                    container(requests={"cpu": "500m"}),
                ],
            },
            "3",
        ),
        ({"containers": [container(requests={"cpu": "1"})], "resources": {"requests": {"cpu": "5"}}}, "5"),
        ({"containers": [container(requests={"cpu": "1"})], "resources": {"requests": {"x.com/y": "5"}}}, "1"),
        ({"containers": [container()], "overhead": {"cpu": "1"}}, "1"),
    ],
    ids=["init", "sidecar", "whole", "not for wholes", "overhead"],
)
def test_pod_usage_is_its_greatest_need(spec: Any, cpu: str) -> None:
    assert usage_of("pods", spec=spec)["cpu"] == cpu


@pytest.mark.parametrize(
    ("status", "reason", "cpu", "limit"),
    [
        ({"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}}, "", "3", "4"),
        ({"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "5"}}, "", "5", "2"),
        ({"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}}, "", "1", "2"),
        ({"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}}, "Infeasible", "500m", "1"),
        ({"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}}, "Deferred", "1", "2"),
        ({"allocatedResources": {"cpu": "5"}}, "", "1", "2"),
    ],
    ids=["in effect", "allocated", "grows", "infeasible", "deferred", "no resources"],
)
def test_resizing_pod_counts_the_larger_amount(status: Any, reason: str, cpu: str, limit: str) -> None:
    pod_status = {
        "containerStatuses": [{"name": "c", **status}],
        "conditions": [{"type": "PodResizePending", "reason": reason}],
    }
    spec = {"containers": [container(requests={"cpu": "1"}, limits={"cpu": "2"})]}
    found = usage_of("pods", spec=spec, status=pod_status)
    assert (found["requests.cpu"], found["limits.cpu"]) == (cpu, limit)


@pytest.mark.parametrize(
    ("metadata", "counts"),
    [
        ({"deletionTimestamp": "2025-12-31T23:59:50Z", "deletionGracePeriodSeconds": 30}, True),
        ({"deletionTimestamp": "2025-12-31T23:59:20Z", "deletionGracePeriodSeconds": 30}, False),
        ({"deletionTimestamp": "2025-12-31T23:00:00Z"}, True),
    ],
    ids=["within its grace", "stuck", "without a grace"],
)
def test_pod_past_its_grace_period_does_not_count(metadata: Any, counts: bool) -> None:
    assert ("pods" in usage_of("pods", metadata=metadata, spec={})) is counts


@pytest.mark.parametrize(
    ("spec", "node_ports", "balancers"),
    [
        ({"type": "ClusterIP", "ports": [{}]}, "0", "0"),
        ({"type": "NodePort", "ports": [{}, {}]}, "2", "0"),
        ({"type": "LoadBalancer", "ports": [{}]}, "1", "1"),
        (
            {
                "type": "LoadBalancer",
                "ports": [{}, {"nodePort": 30000}],
                "allocateLoadBalancerNodePorts": False,
            },
            "1",
            "1",
        ),
    ],
)
def test_service_usage_counts_node_ports_and_balancers(spec: Any, node_ports: str, balancers: str) -> None:
    assert usage_of("services", spec=spec) == {
        "count/services": "1",
        "services": "1",
        "services.nodeports": node_ports,
        "services.loadbalancers": balancers,
    }


@pytest.mark.parametrize(
    ("spec", "status", "annotations", "name", "storage"),
    [
        ({"storageClassName": "gold"}, {}, {}, "gold", "1Gi"),
        ({"storageClassName": "gold"}, {"allocatedResources": {"storage": "3Gi"}}, {}, "gold", "3Gi"),
        ({"storageClassName": "gold"}, {"allocatedResources": {"storage": "1Mi"}}, {}, "gold", "1Gi"),
        ({"storageClassName": "gold"}, {}, {"volume.beta.kubernetes.io/storage-class": "old"}, "old", "1Gi"),
        ({}, {}, {}, "", "1Gi"),
    ],
)
def test_claim_usage_counts_per_storage_class(
    spec: Any, status: Any, annotations: Any, name: str, storage: str
) -> None:
    asks = {"resources": {"requests": {"storage": "1Gi"}}}
    tree = {"spec": spec | asks, "status": status, "metadata": {"annotations": annotations}}
    of_class = f"{name}.storageclass.storage.k8s.io/"
    named = {f"{of_class}persistentvolumeclaims": "1", f"{of_class}requests.storage": storage} if name else {}
    assert usage_of("persistentvolumeclaims", **tree) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": storage,
        **named,
    }


def test_storage_is_rounded_up_to_bytes() -> None:
    spec = {"resources": {"requests": {"storage": "1500m"}}}
    assert usage_of("persistentvolumeclaims", spec=spec)["requests.storage"] == "2"


def test_other_objects_count_by_number() -> None:
    assert usage_of("deployments.apps") == {"count/deployments.apps": "1"}
    assert usage_of("secrets") == {"count/secrets": "1", "secrets": "1"}
    assert usage_of("widgets.example.com") == {"count/widgets.example.com": "1"}


def devices(*requests: Any, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": "c", **metadata}, "spec": {"devices": {"requests": list(requests)}}}


def exactly(name: str, mode: str = "ExactCount", count: int = 1) -> dict[str, Any]:
    return {"exactly": {"deviceClassName": name, "allocationMode": mode, "count": count}}


NIC, GPU = "nic.deviceclass.resource.k8s.io/devices", "gpu.deviceclass.resource.k8s.io/devices"
ANY = "requests.deviceclass.resource.kubernetes.io/"


@pytest.mark.parametrize(
    ("requests", "usage"),
    [
        ([], {}),
        ([exactly("nic", count=2), exactly("nic")], {NIC: "3", f"{ANY}nic": "3"}),
        ([exactly("gpu", "All")], {GPU: "32", f"{ANY}gpu": "32", "requests.example.com/gpu": "32"}),
        ([exactly("gpu", "Other")], {GPU: "0"}),
        (
            [{"firstAvailable": [exactly("nic")["exactly"], exactly("nic", count=4)["exactly"]]}, exactly("nic")],
            {NIC: "5", f"{ANY}nic": "5"},
        ),
    ],
    ids=["none", "of one class", "all", "unknown mode", "alternatives"],
)
def test_device_claims_count_the_largest_possible_request(requests: Any, usage: dict[str, str]) -> None:
    found = usage_of("resourceclaims.resource.k8s.io", **devices(*requests))
    assert found == {"count/resourceclaims.resource.k8s.io": "1", **usage}


POD: dict[str, Any] = {
    "metadata": {"name": "p", "uid": "u"},
    "spec": {"containers": [container(requests={"example.com/gpu": "2"})]},
}
OWNED = {
    "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}],
    "creationTimestamp": "2026-01-01T00:00:00Z",
}
EARLIER = {"metadata": {**OWNED, "name": "b"}}


@pytest.mark.parametrize(
    ("pod", "others", "metadata", "left"),
    [
        (POD, (), OWNED, "1"),
        (POD, (), {}, "3"),
        (POD, (EARLIER,), OWNED, "3"),
        (POD | {"metadata": {"name": "p", "uid": "other"}}, (), OWNED, "3"),
        (POD | {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "c"}}}, (EARLIER,), OWNED, "1"),
        (POD | {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "b"}}}, (), OWNED, "3"),
        (None, (), OWNED, "3"),
    ],
    ids=["its claim", "not owned", "an earlier claim", "another pod", "says so", "says another", "no pod"],
)
def test_devices_of_extended_resource_count_once(pod: Any, others: Any, metadata: Any, left: str) -> None:
    evaluators = Evaluators(Cluster(pod, others))
    found = usage_of("resourceclaims.resource.k8s.io", evaluators, **devices(exactly("gpu", count=3), **metadata))
    assert (found[GPU], found["requests.example.com/gpu"]) == ("3", left)


@pytest.mark.parametrize(
    ("resource", "name", "counts"),
    [
        ("pods", "requests.example.com/gpu", True),
        ("pods", "requests.kubernetes.io/gpu", False),
        ("pods", "requests.hugepages-2Mi", True),
        ("pods", "requests.storage", False),
        ("pods", f"{ANY}nic", True),
        ("persistentvolumeclaims", "a.storageclass.storage.k8s.io/requests.storage", True),
        ("persistentvolumeclaims", "a.storageclass.storage.k8s.io/pods", False),
        ("resourceclaims.resource.k8s.io", NIC, True),
        ("resourceclaims.resource.k8s.io", "requests.example.com/gpu", True),
        ("resourceclaims.resource.k8s.io", "requests.example.com/tpu", False),
        ("resourceclaims.resource.k8s.io", f"{ANY}nic", True),
        ("resourceclaims.resource.k8s.io", f"{ANY}tpu", False),
        ("secrets", "count/secrets", True),
        ("jobs.batch", "jobs.batch", False),
    ],
)
def test_which_resource_counts_a_quota_name(resource: str, name: str, counts: bool) -> None:
    assert EVALUATORS.of(resource).counts(name) is counts


ASKING = {"containers": [container(requests={"cpu": "1"})]}
FAR = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["n"]}]}}
WEIGHED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"namespaceSelector": {}}}]}


@pytest.mark.parametrize(
    ("spec", "scopes"),
    [
        ({"containers": [container()]}, {"BestEffort", "NotTerminating"}),
        ({"activeDeadlineSeconds": 5, **ASKING}, {"NotBestEffort", "Terminating"}),
        ({"priorityClassName": "p", **ASKING}, {"NotBestEffort", "NotTerminating", "PriorityClass"}),
        ({"affinity": FAR, **ASKING}, {"NotBestEffort", "NotTerminating", "CrossNamespacePodAffinity"}),
        (
            {"affinity": {"podAffinity": WEIGHED}, **ASKING},
            {"NotBestEffort", "NotTerminating", "CrossNamespacePodAffinity"},
        ),
    ],
)
def test_quota_scopes_of_pods(spec: Any, scopes: set[str]) -> None:
    every = (
        "BestEffort",
        "NotBestEffort",
        "Terminating",
        "NotTerminating",
        "PriorityClass",
        "CrossNamespacePodAffinity",
    )
    measured = EVALUATORS.of("pods").measure({"spec": spec})
    assert {name for name in every if measured.is_in_all(scopes_of({"scopes": [name]}))} == scopes
    assert not EVALUATORS.of("configmaps").measure({}).is_in_all(scopes_of({"scopes": ["BestEffort"]}))


@pytest.mark.parametrize(
    ("operator", "values", "named", "unnamed"),
    [
        ("In", ["a"], True, False),
        ("In", ["b"], False, False),
        ("NotIn", ["b"], True, True),
        ("NotIn", ["a"], False, True),
        ("Exists", [], True, False),
        ("DoesNotExist", [], False, True),
    ],
)
def test_scope_selector_matches_classes(operator: str, values: list[str], named: bool, unnamed: bool) -> None:
    def is_in(resource: str, scope: str, tree: Any) -> bool:
        expression = {"scopeName": scope, "operator": operator, "values": values}
        scopes = scopes_of({"scopeSelector": {"matchExpressions": [expression]}})
        return EVALUATORS.of(resource).measure(tree).is_in_all(scopes)

    assert is_in("pods", "PriorityClass", {"spec": {"priorityClassName": "a"}}) is named
    assert is_in("pods", "PriorityClass", {"spec": {}}) is unnamed
    for tree in (
        {"spec": {"volumeAttributesClassName": "a"}},
        {"status": {"currentVolumeAttributesClassName": "a"}},
        {"status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "a"}}},
    ):
        assert is_in("persistentvolumeclaims", "VolumeAttributesClass", tree) is named
    assert is_in("persistentvolumeclaims", "VolumeAttributesClass", {}) is unnamed


def test_limited_cpu_requires_every_container_to_set_it() -> None:
    tree: Any = {"spec": {"containers": [container("b"), container("a", requests={"cpu": "1"})]}}
    names = ["requests.cpu", "limits.cpu", "memory", "pods", "requests.storage"]
    unsaid = EVALUATORS.of("pods").unsaid
    assert unsaid(tree, names) == "must specify limits.cpu for: a,b; memory for: a,b; requests.cpu for: b"
    tree["spec"]["resources"] = {"requests": {"cpu": "1"}}
    assert unsaid(tree, names) == ""
