"""Update operations, rules 1 to 5."""

import asyncio
import json
from typing import Any

import pytest

STORAGES = ("memory", "workers", pytest.param("etcd", marks=pytest.mark.needs("etcd")))
CONFIGS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def web(**more: Any) -> dict[str, Any]:
    labels = {"app": "web"}
    containers = [{"name": "web", "image": "web:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": labels}, "template": template, **more}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


async def test_put_replaces_object_and_stale_put_conflicts(api: Any) -> None:
    """Rule 1 and Errors: 409 Conflict for a stale resourceVersion."""
    read = (await api.config("a", data={"k": "1", "m": "2"})).tree
    await api.patch(f"{CONFIGS}/a", {"data": {"k": "3"}})
    stale = await api.put(f"{CONFIGS}/a", read)
    assert (stale.status, stale.tree["reason"]) == (409, "Conflict")
    read = (await api.get(f"{CONFIGS}/a")).tree
    read["data"] = {"n": "4"}
    assert (await api.put(f"{CONFIGS}/a", read)).tree["data"] == {"n": "4"}


@pytest.mark.parametrize(
    ("form", "patch"),
    [
        ("json-patch+json", [{"op": "replace", "path": "/data/k", "value": "2"}]),
        ("merge-patch+json", {"data": {"k": "2"}}),
        ("strategic-merge-patch+json", {"data": {"k": "2"}}),
    ],
)
async def test_each_patch_type_changes_only_named_fields(api: Any, form: str, patch: Any) -> None:
    """Rule 2 and Headers and media types: three patch forms; one of a missing object is not found."""
    await api.config("a", data={"k": "1", "m": "1"})
    assert (await api.patch(f"{CONFIGS}/a", patch, form)).tree["data"] == {"k": "2", "m": "1"}
    assert (await api.patch(f"{CONFIGS}/b", patch, form)).status == 404


async def test_apply_creates_or_patches(api: Any) -> None:
    """Rule 2: server-side apply is a create when the object does not exist, a patch otherwise."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}
    url = f"{CONFIGS}/a?fieldManager=me"
    assert [(await api.patch(url, body, "apply-patch+yaml")).status for _ in range(2)] == [201, 200]
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: '2'\n"
    assert (await api.patch(url, text, "apply-patch+yaml")).tree["data"] == {"k": "2"}


async def test_failed_json_patch_test_changes_nothing(api: Any) -> None:
    """Rule 3: a `test` that does not hold makes the operation fail, and nothing is changed."""
    before = await api.config("a", data={"k": "1"})
    patch = [{"op": "replace", "path": "/data/k", "value": "2"}, {"op": "test", "path": "/data/k", "value": "1"}]
    assert (await api.patch(f"{CONFIGS}/a", patch, "json-patch+json")).status == 422
    assert (await api.get(f"{CONFIGS}/a")).tree == before.tree
    assert (await api.patch(f"{CONFIGS}/a", patch[::-1], "json-patch+json")).status == 200


@pytest.mark.parametrize("form", ["merge-patch+json", "strategic-merge-patch+json"])
async def test_patch_can_be_conditional(api: Any, form: str) -> None:
    """Rule 4: on the resourceVersion it names."""
    old = (await api.config("a", data={"k": "1"})).version
    await api.patch(f"{CONFIGS}/a", {"data": {"k": "2"}})
    patch = {"metadata": {"resourceVersion": old}, "data": {"k": "3"}}
    assert (await api.patch(f"{CONFIGS}/a", patch, form)).status == 409
    patch["metadata"]["resourceVersion"] = (await api.get(f"{CONFIGS}/a")).version
    assert (await api.patch(f"{CONFIGS}/a", patch, form)).status == 200


@pytest.mark.virtual
async def test_concurrent_writers_with_retries_lose_no_update(api: Any) -> None:
    """Rule 4: with retries on conflict, every writer's change is there in the end."""
    await api.config("a")

    async def add(name: str) -> None:
        while True:
            tree = (await api.get(f"{CONFIGS}/a")).tree
            await asyncio.sleep(0)
            tree["data"][name] = "here"
            if (await api.put(f"{CONFIGS}/a", tree)).status == 200:
                return

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(add(f"w{number}"))
    assert (await api.get(f"{CONFIGS}/a")).tree["data"].keys() == {"k", *(f"w{number}" for number in range(20))}


