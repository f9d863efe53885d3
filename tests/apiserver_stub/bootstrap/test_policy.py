"""Default roles and bindings: valid as created, restored after edits, and otherwise unchanged."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver_stub.bootstrap.policy import revised
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime

ADMIN = Certificate("admin", ("system:masters",))
RBAC = "/apis/rbac.authorization.k8s.io/v1"
KINDS = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
MINE = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
LIST = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
JANE, JOHN = ({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name} for name in ("jane", "john"))


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = build(FLAGS.parse(["--storage-backend=memory", "--advertise-address=192.0.2.1"]), Runtime("test"))
    await server.start()
    yield server
    await server.stop()


async def ask(api: ApiServer, method: str, path: str, body: Any = None, query: str = "") -> Any:
    pairs = tuple(tuple(pair.split("=")) for pair in query.split("&") if pair)
    data = b"" if body is None else json.dumps(body).encode()
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer = await api.handle(Request(method, f"{RBAC}/{path}", pairs, {"content-type": kind}, data, ADMIN))
    assert isinstance(answer.body, bytes)
    assert answer.status < 300, answer.body
    return json.loads(answer.body)


def path_of(plural: str, item: Any) -> str:
    metadata = item["metadata"]
    inside = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
    return f"{inside}{plural}"


@pytest.mark.parametrize("plural", KINDS)
async def test_default_objects_equal_those_created_by_requests(api: ApiServer, plural: str) -> None:
    items = (await ask(api, "GET", plural))["items"]
    for item in items:
        collection, name = path_of(plural, item), item["metadata"]["name"]
        sent = {**item, "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": dict(item["metadata"])}
        for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            del sent["metadata"][field]
        found = await ask(api, "GET", f"{collection}/{name}")
        await ask(api, "DELETE", f"{collection}/{name}")
        made = await ask(api, "POST", collection, sent, "fieldManager=kube-apiserver")
        for one in (made, found):
            for field in ("uid", "resourceVersion", "creationTimestamp"):
                del one["metadata"][field]
            one["metadata"]["managedFields"][0]["time"] = ""
        assert made == found


async def test_upstream_roles_and_bindings_exist(api: ApiServer) -> None:
    counts = [len((await ask(api, "GET", plural))["items"]) for plural in KINDS]
    assert counts == [69, 50, 7, 7]
    admin = await ask(api, "GET", "clusterroles/admin")
    assert admin["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults"}
    assert admin["metadata"]["annotations"] == MINE
    pods = [rule for rule in admin["rules"] if "pods" in rule["resources"]]
    assert {verb for rule in pods for verb in rule["verbs"]} >= {"get", "list", "watch", "create", "delete"}


async def test_second_start_writes_nothing(api: ApiServer) -> None:
    before = api.store.revision
    await api.settle(6443)
    assert api.store.revision == before


async def test_removed_rules_and_subjects_are_restored(api: ApiServer) -> None:
    await ask(api, "PATCH", "clusterroles/system:basic-user", {"rules": [READ]})
    await ask(api, "PATCH", "clusterrolebindings/system:basic-user", {"subjects": [JANE]})
    await ask(api, "DELETE", "clusterroles/view")
    before = await ask(api, "GET", "clusterrolebindings/system:discovery")
    other = {**before, "roleRef": {**before["roleRef"], "name": "cluster-admin"}}
    await ask(api, "DELETE", "clusterrolebindings/system:discovery")
    del other["metadata"]["resourceVersion"], other["metadata"]["uid"]
    await ask(api, "POST", "clusterrolebindings", other)
    await api.settle(6443)
    rules = (await ask(api, "GET", "clusterroles/system:basic-user"))["rules"]
    assert rules[0] == READ
    reviews = [rule["resources"] for rule in rules[1:]]
    assert sorted(reviews) == [["selfsubjectaccessreviews"], ["selfsubjectreviews"], ["selfsubjectrulesreviews"]]
    subjects = (await ask(api, "GET", "clusterrolebindings/system:basic-user"))["subjects"]
    assert [subject["name"] for subject in subjects] == ["jane", "system:authenticated"]
    assert (await ask(api, "GET", "clusterroles/view"))["rules"]
    after = await ask(api, "GET", "clusterrolebindings/system:discovery")
    assert after["roleRef"]["name"] == "system:discovery"


async def test_autoupdate_false_keeps_edits(api: ApiServer) -> None:
    protected = {"rbac.authorization.kubernetes.io/autoupdate": "false"}
    edit = {"metadata": {"annotations": protected, "labels": None}, "rules": []}
    edited = await ask(api, "PATCH", "clusterroles/system:discovery", edit)
    await api.settle(6443)
    assert await ask(api, "GET", "clusterroles/system:discovery") == edited


def tree(**fields: Any) -> Tree:
    metadata = {"name": "n", "annotations": {**MINE, **fields.pop("annotations", {})}, "labels": {"a": "b"}}
    return {"metadata": {**metadata, **fields.pop("metadata", {})}, **fields}


AGGREGATED = {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}


@pytest.mark.parametrize(
    ("found", "wanted", "becomes"),
    [
        (tree(rules=[READ]), tree(rules=[READ]), None),
        (tree(rules=[READ, LIST]), tree(rules=[READ]), None),
        (tree(rules=[READ]), tree(rules=[{**READ, "verbs": ["get", "list"]}]), tree(rules=[READ, LIST])),
        (tree(rules=None), tree(rules=[READ]), tree(rules=[READ])),
        (tree(rules=[], annotations={next(iter(MINE)): "false"}), tree(rules=[READ]), None),
        (tree(metadata={"labels": {"a": "mine", "c": "d"}}), tree(), None),
        (tree(metadata={"labels": None}), tree(), tree()),
        (tree(aggregationRule=AGGREGATED, rules=[READ]), tree(rules=[READ]), tree(rules=[READ])),
        (tree(rules=[READ]), tree(aggregationRule=AGGREGATED), tree(rules=[READ], aggregationRule=AGGREGATED)),
        (tree(subjects=[JANE]), tree(subjects=[JOHN]), tree(subjects=[JANE, JOHN])),
        (tree(subjects=[JANE, JOHN]), tree(subjects=[JOHN]), None),
        (tree(roleRef={"name": "a"}, subjects=[JANE]), tree(roleRef={"name": "b"}), tree(roleRef={"name": "b"})),
    ],
)
def test_edited_object_is_reconciled(found: Tree, wanted: Tree, becomes: Tree | None) -> None:
    assert revised(found, wanted) == becomes
