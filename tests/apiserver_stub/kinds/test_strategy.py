"""Write strategies: fields of the writer, generation, grace periods and finalizers."""

import copy
from typing import Any

import pytest

from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.strategies.pods import quality_of_service
from apiserver_stub.kinds.strategies.scale import ScalePaths, from_scale, selector_text, to_scale
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now

KINDS = built_in()


def _kind(group: str, plural: str) -> ResourceInfo:
    kind = KINDS.find(group, "v1", plural)
    assert kind is not None
    return kind


DEPLOYMENTS = _kind("apps", "deployments").strategy
PODS = _kind("", "pods").strategy
NAMESPACES = _kind("", "namespaces").strategy
SERVICES = _kind("", "services").strategy


def _deployment(**metadata: object) -> Tree:
    return {"metadata": {"name": "a", "uid": "u", **metadata}, "spec": {"replicas": 1}, "status": {"replicas": 1}}


def test_new_object_has_empty_status_and_generation_1() -> None:
    new = _deployment(generation=7, deletionTimestamp="x", deletionGracePeriodSeconds=1)
    DEPLOYMENTS.prepare_create(new)
    assert new == {"metadata": {"name": "a", "uid": "u", "generation": 1}, "spec": {"replicas": 1}, "status": {}}


def test_kind_without_generation_stays_without() -> None:
    new: Tree = {"metadata": {"name": "a", "generation": 3}, "data": {}}
    _kind("", "configmaps").strategy.prepare_create(new)
    assert new == {"metadata": {"name": "a"}, "data": {}}


def test_new_node_keeps_its_status() -> None:
    node: Tree = {"metadata": {"name": "a"}, "status": {"capacity": {"cpu": "1"}}}
    _kind("", "nodes").strategy.prepare_create(node)
    assert node["status"] == {"capacity": {"cpu": "1"}}


def test_service_account_secrets_have_names_only() -> None:
    strategy = _kind("", "serviceaccounts").strategy
    new: Tree = {"metadata": {}, "secrets": [{"name": "a", "uid": "u", "kind": "Secret"}, {"name": "b"}]}
    strategy.prepare_create(new)
    assert new["secrets"] == [{"name": "a"}, {"name": "b"}]
    changed: Tree = {"metadata": {}, "secrets": [{"name": "c", "namespace": "n"}]}
    strategy.prepare_update(changed, new)
    assert changed["secrets"] == [{"name": "c"}]


LABELS = {"hash": "h1", "tier": "web"}
KEYED: Tree = {"labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["hash", "missing"]}
MERGED = [{"key": "hash", "operator": "In", "values": ["h1"]}]
TERM: Tree = {**KEYED, "topologyKey": "zone", "mismatchLabelKeys": ["tier"]}
MERGED_TERM = [*MERGED, {"key": "tier", "operator": "NotIn", "values": ["web"]}]
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("spec", "path", "selector"),
    [
        *(
            ({"affinity": {kind: {where: [item]}}}, ("affinity", kind, where, 0, *rest), MERGED_TERM)
            for kind in ("podAffinity", "podAntiAffinity")
            for where, item, *rest in ((REQUIRED, TERM), (PREFERRED, {"podAffinityTerm": TERM}, "podAffinityTerm"))
        ),
        ({"topologySpreadConstraints": [KEYED]}, ("topologySpreadConstraints", 0), MERGED),
        (
            {"topologySpreadConstraints": [{**KEYED, "labelSelector": {"matchExpressions": [{"key": "x"}]}}]},
            ("topologySpreadConstraints", 0), [{"key": "x"}, *MERGED],
        ),
        (
            {"topologySpreadConstraints": [{**KEYED, "matchLabelKeys": ["missing"]}]},
            ("topologySpreadConstraints", 0), None,
        ),
    ],
)  # fmt: skip
def test_label_keys_of_a_new_pod_are_merged_into_selectors(spec: Tree, path: tuple[Any, ...], selector: Any) -> None:
    pod = {"metadata": {"labels": LABELS}, "spec": copy.deepcopy(spec)}
    PODS.prepare_create(pod)
    found: Any = pod["spec"]
    for step in path:
        found = found[step]
    assert found["labelSelector"].get("matchExpressions") == selector


