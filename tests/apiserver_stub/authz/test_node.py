"""The node authorizer: decisions on recorded requests, and how its graph follows changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.authz.node.authorizer import NodeAuthorizer
from apiserver_stub.authz.node.graph import NodeGraph
from apiserver_stub.authz.node.pods import PodState
from apiserver_stub.authz.node.references import MIRROR, pod_references, volume_references
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, Row
from controller_manager.common.base.registry import Registry
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import NO_OPINION, AuthorizerAttributes, Decision, Selectors
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.pace import end_slices_at_each_look

Tree = dict[str, Any]
DATA = [json.loads(line) for line in (Path(__file__).parent / "data/node.jsonl").read_text().splitlines()]
OBJECTS = [row["object"] for row in DATA if "object" in row]
RESOURCES = {
    "Pod": "pods",
    "PersistentVolume": "persistentvolumes",
    "VolumeAttachment": "volumeattachments.storage.k8s.io",
    "ResourceSlice": "resourceslices.resource.k8s.io",
    "PodCertificateRequest": "podcertificaterequests.certificates.k8s.io",
}
NODES = ("system:nodes", "system:authenticated")


class Cluster:
    """A watch cache with objects, and the node authorizer on it."""

    def __init__(self) -> None:
        self.store = WatchCache(EmbeddedStorage(MemoryBackend()))
        self.registry = Registry()
        self.graph = NodeGraph(self.store, self.registry)
        self.authorizer = NodeAuthorizer(self.graph)

    async def put(self, tree: Tree) -> None:
        resource, key = self._place(tree)
        before = self.store.get(resource, key)
        data = json.dumps({**tree, "metadata": {"resourceVersion": "", **tree["metadata"]}}).encode()
        await self.store.commit(Write(resource, key, before.revision if before else 0, data))

    async def delete(self, tree: Tree) -> None:
        resource, key = self._place(tree)
        before = self.store.get(resource, key)
        assert before is not None
        await self.store.commit(Write(resource, key, before.revision, before.data, deleted=True))

    async def allows(self, resource: str, namespace: str, name: str, node: str = "n1", verb: str = "get") -> bool:
        group, _, resource = resource.rpartition(":")
        user = User(f"system:node:{node}", groups=NODES)
        asked = AuthorizerAttributes(user, verb, "", group, "v1", resource, "", namespace, name)
        return (await self.authorizer.authorize(asked)).decision is Decision.ALLOW

    def _place(self, tree: Tree) -> tuple[str, str]:
        metadata = tree["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
        return RESOURCES[tree["kind"]], key


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    found = Cluster()
    await found.store.start()
    yield found
    await found.store.close()


def pod(name: str, node: str, secret: str = "", uid: str = "1", **metadata: Any) -> Tree:
    spec: Tree = {"nodeName": node} if node else {}
    if secret:
        spec["volumes"] = [{"name": "v", "secret": {"secretName": secret}}]
    return {"kind": "Pod", "metadata": {"namespace": "ns", "name": name, "uid": uid, **metadata}, "spec": spec}


@pytest.mark.parametrize("late", [False, True], ids=["read", "watched"])
async def test_decisions_match_kube_apiserver(cluster: Cluster, late: bool) -> None:
    if late:
        await cluster.graph.read()
    for tree in OBJECTS:
        await cluster.put(tree)
    wrong = []
    for row in DATA:
        if "ask" not in row:
            continue
        name, is_node, of, fields, allowed, reason = row["ask"]
        attributes = AuthorizerAttributes(
            User(name, groups=NODES if is_node else ("system:authenticated",)),
            path="",
            selectors=Selectors(fields),
            **of,
        )
        found = await cluster.authorizer.authorize(attributes)
        if ((found.decision is Decision.ALLOW), found.reason) != (allowed, reason):
            wrong.append((row["ask"], found))
    assert wrong == []


async def test_graph_follows_pod_changes(cluster: Cluster) -> None:
    await cluster.graph.read()
    await cluster.put(pod("p", "", "s"))
    assert not await cluster.allows("secrets", "ns", "s")
    await cluster.put(pod("p", "n1", "s"))
    await cluster.put(pod("q", "n1", "s"))
    assert await cluster.allows("secrets", "ns", "s")
    assert not await cluster.allows("secrets", "ns", "s", node="n2")
    assert not await cluster.allows("secrets", "other", "s")
    await cluster.delete(pod("p", "n1"))
    assert await cluster.allows("secrets", "ns", "s"), "another pod still needs it"
    await cluster.put(pod("q", "n2", "t", uid="2"))
    assert not await cluster.allows("secrets", "ns", "s")
    assert await cluster.allows("secrets", "ns", "t", node="n2")
    await cluster.delete(pod("q", "n2"))
    assert not await cluster.allows("secrets", "ns", "t", node="n2")


async def test_graph_is_read_at_first_request_of_a_node(cluster: Cluster) -> None:
    end_slices_at_each_look()
    for number in range(100, 1000):
        await cluster.put(pod(f"p-{number}", "n1", f"s-{number}"))
    asked = [asyncio.ensure_future(cluster.allows("secrets", "ns", f"s-{number}")) for number in (100, 998, 999)]
    await asyncio.sleep(0)
    await cluster.put(pod("p-998", "n2", "s-998", uid="2"))
    await cluster.delete(pod("p-999", "n1"))
    await cluster.put(pod("new", "n1", "s-new"))
    assert not cluster.graph.complete
    assert [await one for one in asked] == [True, False, False]
    assert await cluster.allows("secrets", "ns", "s-998", node="n2")
    assert await cluster.allows("secrets", "ns", "s-new")


async def test_requests_of_other_users_do_not_read_graph(cluster: Cluster) -> None:
    await cluster.put(pod("p", "n1", "s"))
    asked = AuthorizerAttributes(
        User("joe", groups=("system:authenticated",)), "get", "", "", "v1", "secrets", "", "ns", "s"
    )
    assert await cluster.authorizer.authorize(asked) == NO_OPINION
    assert await cluster.allows("coordination.k8s.io:leases", "kube-node-lease", "n1")
    assert not cluster.graph.complete


async def test_references_added_to_running_pod_are_allowed(cluster: Cluster) -> None:
    await cluster.graph.read()
    running = pod("p", "n1", "s")
    await cluster.put(running)
    container = {"name": "d", "envFrom": [{"secretRef": {"name": "late"}}]}
    running["spec"]["ephemeralContainers"] = [container]
    await cluster.put(running)
    assert await cluster.allows("secrets", "ns", "late")
    running["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
    running["status"] = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "made"}]}
    await cluster.put(running)
    assert await cluster.allows("resource.k8s.io:resourceclaims", "ns", "made")
    running["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "extended"}
    await cluster.put(running)
    assert await cluster.allows("resource.k8s.io:resourceclaims", "ns", "extended")


async def test_mirror_pods_grant_nothing(cluster: Cluster) -> None:
    await cluster.graph.read()
    await cluster.put(pod("p", "n1", "s", annotations={"kubernetes.io/config.mirror": "x"}))
    assert await cluster.allows("pods", "ns", "p")
    assert not await cluster.allows("secrets", "ns", "s")


async def test_graph_follows_volume_binding(cluster: Cluster) -> None:
    await cluster.graph.read()
    volume: Tree = {
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {"csi": {"nodeStageSecretRef": {"namespace": "other", "name": "s"}}},
    }
    claiming = pod("p", "n1")
    claiming["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    await cluster.put(claiming)
    await cluster.put(volume)
    assert not await cluster.allows("persistentvolumes", "", "pv")
    volume["spec"]["claimRef"] = {"namespace": "ns", "name": "c"}
    await cluster.put(volume)
    assert await cluster.allows("persistentvolumes", "", "pv")
    assert await cluster.allows("secrets", "other", "s")
    assert not await cluster.allows("secrets", "other", "s", node="n2")
    del volume["spec"]["claimRef"]
    await cluster.put(volume)
    assert not await cluster.allows("persistentvolumes", "", "pv")
    assert not await cluster.allows("secrets", "other", "s")


async def test_pod_certificate_requests_are_allowed_to_their_node(cluster: Cluster) -> None:
    await cluster.graph.read()
    tree = {"kind": "PodCertificateRequest", "metadata": {"namespace": "ns", "name": "r"}, "spec": {"nodeName": "n1"}}
    await cluster.put(tree)
    requests = "certificates.k8s.io:podcertificaterequests"
    assert await cluster.allows(requests, "ns", "r")
    assert not await cluster.allows(requests, "ns", "r", node="n2")
    assert await cluster.allows(requests, "ns", "", verb="create")
    assert not await cluster.allows(requests, "ns", "r", verb="update")
    assert not await cluster.allows(requests, "", "", verb="list")
    assert await cluster.allows("certificates.k8s.io:clustertrustbundles", "", "b", verb="list")
    await cluster.delete(tree)
    assert not await cluster.allows(requests, "ns", "r")


@pytest.mark.parametrize(
    "broken", [{"spec": {"nodeName": "n1", "volumes": 1}}, {"spec": {"nodeName": 1}}, {"spec": []}]
)
async def test_malformed_pod_grants_nothing(cluster: Cluster, broken: Tree) -> None:
    await cluster.graph.read()
    await cluster.put(pod("p", "n1", "s"))
    await cluster.put({**pod("p", "n1", "s", uid="2"), **broken})
    assert not await cluster.allows("secrets", "ns", "s")


async def test_deleted_objects_leave_no_graph_entries(cluster: Cluster) -> None:
    await cluster.graph.read()
    for tree in OBJECTS:
        await cluster.put(tree)
    for tree in OBJECTS:
        await cluster.delete(tree)
    graph = cluster.graph
    assert (graph._edges, graph._nodes, graph._volumes, graph._of_secret) == ({}, {}, {}, {})


async def test_other_users_are_not_decided() -> None:
    authorizer = Cluster().authorizer
    for user in (User("joe", groups=NODES), User("system:node:n1", groups=("system:authenticated",))):
        assert (
            await authorizer.authorize(AuthorizerAttributes(user, "get", "", "", "v1", "services", "", "ns", "x"))
            == NO_OPINION
        )
        assert not (await authorizer.rules_for(user, "ns")).incomplete
    assert (await authorizer.rules_for(User("system:node:n1", groups=NODES), "ns")).incomplete


_KEYS = st.sampled_from(["secretRef", "name", "secret", "secretName", "configMap", "azureFile"])
_TREES = st.recursive(
    st.none() | st.text(max_size=3), lambda one: st.dictionaries(_KEYS, one, max_size=3), max_leaves=6
)


@given(_TREES)
def test_empty_names_are_not_referenced(volume: Any) -> None:
    if not isinstance(volume, dict):
        return
    try:
        found = pod_references("ns", "p", {"spec": {"volumes": [volume]}})
        bound = volume_references({"spec": {"claimRef": {"name": "c"}, **volume}})
    except (AttributeError, TypeError):
        return
    assert all(reference.name for reference in found)
    assert bound is not None
    assert all(secret.name for secret in bound[1])


_NODE = st.sampled_from(["", "n1", "n2"])
_SOME = st.sampled_from(["a", "b"])
_POD = st.tuples(st.just("Pod"), _SOME, _NODE, st.sets(_SOME), st.sets(_SOME), st.integers(0, 1))
_VOLUME = st.tuples(st.just("PersistentVolume"), _SOME, st.sampled_from(["", "a", "b"]), st.sets(_SOME))
_ATTACHMENT = st.tuples(st.just("VolumeAttachment"), _SOME, _NODE)
_GONE = st.tuples(st.just("gone"), st.sampled_from(["Pod", "PersistentVolume", "VolumeAttachment"]), _SOME)


def _tree(kind: str, name: str, *more: Any) -> Tree:
    if kind == "Pod":
        node, secrets, claims, uid = more
        volumes = [
            *({"name": each, "secret": {"secretName": each}} for each in sorted(secrets)),
            *({"name": each, "persistentVolumeClaim": {"claimName": each}} for each in sorted(claims)),
        ]
        # The references of a bound pod change only if another pod gets its name.
        metadata = {"namespace": "ns", "name": name, "uid": f"{uid} {node} {sorted(secrets)} {sorted(claims)}"}
        return {"metadata": metadata, "spec": {"nodeName": node, "volumes": volumes}}
    if kind == "PersistentVolume":
        claim, secrets = more
        refs = dict(zip(("nodeStageSecretRef", "nodePublishSecretRef"), sorted(secrets), strict=False))
        csi = {key: {"namespace": "other", "name": secret} for key, secret in refs.items()}
        bound = {"claimRef": {"namespace": "ns", "name": claim}} if claim else {}
        return {"metadata": {"name": name}, "spec": {"csi": csi, **bound}}
    return {"metadata": {"name": name}, "spec": {"nodeName": more[0]}}


def _expected(objects: dict[tuple[str, str], Tree]) -> set[tuple[str, str, str, str]]:
    """All references of nodes (kind, namespace, name and node), computed from all objects."""
    found = set()
    for (kind, name), tree in objects.items():
        node = tree["spec"].get("nodeName")
        if kind == "Pod" and node:
            found |= {(*reference, node) for reference in pod_references("ns", name, tree)}
            found.add(("pods", "ns", name, node))
        if kind == "VolumeAttachment" and node:
            found.add(("volumeattachments", "", name, node))
    for (kind, name), tree in objects.items():
        bound = volume_references(tree) if kind == "PersistentVolume" else None
        for node in ("n1", "n2"):
            if bound is not None and (*bound[0], node) in found:
                found.add(("persistentvolumes", "", name, node))
                found |= {(*secret, node) for secret in bound[1]}
    return found


@given(st.lists(_POD | _VOLUME | _ATTACHMENT | _GONE, max_size=12))
def test_graph_equals_references_of_current_objects(changes: list[Any]) -> None:
    graph = NodeGraph(WatchCache(EmbeddedStorage(MemoryBackend())), Registry())
    objects: dict[tuple[str, str], Tree] = {}
    for revision, change in enumerate(changes, 1):
        kind, name = change[1:3] if change[0] == "gone" else change[:2]
        known = objects.pop((kind, name), None)
        if change[0] == "gone" and known is None:
            continue
        tree = known if change[0] == "gone" else _tree(*change)
        if change[0] != "gone":
            if kind == "Pod" and known is not None and known["spec"]["nodeName"] and not tree["spec"]["nodeName"]:
                objects[kind, name] = known  # no pod becomes unbound
                continue
            objects[kind, name] = tree
        row = Row(RESOURCES[kind], f"ns/{name}" if kind == "Pod" else name, revision, json.dumps(tree).encode())
        graph._on_changes([Change(row, None, change[0] == "gone", 0.0)])
        expected = _expected(objects)
        for reference in {each[:3] for each in expected} | {
            ("pods", "ns", "a"),
            ("secrets", "ns", "a"),
            ("persistentvolumes", "", "b"),
        }:
            for node in ("n1", "n2"):
                assert graph.leads(*reference, node) is ((*reference, node) in expected)


_TOKEN = {"name": "kube-api-access-aaaaa", "projected": {"sources": [{"serviceAccountToken": {}}]}}
_OTHER = "kube-api-access-bbbbb"
_SPECS: dict[str, Tree] = {
    "token": {"serviceAccountName": "a", "volumes": [_TOKEN]},
    "another token": {"serviceAccountName": "a", "volumes": [{**_TOKEN, "name": _OTHER}]},
    "another account": {"serviceAccountName": "b", "volumes": [_TOKEN]},
    "map": {"volumes": [{"configMap": {"name": "kube-api-access-aaaaa"}}]},
    "map of a similar name": {"volumes": [{"configMap": {"name": _OTHER}}]},
    "map in a token": {"volumes": [{"name": _OTHER, "projected": {"sources": [{"configMap": {"name": _OTHER}}]}}]},
    "claim": {"volumes": [{"name": "kube-api-access-aaaaa", "persistentVolumeClaim": {"claimName": "c"}}]},
    "claim of its own": {"volumes": [{"name": "v", "ephemeral": {}}]},
    "image": {"imagePullSecrets": [{"name": "s"}]},
    "variable": {"containers": [{"env": [{"name": "e", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}]},
    "plain variable": {"containers": [{"env": [{"name": "e", "value": "s"}]}]},
    "variables": {"initContainers": [{"envFrom": [{"configMapRef": {"name": "m"}}]}]},
    "ephemeral container": {"ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]},
    "device": {"resourceClaims": [{"name": "d", "resourceClaimName": "made"}]},
    "nothing": {"imagePullSecrets": None, "containers": None, "volumes": None},
}


@pytest.mark.parametrize("more", [{}, {"annotations": {MIRROR: "x"}}], ids=["", "mirror"])
@pytest.mark.parametrize("name", _SPECS)
def test_references_from_bytes_equal_those_from_the_tree(name: str, more: Tree) -> None:
    for each in ("token", "map", "another account", name):  # the cache must not mix up their specs
        tree = {"metadata": {"uid": "u", **more}, "spec": {"nodeName": "n1", **_SPECS[each]}}
        state = PodState(json.dumps(tree, separators=(",", ":")).encode())
        assert state.node == "n1"
        assert state.references("ns", "p") == pod_references("ns", "p", tree)


def test_later_references_change_pod_signature() -> None:
    pods = [{}, {"status": {"resourceClaimStatuses": [{"name": "d"}]}}, {"spec": {"ephemeralContainers": [{}]}}]
    assert len({PodState(json.dumps({"metadata": {"uid": "u"}, **each}).encode()).signature for each in pods}) == 3
