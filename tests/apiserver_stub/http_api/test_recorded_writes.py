"""Results of kube-apiserver 1.36 for writes of valid objects with random changes, without effect (`dryRun=All`).

A line of `recorded_writes/*.jsonl` is a kind, a verb, further query parameters, the changes of the valid object (paths
and values; `<gone>` removes one), then code and reason of the answer, the reasons and fields of its causes, and the
fields of the returned object (paths and values).
"""

import copy
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.resource_info import ResourceInfo

Tree = dict[str, Any]
Steps = list[str | int]
Changes = list[tuple[Steps, Any]]

GONE = "<gone>"
NAMESPACE = "n"
TESTS = Path(__file__).parent
GOOD = TESTS.parent / "kinds/rules/good.yaml"
BESIDE = frozenset({"v1/ServiceAccount", "scheduling.k8s.io/v1/PriorityClass", "node.k8s.io/v1/RuntimeClass"})
KINDS: Mapping[str, ResourceInfo] = {f"{kind.api_version}/{kind.kind}": kind for kind in built_in().all()}
METHODS: Mapping[str, tuple[str, str]] = {
    "create": ("POST", "application/json"),
    "update": ("PUT", "application/json"),
    "merge": ("PATCH", "application/merge-patch+json"),
    "strategic": ("PATCH", "application/strategic-merge-patch+json"),
    "apply": ("PATCH", "application/apply-patch+yaml"),
}

RECORDED: dict[str, list[list[Any]]] = defaultdict(list)
for file in sorted((TESTS / "recorded_writes").glob("*.jsonl")):
    for line in file.read_text().splitlines():
        named, *row = json.loads(line)
        RECORDED[named].append(row)


@pytest.mark.parametrize("name", sorted(RECORDED))
async def test_results_match_kube_apiserver(api: Any, name: str) -> None:
    good = await prepared(api, name)
    wrong = []
    for verb, query, changes, *shown in RECORDED[name]:
        method, media = METHODS[verb]
        url = collection(name) if verb == "create" else f"{collection(name)}/{good['metadata']['name']}"
        body = json.dumps(with_changes(good, changes)).encode()
        answer = await api.ask(method, f"{url}?dryRun=All{query}", body, content_type=media, user_agent="fuzz/1")
        found = result_of(answer.status, answer.tree, shown[-1])
        if found != shown:
            wrong.append({"changes": changes, "verb": verb, "query": query, "real": shown, "ours": found})
    assert wrong == []


async def prepared(api: Any, name: str) -> Tree:
    """The valid object of a kind as it was sent; it is stored with everything it needs."""
    good: dict[str, Tree] = {}
    await api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for tree in yaml.safe_load_all(GOOD.read_text()):
        good.setdefault(f"{tree['apiVersion']}/{tree['kind']}", tree)
        if f"{tree['apiVersion']}/{tree['kind']}" in BESIDE:
            await api.post(collection(f"{tree['apiVersion']}/{tree['kind']}"), in_namespace(tree))
    for account in ("default", "robot"):
        await api.post(collection("v1/ServiceAccount"), {"metadata": {"name": account}})
    tree = in_namespace(good[name])
    await api.post(collection(name), tree)
    return tree


def in_namespace(tree: Tree) -> Tree:
    """A valid object in the recorded namespace."""
    tree = copy.deepcopy(tree)
    tree["metadata"].pop("resourceVersion", None)
    if KINDS[f"{tree['apiVersion']}/{tree['kind']}"].namespaced:
        tree["metadata"]["namespace"] = NAMESPACE
    if tree["kind"] == "Namespace":
        tree["metadata"]["name"] = "m"
    return tree


def collection(name: str) -> str:
    """The path of the objects of a kind."""
    kind = KINDS[name]
    group = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
    return f"{group}/namespaces/{NAMESPACE}/{kind.plural}" if kind.namespaced else f"{group}/{kind.plural}"


def with_changes(good: Tree, changes: Changes) -> Any:
    """The valid object with changes; an empty path replaces all of it."""
    root = {"": copy.deepcopy(good)}
    for path, value in changes:
        parent: Any = root
        for step in ("", *path)[:-1]:
            parent = parent[step]
        last = ("", *path)[-1]
        if value == GONE:
            del parent[last]
        else:
            parent[last] = value
    return root[""]


def result_of(code: int, tree: Tree, shows: Changes) -> list[Any]:
    """The recorded parts of an answer."""
    if code < 400:
        return [code, "", [], [[path, value_at(tree, path)] for path, _ in shows]]
    causes = {(cause.get("reason"), cause.get("field")) for cause in tree.get("details", {}).get("causes", ())}
    return [code, tree.get("reason", ""), sorted(map(list, causes)), []]


def value_at(tree: Any, path: Steps) -> Any:
    """The value at a path."""
    for step in path:
        if (type(tree) is list and int(step) >= len(tree)) or (type(tree) is dict and step not in tree):
            return GONE
        tree = tree[step]
    return tree