def test_label_keys_without_a_selector_are_not_merged() -> None:
    pod: Tree = {"metadata": {"labels": LABELS}, "spec": {"topologySpreadConstraints": [{"matchLabelKeys": ["hash"]}]}}
    PODS.prepare_create(pod)
    assert pod["spec"]["topologySpreadConstraints"] == [{"matchLabelKeys": ["hash"]}]


@pytest.mark.parametrize(
    ("status", "time"),
    [
        ({"phase": "Pending"}, "2020-01-01T00:00:00Z"),
        ({"phase": "Pending", "lastPhaseTransitionTime": "2021-01-01T00:00:00Z"}, "2021-01-01T00:00:00Z"),
        ({"phase": "Bound", "lastPhaseTransitionTime": "2021-01-01T00:00:00Z"}, "2021-01-01T00:00:00Z"),
        ({"phase": "Bound", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}, "now"),
        ({"phase": "Bound"}, "now"),
    ],
)
def test_volume_phase_transition_time_is_set(status: Tree, time: str) -> None:
    old = {"metadata": {}, "status": {"phase": "Pending", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}}
    new = {"metadata": {}, "status": {**status}}
    before = format_time(utc_now())
    _kind("", "persistentvolumes").strategy.prepare_subresource("status", new, old)
    found = new["status"]["lastPhaseTransitionTime"]
    assert before <= found <= format_time(utc_now()) if time == "now" else found == time


def test_update_keeps_status_and_counts_spec_changes() -> None:
    old = _deployment(generation=4)
    new = copy.deepcopy(old)
    new["spec"]["replicas"] = 2
    new["status"] = {"replicas": 99}
    new["metadata"] = {"name": "a", "labels": {"x": "y"}}
    before = copy.deepcopy(old)
    DEPLOYMENTS.prepare_update(new, old)
    assert new["status"] == {"replicas": 1}
    assert new["metadata"] == {"name": "a", "uid": "u", "labels": {"x": "y"}, "generation": 5}
    assert old == before


def test_metadata_update_does_not_change_generation() -> None:
    old = _deployment(generation=4)
    new = copy.deepcopy(old)
    new["metadata"].update(labels={"a": "b"}, annotations={}, generation=77)
    DEPLOYMENTS.prepare_update(new, old)
    assert new["metadata"]["generation"] == 4


def test_deployment_annotations_change_generation() -> None:
    old = _deployment(generation=4)
    new = copy.deepcopy(old)
    new["metadata"].update(annotations={"a": "b"})
    DEPLOYMENTS.prepare_update(new, old)
    assert new["metadata"]["generation"] == 5


@pytest.mark.parametrize(("name", "count"), [("labels", 5), ("annotations", 4)])
def test_endpoint_slice_labels_change_generation(name: str, count: int) -> None:
    old: Tree = {"metadata": {"name": "a", "generation": 4}, "endpoints": []}
    new = {**old, "metadata": {**old["metadata"], name: {"a": "b"}}}
    _kind("discovery.k8s.io", "endpointslices").strategy.prepare_update(new, old)
    assert new["metadata"]["generation"] == count


def test_new_limit_range_without_name_gets_one() -> None:
    limits: Tree = {"metadata": {}, "spec": {"limits": []}}
    _kind("", "limitranges").strategy.prepare_create(limits)
    assert len(limits["metadata"]["name"]) == 36


def test_create_ignores_status_except_for_nodes() -> None:
    """Of the kinds with a status subresource, only nodes keep the status of a create."""
    kept = set()
    for kind in KINDS.all():
        new: Tree = {"metadata": {"name": "a"}, "spec": {}, "status": {"conditions": [{"type": "Mine"}]}}
        if "status" in kind.strategy.subresources:
            kind.strategy.prepare_create(new)
            if "Mine" in str(new.get("status")):
                kept.add(kind.plural)
    assert kept == {"nodes"}


