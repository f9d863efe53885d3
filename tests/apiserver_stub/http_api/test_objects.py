"""Resources and their fields: object names, metadata, verbs and paths."""

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
