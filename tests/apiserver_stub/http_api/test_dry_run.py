"""Dry-run, rules 1 to 4."""

from typing import Any

import pytest

from apiserver_stub.request.request_info import RequestInfo

CONFIGS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
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


@pytest.mark.parametrize(("method", "url", "body", "form", "status"), WRITES)
async def test_dry_run_returns_result_and_writes_nothing(
    api: Any, method: str, url: str, body: Any, form: str, status: int
) -> None:
    """Rules 1 and 2: the object as it would be, the usual status, and nothing persisted."""
    before = await api.config("a", data={"m": "old"})
    revision = api.server.store.revision
    headers = {"content_type": f"application/{form}"} if form else {}
    answer = await api.ask(
        method, f"{url}?dryRun=All&fieldManager=me{'&force=true' if 'apply' in form else ''}", body, **headers
    )
    assert answer.status == status
    assert answer.tree["data"]["k"] == "new"
    assert api.server.store.revision == revision
    assert (await api.get(f"{CONFIGS}/a")).tree == before.tree


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


@pytest.mark.parametrize(
    ("method", "path"), [("POST", CONFIGS), ("PUT", f"{CONFIGS}/a"), ("PATCH", f"{CONFIGS}/a"), ("DELETE", CONFIGS)]
)
def test_dry_run_needs_the_same_permission(method: str, path: str) -> None:
    """Authentication, rule 2: the authorization attributes are the same."""
    assert RequestInfo.of(method, path, {"dryRun": "All"}) == RequestInfo.of(method, path, {})