def test_status_update_changes_only_status() -> None:
    old = _deployment(generation=4, labels={"a": "1"})
    new: Tree = {"metadata": {"name": "a", "annotations": {"k": "v"}}, "spec": {}, "status": {"replicas": 3}}
    DEPLOYMENTS.prepare_subresource("status", new, old)
    assert new["spec"] == {"replicas": 1}
    assert new["status"] == {"replicas": 3}
    assert new["metadata"]["generation"] == 4
    assert new["metadata"]["uid"] == "u"


@pytest.mark.parametrize(
    ("group", "plural", "part", "kept"),
    [
        ("policy", "poddisruptionbudgets", "status", ()),
        ("apps", "deployments", "status", ("labels",)),
        ("", "pods", "status", ("ownerReferences",)),
        ("", "pods", "resize", ("labels", "annotations", "finalizers", "ownerReferences")),
        ("storage.k8s.io", "volumeattachments", "status", ("labels", "annotations", "finalizers", "ownerReferences")),
    ],
)
def test_subresource_update_preserves_metadata(group: str, plural: str, part: str, kept: tuple[str, ...]) -> None:
    strategy = _kind(group, plural).strategy
    before: Tree = {"labels": {"a": "1"}, "annotations": {}, "finalizers": ["x/y"], "ownerReferences": [{"name": "o"}]}
    after: Tree = {"labels": {}, "annotations": {"b": "2"}, "finalizers": [], "ownerReferences": []}
    old: Tree = {"metadata": {"name": "a", **before}, "spec": {}}
    new: Tree = {"metadata": {"name": "a", **after}, "spec": {}, "status": {}}
    strategy.prepare_subresource(part, new, old)
    expected = {name: (before if name in kept else after)[name] for name in before}
    assert {name: new["metadata"].get(name) for name in before} == expected


def test_removing_status_is_possible() -> None:
    old = _deployment(generation=1)
    new = copy.deepcopy(old)
    del new["status"]
    DEPLOYMENTS.prepare_subresource("status", new, old)
    assert "status" not in new
    assert old["status"] == {"replicas": 1}


def test_new_pod_is_pending() -> None:
    pod: Tree = {"metadata": {"name": "a"}, "spec": {"containers": [{}]}, "status": {"phase": "Running"}}
    PODS.prepare_create(pod)
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert pod["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "1", "memory": "1"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "500m"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1"}}, {}], "Burstable"),
        ([{"limits": {"nvidia.com/gpu": "1"}}], "BestEffort"),
    ],
)
def test_quality_of_service(resources: list[Tree], expected: str) -> None:
    assert quality_of_service({"containers": [{"resources": r} for r in resources]}) == expected


def test_quality_of_service_uses_pod_level_resources() -> None:
    whole = {"limits": {"cpu": "1", "memory": "1"}}
    assert quality_of_service({"resources": whole, "containers": [{}]}) == "Guaranteed"
    assert quality_of_service({"resources": {"requests": {"cpu": "1"}}, "containers": [{}]}) == "Burstable"
    assert (
        quality_of_service({"resources": {}, "containers": [{"resources": {"requests": {"cpu": "0"}}}]}) == "BestEffort"
    )


def test_status_update_without_qos_class_keeps_it() -> None:
    old: Tree = {"metadata": {"name": "a"}, "spec": {}, "status": {"qosClass": "Burstable", "phase": "Pending"}}
    new: Tree = {"metadata": {"name": "a"}, "spec": {}, "status": {"phase": "Running"}}
    PODS.prepare_subresource("status", new, old)
    assert new["status"] == {"qosClass": "Burstable", "phase": "Running"}
    changed: Tree = {"metadata": {"name": "a"}, "spec": {}, "status": {"qosClass": "Guaranteed"}}
    PODS.prepare_subresource("status", changed, old)
    assert changed["status"] == {"qosClass": "Guaranteed"}  # which validation rejects


@pytest.mark.parametrize(
    ("spec", "status", "requested", "expected"),
    [
        ({}, {}, None, 0),
        ({}, {}, 60, 0),
        ({"nodeName": "n"}, {}, None, 30),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 5}, {}, None, 5),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 0}, {}, None, 0),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 0}, {}, 9, 9),
        ({"nodeName": "n", "terminationGracePeriodSeconds": -3}, {}, None, 1),
        ({"nodeName": "n"}, {}, 60, 60),
        ({"nodeName": "n"}, {}, 0, 0),
        ({"nodeName": "n"}, {}, -1, 1),
        ({"nodeName": "n"}, {"phase": "Succeeded"}, 60, 0),
        ({"nodeName": "n"}, {"phase": "Failed"}, None, 0),
    ],
)
def test_pod_grace_period(spec: Tree, status: Tree, requested: int | None, expected: int) -> None:
    assert PODS.graceful
    assert PODS.grace_period({"metadata": {}, "spec": spec, "status": status}, requested) == expected