async def test_apply_conflicts_unless_forced(api: Any) -> None:
    """Rule 5: managed fields are tracked, conflicts detected, and overridden by `force`."""
    url = f"{DEPLOYMENTS}/web?fieldManager="
    assert (await api.patch(f"{url}one", web(replicas=1), "apply-patch+yaml")).status == 201
    refused = await api.patch(f"{url}two", web(replicas=2), "apply-patch+yaml")
    assert (refused.status, refused.tree["reason"]) == (409, "Conflict")
    cause = refused.tree["details"]["causes"][0]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".spec.replicas")
    assert 'conflict with "one"' in cause["message"]
    forced = await api.patch(f"{url}two&force=true", web(replicas=2), "apply-patch+yaml")
    assert forced.tree["spec"]["replicas"] == 2
    owners = {
        entry["manager"]
        for entry in forced.tree["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    }
    assert owners == {"two"}


async def test_apply_removes_fields_left_out(api: Any) -> None:
    """Rule 5: a field that its only owner leaves out is removed; co-owned fields stay."""
    url = f"{CONFIGS}/a?fieldManager="
    say = lambda **data: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}  # noqa: E731
    await api.patch(f"{url}one", say(mine="1", ours="1"), "apply-patch+yaml")
    await api.patch(f"{url}two", say(ours="1", yours="2"), "apply-patch+yaml")
    left = await api.patch(f"{url}one", say(), "apply-patch+yaml")
    assert left.tree["data"] == {"ours": "1", "yours": "2"}


async def test_other_writes_record_managed_fields(api: Any) -> None:
    """Rule 5: managed fields are recorded for create, update and patch; the client names the manager."""
    made = await api.post(f"{CONFIGS}?fieldManager=maker", {"metadata": {"name": "a"}, "data": {"k": "1"}})
    (entry,) = made.tree["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("maker", "Update", "v1")
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}}
    patched = await api.patch(f"{CONFIGS}/a", {"data": {"k": "2"}}, user_agent="kubectl/v1.36 (linux)")
    owners = {entry["manager"]: entry["fieldsV1"] for entry in patched.tree["metadata"]["managedFields"]}
    assert owners == {"maker": {"f:data": {}}, "kubectl": {"f:data": {"f:k": {}}}}


async def test_apply_needs_a_manager_and_a_name(api: Any) -> None:
    """Rule 5: required parameters of an apply."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    assert (await api.patch(f"{CONFIGS}/a", body, "apply-patch+yaml")).status == 422
    assert (await api.patch(f"{CONFIGS}/b?fieldManager=me", body, "apply-patch+yaml")).status == 400
    assert (await api.patch(f"{CONFIGS}/a?fieldManager=me", {"data": {}}, "apply-patch+yaml")).status == 400


@pytest.mark.parametrize(
    ("patch", "names"),
    [
        ({"containers": [{"name": "more", "image": "m"}]}, ["more", "web"]),
        ({"containers": [{"name": "web", "$patch": "delete"}, {"name": "only", "image": "o"}]}, ["only"]),
        ({"containers": [{"$patch": "replace"}, {"name": "new", "image": "n"}]}, ["new"]),
        (
            {
                "$setElementOrder/containers": [{"name": "web"}, {"name": "more"}],
                "containers": [{"name": "more", "image": "m"}],
            },
            ["web", "more"],
        ),
    ],
)
async def test_strategic_merge_uses_merge_keys(api: Any, patch: Any, names: list[str]) -> None:
    """Headers and media types: strategic merge, with its directives."""
    await api.post(DEPLOYMENTS, web())
    body = {"spec": {"template": {"spec": patch}}}
    patched = await api.patch(f"{DEPLOYMENTS}/web", body, "strategic-merge-patch+json")
    assert sorted(c["name"] for c in patched.tree["spec"]["template"]["spec"]["containers"]) == sorted(names)


@pytest.mark.parametrize("form", ["json", "json-patch+yaml", "x-yaml", "strategic-merge-patch+cbor"])
async def test_other_patch_types_are_rejected(api: Any, form: str) -> None:
    """Headers and media types: other types get 415, which lists the supported ones."""
    await api.config("a")
    answer = await api.patch(f"{CONFIGS}/a", {}, form)
    assert (answer.status, answer.tree["reason"]) == (415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in answer.tree["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"text"', b"null", json.dumps({"metadata": {"name": "b"}}).encode()]
)
@pytest.mark.parametrize("form", ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json"])
async def test_malformed_patch_changes_nothing(api: Any, form: str, body: bytes) -> None:
    """Errors: bad input is a 4xx, and the object stays as it is (an empty list of operations does nothing)."""
    before = await api.config("a", data={"k": "1"})
    status = (await api.patch(f"{CONFIGS}/a", body, form)).status
    assert status in (400, 422) or (form, body) == ("json-patch+json", b"[]")
    assert (await api.get(f"{CONFIGS}/a")).tree == before.tree


async def test_daemon_set_template_generation_from_client_is_reset(api: Any) -> None:
    """Only the server counts the templates of a daemon set, even if a client changes the annotation."""
    daemon_sets, annotation = "/apis/apps/v1/namespaces/default/daemonsets", "deprecated.daemonset.template.generation"
    made = {**web(), "kind": "DaemonSet"}
    assert (await api.post(daemon_sets, made)).tree["metadata"]["annotations"] == {annotation: "1"}
    kept = {annotation: "1", "note": "a"}
    for text in ("2", "7", "8", "9"):
        patch = {"metadata": {"labels": {"round": text}, "annotations": {annotation: text, "note": "a"}}}
        assert (await api.patch(f"{daemon_sets}/web", patch)).tree["metadata"]["annotations"] == kept
    for text in ("3", "4", "5"):
        applied = {**made, "metadata": {"name": "web", "annotations": {annotation: text}}}
        url = f"{daemon_sets}/web?fieldManager=ci&force=true"
        assert (await api.patch(url, applied, "apply-patch+yaml")).tree["metadata"]["annotations"] == kept
