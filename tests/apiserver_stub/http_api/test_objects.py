"""Resources and their fields: object names, metadata, verbs and paths."""

import re
from typing import Any

import pytest

STORAGES = ("memory", "sqlite", pytest.param("etcd", marks=pytest.mark.needs("etcd")))
CONFIGS = "/api/v1/namespaces/default/configmaps"
NODES = "/api/v1/nodes"


async def make(api: Any, url: str, **metadata: Any) -> Any:
    return await api.post(url, {"metadata": metadata})


async def test_name_is_unique_in_namespace_and_free_after_deletion(api: Any) -> None:
    """Object names, rules 1 and 2."""
    first = await api.config("a")
    again = await make(api, CONFIGS, name="a")
    assert (again.status, again.tree["reason"]) == (409, "AlreadyExists")
    assert (await make(api, "/api/v1/namespaces/kube-system/configmaps", name="a")).status == 201
    await api.delete(f"{CONFIGS}/a")
    second = await make(api, CONFIGS, name="a")
    assert second.status == 201
    assert second.tree["metadata"]["uid"] != first.tree["metadata"]["uid"]


async def test_cluster_scoped_name_is_unique_in_the_cluster(api: Any) -> None:
    """Object names, rule 3."""
    assert [(await make(api, NODES, name="n")).status for _ in range(2)] == [201, 409]
    assert (await make(api, "/api/v1/namespaces/default/nodes", name="n")).status == 404


async def test_lists_are_limited_to_their_namespace(api: Any) -> None:
    """Object names, rule 4; Resource URI shapes."""
    await api.config("a")
    elsewhere = await make(api, "/api/v1/namespaces/kube-system/configmaps", name="b")
    assert elsewhere.tree["metadata"]["namespace"] == "kube-system"
    assert "b" not in (await api.get(CONFIGS)).names
    assert {"a", "b"} <= set((await api.get("/api/v1/configmaps")).names)
    assert (await api.get("/api/v1/namespaces/default")).tree["kind"] == "Namespace"
    assert (await make(api, "/api/v1/namespaces/nowhere/configmaps", name="a")).status == 404


async def test_object_metadata_set_by_server(api: Any) -> None:
    """Object envelope and metadata: fields that the server sets, and fields it ignores."""
    said = {"name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": None}
    made = (await make(api, CONFIGS, **said)).tree
    metadata = made["metadata"]
    assert (made["kind"], made["apiVersion"], metadata["namespace"]) == ("ConfigMap", "v1", "default")
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["creationTimestamp"] > "2001-01-01T00:00:00Z"
    assert "deletionTimestamp" not in metadata
    changed = (await api.patch(f"{CONFIGS}/a", {"data": {"k": "v"}})).tree["metadata"]
    assert changed["resourceVersion"] != metadata["resourceVersion"]
    assert {**changed, "resourceVersion": "", "managedFields": ""} == {
        **metadata,
        "resourceVersion": "",
        "managedFields": "",
    }


async def test_generated_names_are_unique(api: Any) -> None:
    """Object envelope: `generateName` gives the name a random value."""
    made = [(await make(api, CONFIGS, generateName="run-")).tree["metadata"]["name"] for _ in range(20)]
    assert len(set(made)) == 20
    assert all(re.fullmatch(r"run-[a-z0-9]{5}", name) for name in made)


async def test_finalizers_may_be_in_any_order(api: Any) -> None:
    """Object envelope: any actor may reorder the finalizers."""
    await make(api, CONFIGS, name="a", finalizers=["example.org/one", "example.org/two"])
    turned = ["example.org/two", "example.org/one"]
    patched = await api.patch(f"{CONFIGS}/a", {"metadata": {"finalizers": turned}})
    assert patched.tree["metadata"]["finalizers"] == turned


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        (CONFIGS, "ConfigMapList"),
        ("/api/v1/pods", "PodList"),
        ("/api/v1/services", "ServiceList"),
        ("/api/v1/nodes", "NodeList"),
        ("/apis/events.k8s.io/v1/events", "EventList"),
        ("/apis/apps/v1/deployments", "DeploymentList"),
    ],
)
async def test_list_metadata(api: Any, url: str, kind: str) -> None:
    """Collection envelope."""
    listed = (await api.get(url)).tree
    assert (listed["kind"], listed["apiVersion"]) == (
        kind,
        "/".join(url.split("/")[-3:-1] if "apis" in url else ["v1"]),
    )
    assert listed["metadata"]["resourceVersion"].isdecimal()
    assert listed["metadata"].get("continue", "") == ""
    assert isinstance(listed["items"], list)


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [
        ("GET", CONFIGS, 200),
        ("GET", f"{CONFIGS}/a", 200),
        ("GET", "/api/v1/configmaps", 200),
        ("GET", "/apis/apps/v1/namespaces/default/deployments", 200),
        ("GET", "/api/v1/namespaces/default/status", 200),
        ("GET", "/api/v1/watch/namespaces/default/configmaps/a?timeoutSeconds=1", 200),
        ("GET", "/api/v1/configmaps/a", 404),
        ("GET", "/api/v1/namespaces/default/dreams", 404),
        ("GET", "/apis/apps/v1beta1/deployments", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/a/status", 404),
        ("POST", "/api/v1/configmaps", 405),
        ("POST", f"{CONFIGS}/a", 405),
        ("PUT", CONFIGS, 405),
        ("PATCH", CONFIGS, 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("DELETE", "/api/v1/namespaces/default/services", 200),
        ("TRACE", CONFIGS, 405),
    ],
)
@pytest.mark.virtual
async def test_status_by_path_and_method(api: Any, method: str, url: str, status: int) -> None:
    """Verbs and Resource URI shapes: the status of paths and methods."""
    await api.config("a")
    assert (await api.ask(method, url)).status == status


async def test_put_creates_or_updates(api: Any) -> None:
    """Verbs: a PUT creates if the kind allows it; otherwise a missing object is not found."""
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    url = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
    assert (await api.put(url, lease)).status == 201
    version = (await api.get(url)).version
    lease["metadata"]["resourceVersion"] = version
    assert (await api.put(url, lease)).status == 200
    assert (await api.put(f"{CONFIGS}/nothing", {"metadata": {"name": "nothing"}})).status == 404


async def test_virtual_resource_is_not_stored(api: Any) -> None:
    """Terminology: a permission check is a POST that stores nothing."""
    url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    answer = await api.post(url, review)
    assert (answer.status, answer.tree["kind"]) == (201, "SelfSubjectAccessReview")
    assert answer.tree["status"]["allowed"] is True
    assert (await api.get(url)).status == 405


async def test_pods_of_one_template_select_by_their_own_labels(api: Any) -> None:
    """Label keys of a spread constraint use the labels of each pod, also of the third pod of one template."""
    await api.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "topologySpreadConstraints": [{**constraint, "matchLabelKeys": ["hash"]}],
    }
    values = []
    for value in ("1", "1", "1", "2", "1"):
        metadata = {"generateName": "p", "labels": {"hash": value}}
        pod = (await api.post("/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})).tree
        (merged,) = pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"]
        values.append(merged["values"])
    assert values == [["1"], ["1"], ["1"], ["2"], ["1"]]