def test_other_kinds_are_deleted_immediately() -> None:
    assert not DEPLOYMENTS.graceful


def test_deletion_increments_generation() -> None:
    deployment = _deployment(generation=2)
    DEPLOYMENTS.mark_deleted(deployment)
    assert deployment["metadata"]["generation"] == 3


def test_namespace_is_held_until_finalizer_lists_are_empty() -> None:
    namespace: Tree = {"metadata": {"name": "a", "finalizers": ["x/y"]}, "spec": {}}
    NAMESPACES.prepare_create(namespace)
    assert namespace["status"] == {"phase": "Active"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    NAMESPACES.mark_deleted(namespace)
    assert namespace["status"] == {"phase": "Terminating"}
    assert NAMESPACES.still_held(namespace)
    finalized: Tree = {"metadata": {"name": "a", "finalizers": ["x/y"]}, "spec": {"finalizers": []}}
    NAMESPACES.prepare_subresource("finalize", finalized, namespace)
    assert finalized["status"] == {"phase": "Terminating"}
    assert NAMESPACES.still_held(finalized)
    assert not NAMESPACES.still_held({"metadata": {}, "spec": {"finalizers": []}})
    assert NAMESPACES.still_held({"metadata": {}, "spec": {"finalizers": ["kubernetes"]}})


def test_only_finalize_changes_namespace_finalizers() -> None:
    old: Tree = {"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    new: Tree = {"metadata": {"name": "a"}, "spec": {"finalizers": []}}
    NAMESPACES.prepare_update(new, old)
    assert new == old
    assert new is not old


def test_approval_changes_only_conditions() -> None:
    strategy = _kind("certificates.k8s.io", "certificatesigningrequests").strategy
    old: Tree = {"metadata": {"name": "a"}, "spec": {"signerName": "s"}, "status": {"certificate": "x"}}
    new: Tree = {
        "metadata": {"name": "a"},
        "spec": {},
        "status": {"certificate": "y", "conditions": [{"type": "Approved"}]},
    }
    strategy.prepare_subresource("approval", new, old)
    assert new == {**old, "status": {"certificate": "x", "conditions": [{"type": "Approved"}]}}
    assert old["status"] == {"certificate": "x"}


def test_service_update_keeps_allocated_values() -> None:
    port = {"port": 80, "protocol": "TCP"}
    old: Tree = {
        "metadata": {"name": "a"},
        "spec": {
            "type": "NodePort",
            "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"],
            "ports": [{**port, "nodePort": 30001}],
        },
    }
    new: Tree = {
        "metadata": {"name": "a"},
        "spec": {"type": "NodePort", "ports": [dict(port), {"port": 81, "protocol": "TCP"}]},
    }
    SERVICES.prepare_update(new, old)
    assert new["spec"]["clusterIP"] == "10.0.0.1"
    assert new["spec"]["clusterIPs"] == ["10.0.0.1"]
    assert [p.get("nodePort") for p in new["spec"]["ports"]] == [30001, None]
    internal: Tree = {"metadata": {"name": "a"}, "spec": {"type": "ClusterIP", "ports": [{**port, "nodePort": 30001}]}}
    SERVICES.prepare_update(internal, old)
    assert internal["spec"]["ports"] == [port]
    assert old["spec"]["ports"][0]["nodePort"] == 30001


def test_job_selects_its_own_pods() -> None:
    job: Tree = {"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
    _kind("batch", "jobs").strategy.prepare_create(job)
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert job["spec"]["template"]["metadata"]["labels"] == {
        "a": "b",
        "batch.kubernetes.io/controller-uid": "u",
        "controller-uid": "u",
        "batch.kubernetes.io/job-name": "j",
        "job-name": "j",
    }
    manual: Tree = {"metadata": {"name": "j", "uid": "u"}, "spec": {"manualSelector": True, "template": {}}}
    _kind("batch", "jobs").strategy.prepare_create(manual)
    assert manual["spec"] == {"manualSelector": True, "template": {}}


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (None, ""),
        ("a=b", "a=b"),
        ({"b": "2", "a": "1"}, "a=1,b=2"),
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        (
            {
                "matchLabels": {"m": "1"},
                "matchExpressions": [
                    {"key": "z", "operator": "In", "values": ["y", "x"]},
                    {"key": "a", "operator": "DoesNotExist"},
                    {"key": "b", "operator": "Exists"},
                    {"key": "c", "operator": "NotIn", "values": ["1"]},
                ],
            },
            "!a,b,c notin (1),m=1,z in (x,y)",
        ),
    ],
)
def test_selector_as_text(selector: object, text: str) -> None:
    assert selector_text(selector) == text


