"""Structural sharing with the stored object: a change gives the same answer as without sharing."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from apiserver_stub.kinds import shared_parts
from apiserver_stub.kinds.built_in import resources
from apiserver_stub.patch import server_side_apply as apply
from apiserver_stub.verbs import field_management, patch, update
from controller_manager.common.api.errors import ApiError

CORE, APPS = "/api/v1/namespaces/default", "/apis/apps/v1/namespaces/default"
Tree = dict[str, Any]
DRAWN = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z|(?<=\"nodePort\": )[0-9]+")
JSON_PATCH, MERGE, STRATEGIC = (
    f"application/{name}+json" for name in ("json-patch", "merge-patch", "strategic-merge-patch")
)
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
CONTAINER = {"name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}}
OBJECTS: dict[str, tuple[str, Tree]] = {
    "pod": (f"{CORE}/pods", {
        "metadata": {"name": "a", "labels": {"a": "b"}, "ownerReferences": [OWNER]},
        "spec": {"containers": [CONTAINER], "tolerations": [{"operator": "Exists"}]},
    }),
    "deployment": (f"{APPS}/deployments", {
        "metadata": {"name": "a"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}},
        },
    }),
    "node": ("/api/v1/nodes", {"metadata": {"name": "a"}, "status": {"capacity": {"cpu": "4"}}}),
    "secret": (f"{CORE}/secrets", {"metadata": {"name": "a"}, "data": {"k": "dg=="}}),
    "service": (f"{CORE}/services", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}),
    "configmap": (f"{CORE}/configmaps", {"metadata": {"name": "a"}, "data": {"k": "v"}}),
}  # fmt: skip


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: reordered(value[name]) for name in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def put(path: str, value: Any) -> Callable[[Tree], object]:
    """Return a change that sets the value at a path; None removes it."""
    *parents, last = path.split(".")

    def change(tree: Tree) -> None:
        for name in parents:
            tree = tree[int(name)] if isinstance(tree, list) else tree.setdefault(name, {})
        if value is None:
            tree.pop(last, None)
        else:
            tree[last] = value

    return change


SPEC = "spec.template.spec"
# What a client sends for an object it has read, by its change.
SENT: dict[str, Callable[[Tree], object]] = {
    "as it is": lambda tree: None,
    "other order": lambda tree: tree.update(reordered(tree)),
    "labelled": put("metadata.labels", {"a": "b", "c": "d"}),
    "wrong label": put("metadata.labels", {"a": 1}),
    "no version": put("metadata.resourceVersion", None),
    "old version": put("metadata.resourceVersion", "1"),
    "other uid": put("metadata.uid", "x"),
    "other name": put("metadata.name", "x"),
    "other namespace": put("metadata.namespace", "x"),
    "owned twice": put("metadata.ownerReferences", [OWNER, OWNER]),
    "owned by a number": put("metadata.ownerReferences", [{**OWNER, "controller": 1}]),
    "true as generation": put("metadata.generation", True),
    "fraction as generation": put("metadata.generation", 1.0),
    "no time": put("metadata.creationTimestamp", None),
    "null time": lambda tree: tree["metadata"].update(creationTimestamp=None),
    "odd time": put("metadata.creationTimestamp", "x"),
    "null labels": lambda tree: tree["metadata"].update(labels=None),
    "a null label": put("metadata.labels", {"a": None}),
    "number as annotation": put("metadata.annotations", {"a": 1}),
    "empty annotations": put("metadata.annotations", {}),
    "finalizer": put("metadata.finalizers", ["example.org/held"]),
    "number as finalizer": put("metadata.finalizers", [1]),
    "unknown in metadata": put("metadata.x", 1),
    "list as metadata": put("metadata", []),
    "nobody's": put("metadata.managedFields", []),
    "somebody's": put("metadata.managedFields", None),
    "no metadata": put("metadata", None),
    "no spec": put("spec", None),
    "no status": put("status", None),
    "null status": lambda tree: tree.update(status=None),
    "status": put("status.conditions", [{"type": "Ready", "status": "True"}]),
    "unknown": put("spec.x", 1),
    "unknown part": put("x", 1),
    "text as spec": put("spec", "x"),
    "count": put("spec.replicas", 5),
    "true as count": put("spec.replicas", True),
    "fraction as count": put("spec.replicas", 1.0),
    "text as count": put("spec.replicas", "1"),
    "empty strategy": put("spec.strategy", {}),
    "recreated": put("spec.strategy", {"type": "Recreate"}),
    "host network": put(f"{SPEC}.hostNetwork", True),
    "true": put(f"{SPEC}.terminationGracePeriodSeconds", True),
    "data": put("data", {"k": "dg==", "l": ""}),
    "plain data": put("stringData", {"k": "v"}),
    "load balancer": put("spec.type", "LoadBalancer"),
    "amounts": put("status.capacity", {"cpu": "4000m"}),
    "addresses": put("status.podIP", "10.0.0.1"),
}
PATCHES: list[tuple[str, Any]] = [
    (MERGE, {}),
    (MERGE, {"metadata": {"labels": {"c": "d"}, "annotations": None}}),
    (MERGE, {"metadata": {"labels": {"c": 1}}}),
    (MERGE, {"metadata": None}),
    (MERGE, {"kind": "Other"}),
    (MERGE, {"spec": None, "data": None}),
    (MERGE, {"spec": {"replicas": True, "x": 1, "template": {"spec": {"hostNetwork": True}}}}),
    (MERGE, {"spec": {"template": {"spec": {"hostNetwork": True}}}}),
    (MERGE, {"metadata": {"uid": "x"}}),
    (MERGE, {"metadata": {"managedFields": []}}),
    (MERGE, {"metadata": {"managedFields": [{"time": "x"}]}}),
    (MERGE, {"metadata": {"ownerReferences": [{**OWNER, "controller": 1}]}}),
    (MERGE, {"metadata": {"ownerReferences": [{**OWNER, "x": 1}], "generation": True, "x": 1}}),
    (MERGE, {"metadata": {"labels": {"a": None}, "finalizers": []}}),
    (STRATEGIC, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    (STRATEGIC, {"metadata": {"ownerReferences": [{"uid": "v", "$patch": "delete"}]}}),
    (STRATEGIC, {"spec": {"containers": [{"name": "c", "image": "j"}]}}),
    (STRATEGIC, {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}}),
    (STRATEGIC, {"spec": {"type": "LoadBalancer"}}),
    (JSON_PATCH, []),
    (JSON_PATCH, [{"op": "add", "path": "/metadata/labels", "value": {"c": "d"}}]),
    (JSON_PATCH, [{"op": "copy", "from": "/spec", "path": "/status"}]),
    (JSON_PATCH, [{"op": "replace", "path": "/spec", "value": {}}, {"op": "add", "path": "/x", "value": 1}]),
    (JSON_PATCH, [{"op": "test", "path": "/metadata/name", "value": "a"}, {"op": "remove", "path": "/spec"}]),
]


@contextmanager
def nothing_shared() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for module in (update, patch, apply):
            patched.setattr(module, "may_share", lambda _kind: False)
        yield


async def outcome(api: Any, method: str, url: str, body: Any, media: str = "application/json") -> Any:
    asked = f"{url}?dryRun=All&fieldValidation=Warn&fieldManager=me"
    try:
        answer = await api.ask(method, asked, json.dumps(body).encode(), content_type=media)
    except ApiError as error:
        return type(error), error.message, error.details, error.warnings
    return answer.status, DRAWN.sub("DRAWN", json.dumps(answer.tree, sort_keys=True)), answer.headers.get("warning")


async def agree(api: Any, *asked: Any) -> None:
    found = await outcome(api, *asked)
    with nothing_shared():
        assert found == await outcome(api, *asked)


@pytest.mark.parametrize("name", OBJECTS)
async def test_bodies_give_same_answer_with_and_without_sharing(
    api: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(field_management, "wall_seconds", lambda: 0.0)  # the sort key of entries
    url, tree = OBJECTS[name]
    await api.post(url, json.dumps(tree).encode())
    stored = (await api.get(f"{url}/a")).tree
    for change in SENT.values():
        sent = json.loads(json.dumps(stored))
        try:
            change(sent)
        except TypeError:
            continue
        for path in (f"{url}/a", f"{url}/a/status"):
            await agree(api, "PUT", path, sent)


@pytest.mark.parametrize("name", OBJECTS)
async def test_patches_give_same_answer_with_and_without_sharing(
    api: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(field_management, "wall_seconds", lambda: 0.0)
    url, tree = OBJECTS[name]
    await api.post(url, json.dumps(tree).encode())
    for media, document in PATCHES:
        for path in (f"{url}/a", f"{url}/a/status"):
            await agree(api, "PATCH", path, document, f"application/{media}+json")


def test_stored_object_is_never_modified() -> None:
    kind = next(kind for kind in resources() if kind.name == "deployments.apps")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "1"}
    metadata = {"name": "a", "labels": {"a": "b"}, "ownerReferences": [owner]}
    stored = {**OBJECTS["deployment"][1], "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
    shared_parts.fit_others(stored, {}, kind)
    before = json.dumps(stored)
    changed = {
        **stored,
        "metadata": {**stored["metadata"], "generation": 2},
        "spec": {**stored["spec"], "template": stored["spec"]["template"], "strategy": {}},
    }
    own = shared_parts.detached(changed, stored)
    shared_parts.fit_others(own, stored, kind)
    own["metadata"]["labels"]["a"] = "c"
    own["metadata"]["ownerReferences"][0]["name"] = "c"
    own["spec"]["template"]["spec"]["containers"].clear()
    assert json.dumps(stored) == before
    assert own["status"] is stored["status"]


@pytest.mark.parametrize(("sent", "shares"), [(1, True), (True, False), (1.0, False), (2, False)])
def test_equal_values_of_another_type_are_not_shared(sent: Any, shares: bool) -> None:
    kind = next(kind for kind in resources() if kind.name == "deployments.apps")
    stored = {"spec": {"replicas": 1, "paused": True}}
    tree = {"spec": {"paused": True, "replicas": sent}}
    shared_parts.share(tree, stored, kind)
    assert (tree["spec"] is stored["spec"]) == shares
