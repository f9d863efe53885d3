"""Updates and patches: preconditions, server-set fields, and unchanged objects."""

import asyncio
import copy
import json
from typing import Any

import pytest

from apiserver_stub.kinds.schema.schema import ANYTHING
from apiserver_stub.verbs.patch import Patch
from controller_manager.common.api import errors

CONFIGS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def new_deployment(api) -> dict[str, Any]:
    labels = {"app": "a"}
    containers = [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }
    made: dict[str, Any] = (await api.post(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})).tree
    return made


async def test_update_replaces_object_and_increments_generation(api) -> None:
    made = (await api.config("a", labels={"x": "1"})).tree
    wanted = copy.deepcopy(made) | {"data": {"k": "new"}}
    del wanted["metadata"]["labels"]
    changed = (await api.put(f"{CONFIGS}/a", wanted)).tree
    assert changed["data"] == {"k": "new"}
    assert "labels" not in changed["metadata"]
    assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]


async def test_stale_update_is_a_conflict(api) -> None:
    made = (await api.config("a")).tree
    await api.put(f"{CONFIGS}/a", made | {"data": {"k": "1"}})
    with pytest.raises(errors.Conflict) as caught:
        await api.put(f"{CONFIGS}/a", made | {"data": {"k": "2"}})
    assert caught.value.message == f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'
    for form in ("merge-patch+json", "strategic-merge-patch+json"):
        with pytest.raises(errors.Conflict):
            await api.patch(
                f"{CONFIGS}/a", {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}, form
            )
    newest = await api.get(f"{CONFIGS}/a")
    assert newest.tree["data"] == {"k": "1"}
    patch = {"metadata": {"resourceVersion": newest.version}, "data": {"k": "3"}}
    assert (await api.patch(f"{CONFIGS}/a", patch)).tree["data"] == {"k": "3"}


@pytest.mark.parametrize("version", [None, "", "0"])
async def test_update_without_version_is_unconditional(api, version: str | None) -> None:
    made = (await api.config("a")).tree
    metadata = {"name": "a"} if version is None else {"name": "a", "resourceVersion": version}
    changed = (await api.put(f"{CONFIGS}/a", {"metadata": metadata, "data": {"k": "new"}})).tree
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    assert changed["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


async def test_some_kinds_require_a_resource_version(api) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    await api.post(leases, {"metadata": {"name": "a"}})
    with pytest.raises(errors.Invalid, match="resourceVersion"):
        await api.put(f"{leases}/a", {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}})


async def test_unchanged_update_writes_nothing(api) -> None:
    made = (await api.config("a")).tree
    before = api.store.revision
    assert (await api.put(f"{CONFIGS}/a", made)).tree == made
    assert (await api.patch(f"{CONFIGS}/a", {})).tree == made
    assert (await api.patch(f"{CONFIGS}/a", {"data": {"k": "a"}})).tree == made
    assert (await api.patch(f"{CONFIGS}/a", [], "json-patch+json")).tree == made
    assert api.store.revision == before


async def test_other_uid_is_a_conflict(api) -> None:
    made = (await api.config("a")).tree
    other = copy.deepcopy(made)
    other["metadata"]["uid"] = "11111111-1111-4111-8111-111111111111"
    with pytest.raises(errors.Conflict, match="Precondition failed: UID in precondition: 11111111"):
        await api.put(f"{CONFIGS}/a", other)


@pytest.mark.parametrize("name", ["b", ""])
async def test_name_must_match_the_url(api, name: str) -> None:
    await api.config("a")
    with pytest.raises(errors.BadRequest, match="does not match the name on the URL"):
        await api.put(f"{CONFIGS}/a", {"metadata": {"name": name}})


@pytest.mark.parametrize(
    ("form", "patch"),
    [
        ("merge-patch+json", {"metadata": {"name": "b"}}),
        ("merge-patch+json", {"metadata": {"name": None}}),
        ("merge-patch+json", {"metadata": {"namespace": "other"}}),
        ("merge-patch+json", {"metadata": {"uid": "11111111-1111-4111-8111-111111111111"}}),
        ("strategic-merge-patch+json", {"metadata": {"name": "b"}}),
        ("json-patch+json", [{"op": "replace", "path": "/metadata/name", "value": "b"}]),
        ("json-patch+json", [{"op": "remove", "path": "/metadata/name"}]),
    ],
)
async def test_patch_cannot_change_identity(api, form: str, patch: Any) -> None:
    made = (await api.config("a")).tree
    with pytest.raises(errors.Invalid if "uid" in str(patch) else errors.BadRequest):
        await api.patch(f"{CONFIGS}/a", patch, form)
    assert (await api.get(f"{CONFIGS}/a")).tree == made


