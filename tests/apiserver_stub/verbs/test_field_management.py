"""Managed fields through the verbs: recorded owners, and when they change."""

import asyncio
import copy
from typing import Any

import pytest

from controller_manager.common.api import errors

Tree = dict[str, Any]

CONFIGS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def config(data: Any = None, **metadata: Any) -> Tree:
    tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
    return tree if data is None else {**tree, "data": data}


async def test_every_writer_owns_what_it_writes(api, deployment, owners) -> None:
    """API concepts, Update operations, rule 5: managed fields are tracked for every writer."""
    made = (await api.post(f"{DEPLOYMENTS}?fieldManager=maker", deployment(replicas=1))).tree
    assert ".spec.replicas" in owners(made)["maker", "Update", ""]
    assert not [path for path in owners(made)["maker", "Update", ""] if path.startswith((".status", ".metadata.name"))]
    await api.patch(f"{DEPLOYMENTS}/d", {"metadata": {"labels": {"x": "y"}}}, user_agent="kubectl/v1.36.0 (linux)")
    await api.patch(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 1}}, user_agent="controller")
    scale = {"metadata": {"name": "d"}, "spec": {"replicas": 3}}
    await api.put(f"{DEPLOYMENTS}/d/scale?fieldManager=scaler", scale)
    found = owners((await api.get(f"{DEPLOYMENTS}/d")).tree)
    assert ".spec.replicas" not in found.pop(("maker", "Update", ""))
    assert found == {
        ("kubectl", "Update", ""): [".metadata.labels", ".metadata.labels.x"],
        ("controller", "Update", "status"): [".status.replicas"],
        ("scaler", "Update", "scale"): [".spec.replicas"],
    }


async def test_unchanged_write_records_nothing(api) -> None:
    made = (await api.config("a")).tree
    assert (await api.patch(f"{CONFIGS}/a?fieldManager=other", {"data": {"k": "a"}})).tree == made


@pytest.mark.virtual
async def test_times_change_only_with_fields(api) -> None:
    made = (await api.config("a")).tree
    (first,) = made["metadata"]["managedFields"]
    await asyncio.sleep(60)
    changed = (await api.patch(f"{CONFIGS}/a", {"data": {"m": "2"}})).tree
    (second,) = changed["metadata"]["managedFields"]
    assert first["time"] < second["time"]
    await asyncio.sleep(60)
    third = (await api.patch(f"{CONFIGS}/a?fieldManager=other", {"data": {"n": "3"}})).tree
    assert next(e["time"] for e in third["metadata"]["managedFields"]) == second["time"]
    removed = (await api.patch(f"{CONFIGS}/a", {"data": {"n": None}})).tree
    assert removed["metadata"]["managedFields"] == [second]


@pytest.mark.parametrize(
    ("agent", "manager"),
    [("kubectl/v1.36 (linux/amd64)", "kubectl"), ("", "unknown"), ("a\x07b", "ab"), ("x" * 200, "x" * 128),
     ("é" * 100, "é" * 64), ("/1", "unknown")],
)  # fmt: skip
async def test_manager_defaults_to_user_agent(api, agent: str, manager: str) -> None:
    made = (await api.post(CONFIGS, config({"k": "1"}), user_agent=agent)).tree
    assert [e["manager"] for e in made["metadata"]["managedFields"]] == [manager]


@pytest.mark.parametrize(
    ("manager", "why"),
    [("x" * 129, "Too long: may not be more than 128 bytes"), ("a\x01", r"U\+0001 \(at position 1\)")],
)
async def test_manager_names_are_validated(api, apply, manager: str, why: str) -> None:
    with pytest.raises(errors.Invalid, match=rf"^CreateOptions\.meta\.k8s\.io .*fieldManager: .*{why}"):
        await api.post(f"{CONFIGS}?fieldManager={manager}", config())
    await api.config("a")
    with pytest.raises(errors.Invalid, match=r"^UpdateOptions\.meta\.k8s\.io"):
        await api.put(f"{CONFIGS}/a?fieldManager={manager}", config())
    with pytest.raises(errors.Invalid, match=r"^PatchOptions\.meta\.k8s\.io"):
        await apply(f"{CONFIGS}/a", config(), manager)


@pytest.mark.parametrize("sent", [[], [{}]])
@pytest.mark.parametrize("verb", ["PUT", "merge-patch+json", "json-patch+json"])
async def test_empty_managed_fields_reset_ownership(api, apply, sent: Any, verb: str) -> None:
    made = (await apply(f"{CONFIGS}/a", config({"k": "1"}))).tree
    if verb == "PUT":
        made["metadata"]["managedFields"] = sent
        cleared = (await api.put(f"{CONFIGS}/a", made)).tree
    else:
        operations = [{"op": "replace", "path": "/metadata/managedFields", "value": sent}]
        patch = operations if verb == "json-patch+json" else {"metadata": {"managedFields": sent}}
        cleared = (await api.patch(f"{CONFIGS}/a", patch, verb)).tree
    assert "managedFields" not in cleared["metadata"]
    later = (await api.patch(f"{CONFIGS}/a", {"data": {"k": "2"}})).tree
    assert "managedFields" not in later["metadata"]
    with pytest.raises(errors.Conflict, match="before-first-apply"):
        await apply(f"{CONFIGS}/a", config({"k": "3"}))


