"""Dry-run, rules 1 to 4."""

from typing import Any

import pytest

from apiserver_stub.request.request_info import RequestInfo

CONFIGS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
PODS = "/api/v1/namespaces/default/pods"
BODY: dict[str, Any] = {"metadata": {"name": "a"}, "data": {"k": "new"}}
APPLY = {"apiVersion": "v1", "kind": "ConfigMap", **BODY}

WRITES = [
    ("POST", CONFIGS, {**BODY, "metadata": {"name": "b"}}, "", 201),
    ("PUT", f"{CONFIGS}/a", BODY, "", 200),
    ("PATCH", f"{CONFIGS}/a", {"data": {"k": "new"}}, "merge-patch+json", 200),
    ("PATCH", f"{CONFIGS}/a", {"data": {"k": "new"}}, "strategic-merge-patch+json", 200),
    ("PATCH", f"{CONFIGS}/a", [{"op": "add", "path": "/data/k", "value": "new"}], "json-patch+json", 200),
    ("PATCH", f"{CONFIGS}/a", APPLY, "apply-patch+yaml", 200),
    ("PATCH", f"{CONFIGS}/b", {**APPLY, "metadata": {"name": "b"}}, "apply-patch+yaml", 201),
]


@pytest.mark.parametrize("dry", ["dryRun", "dryRun=", "dryRun=All"])
@pytest.mark.parametrize(("method", "url", "body", "form", "status"), WRITES)
async def test_dry_run_returns_result_and_writes_nothing(
    api: Any, dry: str, method: str, url: str, body: Any, form: str, status: int
) -> None:
    """Rules 1 and 2: the object as it would be, the usual status, and nothing persisted."""
    before = await api.config("a", data={"m": "old"})
    revision = api.server.store.revision
    headers = {"content_type": f"application/{form}"} if form else {}
    answer = await api.ask(
        method, f"{url}?fieldManager=me&force=true&{dry}" if "apply" in form else f"{url}?{dry}", body, **headers
    )
    assert answer.status == status
    assert answer.tree["data"]["k"] == "new"
    assert api.server.store.revision == revision
    assert (await api.get(f"{CONFIGS}/a")).tree == before.tree


@pytest.mark.parametrize("dry", ["?dryRun=All", "?dryRun", "body"])
@pytest.mark.parametrize("url", [f"{CONFIGS}/a", CONFIGS])
async def test_delete_supports_dry_run(api: Any, dry: str, url: str) -> None:
    """Rule 1, DELETE of an object and of a collection; in the query or in the delete options."""
    await api.config("a")
    revision = api.server.store.revision
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
    answer = await api.delete(url, options) if dry == "body" else await api.delete(f"{url}{dry}")
    assert answer.status == 200
    assert api.server.store.revision == revision
    assert (await api.get(f"{CONFIGS}/a")).status == 200


@pytest.mark.parametrize("dry", ["dryRun=Some", "dryRun=all", "dryRun=true"])
async def test_other_values_are_rejected(api: Any, dry: str) -> None:
    """Rule 2: an empty value and `All` are accepted."""
    answer = await api.post(f"{CONFIGS}?{dry}", BODY)
    assert answer.status in (400, 422)
    assert (await api.get(f"{CONFIGS}/a")).status == 404


@pytest.mark.parametrize(
    ("method", "url", "body", "status"),
    [
        ("POST", CONFIGS, {"metadata": {"name": "UPPER"}}, 422),
        ("POST", CONFIGS, {"metadata": {"name": "a"}}, 409),
        ("POST", "/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}}, 404),
        ("PUT", f"{CONFIGS}/a", {"metadata": {"name": "a", "resourceVersion": "1"}}, 409),
        ("DELETE", f"{CONFIGS}/b", None, 404),
        ("DELETE", "/api/v1/namespaces/kube-system", None, 403),
    ],
)
async def test_every_stage_but_storage_runs(api: Any, method: str, url: str, body: Any, status: int) -> None:
    """Rule 1: admission, validation and conflicts reject as usual."""
    await api.config("a")
    assert (await api.ask(method, f"{url}?dryRun=All", body)).status == status


async def test_generated_values_are_returned_but_not_stored(api: Any) -> None:
    """Rule 4: names, times, uids and addresses are generated; a real request gets others."""
    body = {"metadata": {"generateName": "a-"}, "spec": {"ports": [{"port": 80}], "type": "NodePort"}}
    tried = (await api.post(f"{SERVICES}?dryRun=All", body)).tree
    assert tried["metadata"]["name"].startswith("a-")
    assert tried["metadata"]["uid"]
    assert tried["spec"]["clusterIP"]
    assert tried["spec"]["ports"][0]["nodePort"]
    again = {"metadata": {"name": "b"}, "spec": {"clusterIP": tried["spec"]["clusterIP"], "ports": [{"port": 80}]}}
    assert (await api.post(SERVICES, again)).status == 201


async def test_subresources_support_dry_run(api: Any) -> None:
    """Rule 1 on subresources: status, binding, eviction."""
    await api.post(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    revision = api.server.store.revision
    status = await api.patch(f"{PODS}/p/status?dryRun=All", {"status": {"phase": "Running"}})
    assert status.tree["status"]["phase"] == "Running"
    binding = {"metadata": {"name": "p"}, "target": {"name": "n"}}
    assert (await api.post(f"{PODS}/p/binding?dryRun=All", binding)).status == 201
    assert (await api.post(f"{PODS}/p/eviction?dryRun=All", {"metadata": {"name": "p"}})).status == 201
    assert api.server.store.revision == revision


@pytest.mark.parametrize(
    ("method", "path"), [("POST", CONFIGS), ("PUT", f"{CONFIGS}/a"), ("PATCH", f"{CONFIGS}/a"), ("DELETE", CONFIGS)]
)
def test_dry_run_needs_the_same_permission(method: str, path: str) -> None:
    """Authentication, rule 2: the authorization attributes are the same."""
    assert RequestInfo.of(method, path, {"dryRun": "All"}) == RequestInfo.of(method, path, {})