SERVERS = {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7, "selfLink": "/a"}


async def test_server_set_metadata_is_ignored(api) -> None:
    made = (
        await api.post(CONFIGS, {"metadata": {"name": "a", **SERVERS, "deletionTimestamp": "2001-01-01T00:00:00Z"}})
    ).tree
    assert made["metadata"].keys() & {"generation", "selfLink", "deletionTimestamp"} == set()
    assert made["metadata"]["creationTimestamp"] > "2020"
    assert (await api.put(f"{CONFIGS}/a", {"metadata": {"name": "a", **SERVERS}})).tree == made
    assert (await api.patch(f"{CONFIGS}/a", {"metadata": SERVERS})).tree == made
    with pytest.raises(errors.Invalid, match="deletionTimestamp"):
        await api.patch(f"{CONFIGS}/a", {"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}})


async def test_cluster_scoped_objects_drop_the_namespace(api) -> None:
    made = (await api.post("/api/v1/nodes", {"metadata": {"name": "n", "namespace": "other"}})).tree
    put = (await api.put("/api/v1/nodes/n", {"metadata": {"name": "n", "namespace": "default"}, "spec": {}})).tree
    status = (await api.put("/api/v1/nodes/n/status", {"metadata": {"name": "n", "namespace": "x"}, "status": {}})).tree
    assert [tree["metadata"].get("namespace") for tree in (made, put, status)] == [None, None, None]


@pytest.mark.parametrize(
    ("patch", "merged", "strategic"),
    [
        ({"kind": "Secret"}, errors.Invalid, None),
        ({"apiVersion": "v2"}, errors.Invalid, None),
        ({"kind": None}, None, None),
        ({"metadata": None}, errors.BadRequest, errors.BadRequest),
        ({"metadata": "x"}, errors.Invalid, errors.Invalid),
    ],
)
async def test_patch_cannot_remove_type_or_metadata(api, patch: Any, merged: Any, strategic: Any) -> None:
    """A removed type is restored; a strategic merge patch cannot set another one."""
    made = (await api.config("a")).tree
    for form, refusal in (("merge-patch+json", merged), ("strategic-merge-patch+json", strategic)):
        if refusal is None:
            assert (await api.patch(f"{CONFIGS}/a", patch, form)).tree == made
            continue
        with pytest.raises(refusal):
            await api.patch(f"{CONFIGS}/a", patch, form)


async def test_update_of_missing_object_is_not_found(api) -> None:
    with pytest.raises(errors.NotFound):
        await api.put(f"{CONFIGS}/a", {"metadata": {"name": "a"}})
    with pytest.raises(errors.NotFound):
        await api.patch(f"{CONFIGS}/a", {})


async def test_put_creates_if_the_kind_allows_it(api) -> None:
    endpoints = "/api/v1/namespaces/default/endpoints"
    answer = await api.put(f"{endpoints}/a", {"metadata": {"name": "a"}})
    assert (answer.status, answer.tree) == (201, (await api.get(f"{endpoints}/a")).tree)
    assert (await api.put(f"{endpoints}/b", {"metadata": {"name": "b", "resourceVersion": "5"}})).status == 201
    with pytest.raises(errors.Conflict):
        await api.put(f"{endpoints}/c", {"metadata": {"name": "c", "uid": "x"}})
    assert (await api.put(f"{endpoints}/a", {"metadata": {"name": "a"}})).status == 200


async def test_three_patch_types_are_applied(api) -> None:
    await new_deployment(api)
    url = f"{DEPLOYMENTS}/d"
    strategic = {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "new"}]}}}}
    changed = (await api.patch(url, strategic, "strategic-merge-patch+json")).tree
    images = [c["image"] for c in changed["spec"]["template"]["spec"]["containers"]]
    assert (sorted(images), changed["metadata"]["generation"]) == (["i", "new"], 2)
    changed = (await api.patch(url, {"metadata": {"labels": {"a": "b"}}}, "merge-patch+json")).tree
    assert (changed["metadata"]["labels"], changed["metadata"]["generation"]) == ({"a": "b"}, 2)
    operations = [
        {"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/replicas", "value": 3},
    ]
    changed = (await api.patch(url, operations, "json-patch+json")).tree
    assert (changed["spec"]["replicas"], changed["metadata"]["generation"]) == (3, 3)
    with pytest.raises(errors.Invalid):
        await api.patch(url, operations[::-1], "json-patch+json")
    assert (await api.get(url)).tree == changed