async def test_first_apply_leaves_reset_fields_unowned(api, apply, deployment, owners) -> None:
    """`before-first-apply` owns the fields that the request may write: without the status, or the status alone."""
    made = (await api.post(DEPLOYMENTS, deployment())).tree
    await api.put(f"{DEPLOYMENTS}/d/status", {**made, "status": {"replicas": 1}})
    before = "before-first-apply"
    for part, written in (("", ".spec"), ("/status", ".status")):
        await api.patch(f"{DEPLOYMENTS}/d", {"metadata": {"managedFields": [{}]}})
        config = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
        found = owners((await apply(f"{DEPLOYMENTS}/d{part}", config)).tree)
        (owned,) = [fields for (manager, *_), fields in found.items() if manager == before]
        assert {path[: len(written)] for path in owned} == {written}
        assert (before, "Update", part[1:]) in found


@pytest.mark.parametrize("record", ["left out", "null", "as read", "nonsense"])
async def test_unchanged_managed_fields_are_preserved(api, apply, record: str) -> None:
    made = (await apply(f"{CONFIGS}/a", config({"k": "1"}))).tree
    kept = made["metadata"]["managedFields"]
    sent: dict[str, Any] = {"null": None, "as read": kept, "nonsense": [{"manager": "x", "operation": "Guess"}]}
    wanted = copy.deepcopy(made)
    wanted["metadata"].pop("managedFields")
    if record in sent:
        wanted["metadata"]["managedFields"] = sent[record]
    assert (await api.put(f"{CONFIGS}/a", wanted)).tree == made


async def test_client_may_write_managed_fields(api, apply) -> None:
    """As kubectl does to migrate client-side applied fields to server-side apply."""
    made = (await apply(f"{CONFIGS}/a", config({"k": "1"}))).tree
    (entry,) = made["metadata"]["managedFields"]
    renamed = [{**entry, "manager": "other"}]
    changed = (await api.patch(f"{CONFIGS}/a", {"metadata": {"managedFields": renamed}})).tree
    assert changed["metadata"]["managedFields"] == renamed
    assert (await apply(f"{CONFIGS}/a", config(), "other")).tree.get("data") is None


async def test_subresource_update_ignores_sent_managed_fields(api, apply, deployment, owners) -> None:
    made = (await apply(f"{DEPLOYMENTS}/d", deployment())).tree
    wanted = {**made, "status": {"replicas": 1}, "metadata": {**made["metadata"], "managedFields": []}}
    changed = (await api.put(f"{DEPLOYMENTS}/d/status?fieldManager=c", wanted)).tree
    assert owners(changed).keys() == {("one", "Apply", ""), ("c", "Update", "status")}


def _entry(operation: str, fields: Tree, version: str = "apps/v1", manager: str = "x", **more: Any) -> Tree:
    return {
        "manager": manager, "operation": operation, "apiVersion": version, "time": "2020-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields, **more,
    }  # fmt: skip


# The managed fields of a new object that kube-apiserver preserves; the creator owns all fields of the object.
@pytest.mark.parametrize(
    ("brought", "kept"),
    [
        ([("Update", {"f:spec": {"f:replicas": {}}})], []),
        ([("Apply", {"f:spec": {"f:replicas": {}, "f:paused": {}}})], [("Apply", {"f:spec": {"f:paused": {}}})]),
        ([("Update", {"f:spec": {"f:paused": {}}})], [("Update", {"f:spec": {"f:paused": {}}})]),
        ([("Apply", {"f:spec": {"f:paused": {}}}, "apps/v1beta9")], []),
        ([("Apply", {"f:spec": {"f:paused": {}}}), ("Other", {})], []),
        ([("Update", {"strange": {}})], []),
    ],
)
async def test_new_object_keeps_owners_of_absent_fields(api, deployment, brought: list[Any], kept: list[Any]) -> None:
    tree = deployment(replicas=1)
    plain = (await api.post(f"{DEPLOYMENTS}?dryRun=All&fieldManager=maker", tree)).tree["metadata"]["managedFields"]
    tree["metadata"]["managedFields"] = [_entry(*one) for one in brought]
    made = (await api.post(f"{DEPLOYMENTS}?fieldManager=maker", tree)).tree
    found = made["metadata"]["managedFields"]
    assert [entry for entry in found if entry["manager"] == "x"] == [_entry(*one) for one in kept]
    (own,) = [entry for entry in found if entry["manager"] == "maker"]
    assert own["fieldsV1"] == plain[0]["fieldsV1"]


async def test_restored_object_keeps_owner_of_its_status(api, deployment) -> None:
    """As restore tools send it; both servers drop the status itself."""
    tree = {**deployment(), "status": {"replicas": 1}}
    status = _entry("Update", {"f:status": {"f:replicas": {}}}, subresource="status")
    tree["metadata"]["managedFields"] = [status]
    made = (await api.post(DEPLOYMENTS, tree)).tree
    assert (made["metadata"]["managedFields"][0], made["status"]) == (status, {})


async def test_owners_in_another_version_keep_absent_fields(api) -> None:
    owned = {"f:spec": {"f:minReplicas": {}, "f:behavior": {}}}
    tree = {
        "metadata": {"name": "h", "managedFields": [_entry("Apply", owned, "autoscaling/v2")]},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}},
    }
    made = (await api.post("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", tree)).tree
    entry = made["metadata"]["managedFields"][0]
    assert (entry["operation"], entry["fieldsV1"]) == ("Apply", {"f:spec": {"f:behavior": {}}})
