"""RBAC as recorded from Kubernetes 1.36, and protection against privilege escalation."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.api.wire import Certificate
from tests.apiserver_stub.api_client import Answer, ApiClient
from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome, substituted

DATA = Path(__file__).with_name("data")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES, BINDINGS = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
CLUSTER_ROLES, CLUSTER_BINDINGS = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
GROUP = "rbac.authorization.k8s.io"
MANAGE = {
    "apiGroups": [GROUP],
    "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
    "verbs": ["get", "list", "create", "update", "patch", "delete", "deletecollection"],
}
READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
DELETE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}
EVERYTHING = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
]
WHY = (
    'user "eve" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
    '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}'
)


class Caller(ApiClient):
    """A user of a server, identified by a certificate."""

    def __init__(self, server: Any, name: str, *groups: str) -> None:
        super().__init__(server, Certificate(name, groups))

    async def must(self, method: str, url: str, body: Any = None) -> Any:
        answer = await self.ask(method, url, body)
        assert answer.status < 300, answer.tree
        return answer.tree


@pytest.fixture
async def server(started: Callable[..., Any]) -> AsyncIterator[Any]:
    async with started("--authorization-mode=RBAC") as api:
        yield api.server


@pytest.fixture
def admin(server: Any) -> Caller:
    return Caller(server, "admin", "system:masters")


@pytest.fixture
async def eve(server: Any, admin: Caller) -> Caller:
    """A user who may write all roles and bindings, and read pods; nothing else."""
    await admin.must("POST", CLUSTER_ROLES, {"metadata": {"name": "eve"}, "rules": [MANAGE, READ]})
    await admin.must("POST", CLUSTER_BINDINGS, binding("eve", "eve"))
    return Caller(server, "eve")


def binding(name: str, role: str, kind: str = "ClusterRole", user: str = "eve") -> Any:
    subject = {"kind": "User", "apiGroup": GROUP, "name": user}
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [subject],
    }


def is_forbidden(answer: Answer, why: str = "") -> bool:
    found = (answer.status, answer.tree["reason"], (why or "not currently held") in answer.tree["message"])
    return found == (403, "Forbidden", True)


ROWS = [
    json.loads(line)
    for name in ("rbac.jsonl", "device_claims.jsonl")
    for line in (DATA / name).read_text().splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
async def test_answers_match_kube_apiserver(server: Any, row: Any) -> None:
    captured = {"RUN": "x1"}
    for number, step in enumerate(row["steps"]):
        named = step.get("headers", {})
        user = substituted(named.get("Impersonate-User", "admin"), captured)
        groups = named.get("Impersonate-Group", [] if "Impersonate-User" in named else ["system:masters"])
        caller = Caller(server, user, *substituted([groups] if isinstance(groups, str) else groups, captured))
        url = substituted(step["path"], captured)
        if step.get("query"):
            url += "?" + substituted(step["query"], captured).replace("%3D", "=")
        body = substituted(step.get("body"), captured)
        media = step.get("content_type", "application/json")
        answer = await caller.ask(step["verb"], url, body, content_type=media)
        expected = substituted({name: step[name] for name in ("status", "body_out") if name in step}, captured)
        assert not difference({**step, **expected}, outcome(step, answer.status, answer.tree, [])), number
        if "status" in step:
            assert answer.tree["message"] == expected["status"]["message"]


def apply_body(kind: str, name: str, **fields: Any) -> Any:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, **fields}


PATCHES = {
    "application/merge-patch+json": {"rules": [DELETE]},
    "application/strategic-merge-patch+json": {"rules": [DELETE]},
    "application/json-patch+json": [{"op": "replace", "path": "/rules", "value": [DELETE]}],
}
COLLECTIONS = pytest.mark.parametrize(("collection", "kind"), [(ROLES, "Role"), (CLUSTER_ROLES, "ClusterRole")])


@COLLECTIONS
async def test_role_cannot_exceed_rights_of_its_writer(eve: Caller, collection: str, kind: str) -> None:
    assert is_forbidden(await eve.post(collection, {"metadata": {"name": "r"}, "rules": [DELETE]}), WHY)
    assert is_forbidden(await eve.post(f"{collection}?dryRun=All", {"metadata": {"name": "r"}, "rules": [DELETE]}), WHY)
    await eve.must("POST", collection, {"metadata": {"name": "r"}, "rules": [READ]})
    mine = f"{collection}/r"
    found = await eve.must("GET", mine)
    assert is_forbidden(await eve.put(mine, {**found, "rules": [READ, DELETE]}), WHY)
    for media, patch in PATCHES.items():
        assert is_forbidden(await eve.ask("PATCH", mine, patch, content_type=media), WHY)
    config = apply_body(kind, "r", rules=[DELETE])
    assert is_forbidden(await eve.patch(f"{mine}?fieldManager=f&force=true", config, "apply-patch+yaml"), WHY)
    assert (await eve.must("GET", mine)) == found
    # Missing objects, by the verbs that create them.
    new = f"{collection}/new"
    assert is_forbidden(await eve.put(new, apply_body(kind, "new", rules=[DELETE])), WHY)
    config = apply_body(kind, "new", rules=[DELETE])
    assert is_forbidden(await eve.patch(f"{new}?fieldManager=f", config, "apply-patch+yaml"), WHY)
    assert (await eve.get(new)).status == 404


@COLLECTIONS
async def test_deleted_role_cannot_be_restored_without_rights(
    eve: Caller, admin: Caller, collection: str, kind: str
) -> None:
    big = await admin.must("POST", collection, {"metadata": {"name": "big", "labels": {"a": "b"}}, "rules": [DELETE]})
    await eve.must("DELETE", f"{collection}?labelSelector=a=b")
    del big["metadata"]["resourceVersion"], big["metadata"]["uid"]
    assert is_forbidden(await eve.post(collection, big), WHY)


async def test_metadata_of_larger_role_can_only_lose_finalizers(eve: Caller, admin: Caller) -> None:
    await admin.must("POST", ROLES, {"metadata": {"name": "big", "finalizers": ["a/b"]}, "rules": [DELETE]})
    big = f"{ROLES}/big"
    assert is_forbidden(await eve.patch(big, {"metadata": {"labels": {"a": "b"}}}), WHY)
    assert (await eve.patch(big, {"metadata": {"finalizers": None}})).status == 200
    found = await eve.must("GET", big)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}
    found["metadata"]["ownerReferences"] = [owner]
    await eve.must("PUT", big, found)


@pytest.mark.parametrize(("collection", "kind"), [(BINDINGS, "RoleBinding"), (CLUSTER_BINDINGS, "ClusterRoleBinding")])
async def test_binding_cannot_exceed_rights_of_its_writer(
    eve: Caller, admin: Caller, collection: str, kind: str
) -> None:
    await admin.must("POST", CLUSTER_ROLES, {"metadata": {"name": "big"}, "rules": [DELETE]})
    assert is_forbidden(await eve.post(collection, binding("b", "big")), WHY)
    assert is_forbidden(await eve.post(collection, binding("b", "cluster-admin")))
    assert is_forbidden(await eve.put(f"{collection}/b", {**apply_body(kind, "b"), **binding("b", "big")}), WHY)
    config = {**apply_body(kind, "b"), **binding("b", "big")}
    assert is_forbidden(await eve.patch(f"{collection}/b?fieldManager=f", config, "apply-patch+yaml"), WHY)
    # An existing one with another subject.
    await admin.must("POST", collection, binding("theirs", "big", user="alice"))
    theirs = f"{collection}/theirs"
    mine = binding("theirs", "big")
    for media, patch in (
        ("application/merge-patch+json", {"subjects": mine["subjects"]}),
        ("application/strategic-merge-patch+json", {"subjects": mine["subjects"]}),
        ("application/json-patch+json", [{"op": "add", "path": "/subjects/-", "value": mine["subjects"][0]}]),
    ):
        assert is_forbidden(await eve.ask("PATCH", theirs, patch, content_type=media), WHY)
    assert is_forbidden(await eve.put(theirs, mine), WHY)
    # They may grant what they hold.
    await eve.must("POST", collection, binding("ok", "eve", user="john"))


async def test_missing_role_can_be_bound_with_bind_permission(eve: Caller, admin: Caller) -> None:
    answer = await eve.post(BINDINGS, binding("b", "later", "Role"))
    assert (answer.status, answer.tree["message"]) == (404, 'rolebindings.rbac.authorization.k8s.io "later" not found')
    answer = await eve.post(CLUSTER_BINDINGS, binding("b", "later"))
    assert (answer.status, answer.tree["message"]) == (
        404,
        'clusterrolebindings.rbac.authorization.k8s.io "later" not found',
    )
    assert (await eve.post(BINDINGS, binding("b", ""))).status == 400
    assert (await eve.post(CLUSTER_BINDINGS, binding("b", "later", "Role"))).status == 400
    assert (await eve.post(BINDINGS, binding("b", "later", "Odd"))).status == 500  # as kube-apiserver answers
    await admin.must("POST", BINDINGS, binding("b", "later", "Role"))
    assert is_forbidden(await eve.post(ROLES, {"metadata": {"name": "later"}, "rules": [DELETE]}), WHY)


async def test_aggregation_rule_needs_all_rights(eve: Caller, admin: Caller) -> None:
    gathers = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    why = "must have cluster-admin privileges to use the aggregationRule"
    assert is_forbidden(await eve.post(CLUSTER_ROLES, {"metadata": {"name": "r"}, "aggregationRule": gathers}), why)
    await eve.must("POST", CLUSTER_ROLES, {"metadata": {"name": "r"}, "rules": []})
    patch = {"aggregationRule": gathers}
    assert is_forbidden(await eve.patch(f"{CLUSTER_ROLES}/r", patch), why)
    await admin.must("POST", CLUSTER_ROLES, {"metadata": {"name": "g"}, "aggregationRule": gathers})
    taken = {"aggregationRule": None}
    assert is_forbidden(await eve.patch(f"{CLUSTER_ROLES}/g", taken), why)
    # Aggregation by labels: a role with them may contain only rights the writer holds.
    labelled = {"metadata": {"name": "l", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}
    assert is_forbidden(await eve.post(CLUSTER_ROLES, {**labelled, "rules": [DELETE]}), WHY)
    await eve.must("POST", CLUSTER_ROLES, {**labelled, "rules": [READ]})
    await admin.must("POST", CLUSTER_ROLES, {"metadata": {"name": "all"}, "rules": EVERYTHING})
    await admin.must("POST", CLUSTER_BINDINGS, binding("all", "all"))
    await eve.must("POST", CLUSTER_ROLES, {"metadata": {"name": "r2"}, "aggregationRule": gathers, "rules": EVERYTHING})


async def test_escalate_and_bind(eve: Caller, admin: Caller) -> None:
    may = {"apiGroups": [GROUP], "resources": ["roles", "clusterroles"], "verbs": ["escalate", "bind"]}
    named = {**may, "resourceNames": ["mine"]}
    await admin.must("POST", ROLES, {"metadata": {"name": "may"}, "rules": [named]})
    await admin.must("POST", BINDINGS, binding("may", "may", "Role"))
    role = {"metadata": {"name": "mine"}, "rules": [DELETE]}
    assert is_forbidden(await eve.post(ROLES, role), WHY)  # a POST has no name
    await eve.must("PUT", f"{ROLES}/mine", role)
    assert is_forbidden(await eve.put(f"{ROLES}/yours", {**role, "metadata": {"name": "yours"}}), WHY)
    assert is_forbidden(await eve.post(CLUSTER_ROLES, role))
    await admin.must("POST", ROLES, {"metadata": {"name": "yours"}, "rules": [DELETE]})
    assert is_forbidden(await eve.post(BINDINGS, binding("b", "yours", "Role")), WHY)
    await eve.must("POST", BINDINGS, binding("b", "mine", "Role", user="john"))
    await admin.must("POST", CLUSTER_ROLES, {"metadata": {"name": "may"}, "rules": [may]})
    await admin.must("POST", CLUSTER_BINDINGS, binding("may", "may"))
    await eve.must("POST", CLUSTER_ROLES, {"metadata": {"name": "any"}, "rules": EVERYTHING})
    await eve.must("POST", CLUSTER_BINDINGS, binding("any", "any"))


async def test_rules_of_another_namespace_do_not_count(server: Any, admin: Caller) -> None:
    other = f"{RBAC}/namespaces/kube-public"
    await admin.must("POST", f"{other}/roles", {"metadata": {"name": "r"}, "rules": [MANAGE, DELETE]})
    await admin.must("POST", f"{other}/rolebindings", binding("b", "r", "Role"))
    await admin.must("POST", ROLES, {"metadata": {"name": "r"}, "rules": [MANAGE]})
    await admin.must("POST", BINDINGS, binding("b", "r", "Role"))
    eve = Caller(server, "eve")
    assert is_forbidden(await eve.post(ROLES, {"metadata": {"name": "x"}, "rules": [DELETE]}), WHY)
    await eve.must("POST", f"{other}/roles", {"metadata": {"name": "x"}, "rules": [DELETE]})


async def test_role_with_too_many_rule_parts_is_rejected(eve: Caller) -> None:
    many = [f"r{number}" for number in range(300)]
    wide = {"apiGroups": many, "resources": many, "verbs": ["get"]}
    answer = await eve.post(ROLES, {"metadata": {"name": "wide"}, "rules": [wide]})
    assert is_forbidden(answer)


async def test_without_rbac_everything_can_be_granted(started: Callable[..., Any]) -> None:
    async with started() as api:
        eve = Caller(api.server, "eve")
        await eve.must("POST", CLUSTER_ROLES, {"metadata": {"name": "any"}, "rules": EVERYTHING})
        await eve.must("POST", CLUSTER_BINDINGS, binding("any", "any"))
