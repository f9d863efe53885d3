"""Lists that Go writes as null when unset: objects with them can be written and read in every form."""

from typing import Any

import pytest

Tree = dict[str, Any]

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
MEDIA = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf", TABLE)
CORE, DEFAULT = "/api/v1/namespaces/default", "namespaces/default"
DEVICES = "/apis/resource.k8s.io/v1"
SUBJECT = {"kind": "Group", "group": {"name": "g"}}
ABOUT = {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"], "clusterScope": True}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
SCALED = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 2}

# By collection: objects, and the path of the null.
OBJECTS: list[tuple[str, Tree, str]] = [
    (f"/apis/discovery.k8s.io/v1/{DEFAULT}/endpointslices", {"addressType": "IPv4"}, "ports"),
    (f"/apis/discovery.k8s.io/v1/{DEFAULT}/endpointslices", {"addressType": "IPv4"}, "endpoints"),
    (f"/apis/rbac.authorization.k8s.io/v1/{DEFAULT}/roles", {}, "rules"),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", {}, "rules"),
    ("/apis/storage.k8s.io/v1/csinodes", {"spec": {}}, "spec.drivers"),
    ("/apis/storage.k8s.io/v1/csinodes", {"spec": {"drivers": [{"name": "d", "nodeID": "n"}]}},
     "spec.drivers.0.topologyKeys"),
    (f"{CORE}/limitranges", {"spec": {}}, "spec.limits"),
    (f"{CORE}/persistentvolumeclaims",
     {"spec": {**CLAIM, "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}}}, "spec.dataSource.apiGroup"),
    ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
     {"spec": {"priorityLevelConfiguration": {"name": "exempt"},
               "rules": [{"subjects": [SUBJECT], "resourceRules": [ABOUT]}]}},
     "spec.rules.0.resourceRules.0.namespaces"),
    (f"{DEVICES}/{DEFAULT}/resourceclaims", {"spec": {}}, "spec.devices.requests"),
    (f"{DEVICES}/{DEFAULT}/resourceclaimtemplates", {"spec": {"spec": {}}}, "spec.spec.devices.requests"),
    (f"/apis/autoscaling/v2/{DEFAULT}/horizontalpodautoscalers", {"spec": SCALED}, "status.currentMetrics"),
]  # fmt: skip


@pytest.mark.parametrize(("collection", "tree", "path"), OBJECTS, ids=lambda part: part if type(part) is str else "")
async def test_null_list_can_be_written_and_read_in_every_form(
    api: Any, collection: str, tree: Tree, path: str
) -> None:
    url = f"{collection}/a"
    made = await api.post(collection, {"metadata": {"name": "a"}, **tree})
    assert (made.status, value_at(made.tree, path)) == (201, None), made.tree
    for media in MEDIA:
        for shown in (url, collection):
            assert (await api.get(shown, accept=media)).status == 200, (shown, media)
    assert (await api.put(url, made.tree)).tree == made.tree
    for form in ("merge-patch+json", "strategic-merge-patch+json"):
        patched = await api.patch(url, {"metadata": {"labels": {"form": form[:5]}}}, form)
        assert (patched.status, value_at(patched.tree, path)) == (200, None), patched.tree
    applied = {"apiVersion": made.tree["apiVersion"], "kind": made.tree["kind"], "metadata": {"name": "a"}, **tree}
    answer = await api.patch(f"{url}?fieldManager=one&force=true", applied, "apply-patch+yaml")
    assert (answer.status, value_at(answer.tree, path)) == (200, None), answer.tree
    assert (await api.delete(url)).status == 200


async def test_limit_range_without_limits_limits_nothing(api: Any) -> None:
    await api.post(f"{CORE}/limitranges", {"metadata": {"name": "a"}, "spec": {}})
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert (await api.post(f"{CORE}/pods", pod)).status == 201


def value_at(tree: Any, path: str) -> Any:
    """The value at a dotted path."""
    for step in path.split("."):
        tree = tree[int(step) if step.isdecimal() else step]
    return tree