def test_scale_can_be_read_and_written() -> None:
    kind = _kind("apps", "deployments")
    deployment: Tree = {
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5", "labels": {"x": "y"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"x": "y"}}},
        "status": {"replicas": 2},
    }
    scale = to_scale(deployment, kind.scale or ScalePaths())
    assert scale == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5"},
        "spec": {"replicas": 3},
        "status": {"replicas": 2, "selector": "x=y"},
    }
    scale["spec"]["replicas"] = 7
    scaled = from_scale(deployment, scale, kind.scale or ScalePaths())
    assert scaled["spec"]["replicas"] == 7
    assert deployment["spec"]["replicas"] == 3
    assert from_scale(deployment, to_scale(deployment, kind.scale or ScalePaths()), ScalePaths()) == deployment


def test_leases_can_be_created_by_update_but_need_a_version() -> None:
    leases = _kind("coordination.k8s.io", "leases").strategy
    assert leases.creates_on_update
    assert not leases.unconditional_update
    assert DEPLOYMENTS.unconditional_update
    assert not DEPLOYMENTS.creates_on_update


FOREIGN, SNAPSHOT = ({"kind": "Foo", "apiGroup": "a.io", "name": "x"},
                     {"kind": "VolumeSnapshot", "apiGroup": "snapshot.storage.k8s.io", "name": "x"})  # fmt: skip
OTHER = {"kind": "PersistentVolumeClaim", "name": "x"}
ELSEWHERE = {**OTHER, "namespace": "b"}


@pytest.mark.parametrize(("sent", "kept"), [
    ({"dataSource": FOREIGN}, {}),
    ({"dataSource": {**OTHER, "apiGroup": "a.io"}}, {}),
    ({"dataSource": {"kind": "VolumeSnapshot", "name": "x"}}, {}),
    ({"dataSource": OTHER}, {"dataSource": OTHER, "dataSourceRef": OTHER}),
    ({"dataSource": SNAPSHOT}, {"dataSource": SNAPSHOT, "dataSourceRef": SNAPSHOT}),
    ({"dataSourceRef": FOREIGN}, {"dataSource": FOREIGN, "dataSourceRef": FOREIGN}),
    ({"dataSource": FOREIGN, "dataSourceRef": FOREIGN}, {"dataSource": FOREIGN, "dataSourceRef": FOREIGN}),
    ({"dataSourceRef": ELSEWHERE}, {"dataSourceRef": ELSEWHERE}),
])  # fmt: skip
def test_claim_data_source_fields_are_synchronized(sent: Tree, kept: Tree) -> None:
    """As in kube-apiserver; an update that knows only the older field keeps the data source."""
    claims = _kind("", "persistentvolumeclaims").strategy
    claim = {"metadata": {"name": "a"}, "spec": copy.deepcopy(sent)}
    claims.prepare_create(claim)
    assert claim["spec"] == kept
    old = {"metadata": {"name": "a"}, "spec": {"dataSource": FOREIGN, "dataSourceRef": FOREIGN}, "status": {}}
    update = {"metadata": {"name": "a"}, "spec": {"dataSource": FOREIGN}, "status": {}}
    claims.prepare_update(update, old)
    assert update["spec"] == old["spec"]