@pytest.mark.parametrize("form", ["json", "yaml", "json-patch+yaml", "strategic-merge-patch+cbor"])
async def test_other_patch_types_are_unsupported(api, form: str) -> None:
    await api.config("a")
    with pytest.raises(errors.UnsupportedMediaType, match="application/merge-patch"):
        await api.patch(f"{CONFIGS}/a", {}, form)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"null", b'{"metadata":{"name":"b"}}'])
@pytest.mark.parametrize("form", ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json"])
async def test_malformed_patch_changes_nothing(api, form: str, body: bytes) -> None:
    made = (await api.config("a")).tree
    if (form, body) == ("json-patch+json", b"[]"):
        assert (await api.patch(f"{CONFIGS}/a", body, form)).tree == made
        return
    with pytest.raises(errors.BadRequest):
        await api.patch(f"{CONFIGS}/a", body, form)
    assert (await api.get(f"{CONFIGS}/a")).tree == made


async def test_patched_objects_are_validated(api) -> None:
    await new_deployment(api)
    url = f"{DEPLOYMENTS}/d"
    with pytest.raises(errors.Invalid, match="expected integer") as refused:
        await api.patch(url, {"spec": {"replicas": "three"}})
    assert [(cause.reason, cause.field) for cause in refused.value.details.causes] == [("FieldValueInvalid", "patch")]
    with pytest.raises(errors.Invalid, match="replicas"):
        await api.patch(url, {"spec": {"replicas": -3}})
    with pytest.raises(errors.Invalid, match="strict decoding error"):
        await api.patch(f"{url}?fieldValidation=Strict", {"spec": {"foo": 1}})
    answer = await api.patch(url, {"spec": {"foo": 1}})
    assert "spec.foo" in answer.headers["warning"]
    assert "foo" not in answer.tree["spec"]


async def test_patch_cannot_exceed_maximum_depth(api) -> None:
    deep = json.loads("[" * 190 + "]" * 190)
    headers = {"content-type": "application/json-patch+json"}
    operation = {"op": "add", "path": "/a/b/-", "value": deep}
    patch = Patch(api.call("PATCH", f"{CONFIGS}/a", [operation], headers))
    assert patch.apply({"a": {"b": []}}, ANYTHING)
    with pytest.raises(errors.BadRequest, match="200 levels"):
        patch.apply({"a": {"b": [], "c": json.loads("[" * 199 + "]" * 199)}}, ANYTHING)


async def test_concurrent_patches_all_apply(api) -> None:
    await api.config("a")
    async with asyncio.TaskGroup() as group:
        for n in range(40):
            group.create_task(api.patch(f"{CONFIGS}/a", {"data": {f"k{n}": "x"}}))
    assert len((await api.get(f"{CONFIGS}/a")).tree["data"]) == 41


async def test_concurrent_updates_of_one_version_apply_once(api) -> None:
    made = (await api.config("a")).tree

    async def put(n: int) -> int:
        try:
            await api.put(f"{CONFIGS}/a", made | {"data": {"k": str(n)}})
        except errors.Conflict:
            return 0
        return 1

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(put(n)) for n in range(20)]
    assert sum(task.result() for task in tasks) == 1


async def test_status_changes_only_through_its_subresource(api) -> None:
    made = await new_deployment(api)
    url = f"{DEPLOYMENTS}/d"
    wanted = made | {"status": {"replicas": 5}}
    assert (await api.put(url, wanted)).tree == made
    changed = (await api.put(f"{url}/status", wanted | {"spec": {**made["spec"], "replicas": 9}})).tree
    assert (changed["status"]["replicas"], changed["spec"]) == (5, made["spec"])
    assert changed["metadata"]["generation"] == made["metadata"]["generation"]
    changed = (await api.patch(f"{url}/status", {"status": {"readyReplicas": 4}, "spec": {"replicas": 7}})).tree
    assert (changed["status"]["readyReplicas"], changed["spec"]["replicas"]) == (4, 1)
    assert (await api.get(f"{url}/status")).tree == changed
    with pytest.raises(errors.Conflict):
        await api.put(f"{url}/status", wanted)
