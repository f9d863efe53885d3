"""Objects that the store cannot read (API concepts, States and transitions, and Delete options)."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog.testing

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.watch_cache.row import decode_error_of
from controller_manager.common.base.runtime import Runtime
from controller_manager.testing import Cluster
from tests.apiserver_stub.api_client import ApiClient
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.whole_server.test_rbac import CLUSTER_BINDINGS, CLUSTER_ROLES, Caller, binding

CONFIGS = "/api/v1/namespaces/default/configmaps"
UNSAFE = {"ignoreStoreReadErrorWithClusterBreakingPotential": True}
ON = "--feature-gates=AllowUnsafeMalformedObjectDeletion=true"
SOUND = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"u"}}'


async def corrupt(backend: MemoryBackend, name: str, data: bytes = b"\x00broken") -> None:
    """Overwrite the stored data of an object."""
    async for records in backend.replay():
        for record in records:
            if record.key == f"default/{name}":
                backend.append([record._replace(data=data)], lambda _: None)


@pytest.fixture
async def broken(started: Any, backend: MemoryBackend) -> dict[str, Any]:
    """A log with the objects a, b and c, with b unreadable; returns b as it was."""
    async with started() as api:
        made = {name: (await api.config(name, finalizers=["example.com/x"])).tree for name in "abc"}
    await corrupt(backend, "b")
    return dict(made["b"])


@pytest.mark.parametrize(
    ("data", "sound"),
    [
        (SOUND, True),
        (SOUND.replace(b'"u"', '"ü"'.encode()), True),
        (SOUND.replace(b"}}", b'},"data":{"k":"\xff"}}'), False),
        (SOUND.replace(b'"kind":"ConfigMap",', b""), False),
        (SOUND.replace(b'"apiVersion":"v1",', b""), False),
        (SOUND.replace(b'"uid":"u"', b'"uid":7'), False),
        (SOUND.replace(b"}}", b',"labels":{"a":1}}}'), False),
        (SOUND[:-1], False),
        (SOUND + b"}", False),
        (b"{}", False),
        (b"[]", False),
        (b"null", False),
        (b"", False),
        (b"\x00", False),
    ],
)
def test_decode_error_of_data(data: bytes, sound: bool) -> None:
    assert (decode_error_of(data) == "") is sound


@pytest.mark.parametrize("gate", [(), (ON,)])
@pytest.mark.parametrize(
    ("method", "body", "headers"),
    [
        ("GET", None, {}),
        ("PUT", {"metadata": {"name": "b"}}, {}),
        ("PATCH", {"metadata": {"labels": {"a": "b"}}}, {"content_type": "application/merge-patch+json"}),
        ("DELETE", None, {}),
        ("DELETE", {"gracePeriodSeconds": 0}, {}),
    ],
)
async def test_unreadable_object_is_rejected_by_name(
    started: Any, broken: Any, gate: Any, method: str, body: Any, headers: Any
) -> None:
    """States and transitions, the corrupt resource: a normal request fails with the error that says so."""
    async with started(*gate) as api:
        revision = api.server.store.revision
        answer = await api.ask(method, f"{CONFIGS}/b", body, **headers)
        assert (answer.status, answer.tree["reason"]) == (500, "InternalError")
        assert "corrupt object" in answer.tree["message"]
        assert (answer.tree["details"]["name"], answer.tree["details"]["kind"]) == ("b", "configmaps")
        assert (await api.get(f"{CONFIGS}/a")).status == 200
        assert api.server.store.revision == revision


@pytest.mark.parametrize("query", ["", "?limit=2", "?labelSelector=x=y", "?fieldSelector=metadata.name=b"])
async def test_list_with_unreadable_object_fails(started: Any, broken: Any, query: str) -> None:
    """Without the gate the error names the first, with it all of them as causes."""
    async with started() as api:
        answer = await api.get(f"{CONFIGS}{query}")
        assert (answer.status, answer.tree["reason"]) == (500, "InternalError")
        assert "default/b" in answer.tree["message"]
    async with started(ON) as api:
        answer = await api.get(f"{CONFIGS}{query}")
        assert (answer.status, answer.tree["reason"]) == (500, "StorageReadError")
        (cause,) = answer.tree["details"]["causes"]
        assert (cause["reason"], cause["field"]) == ("UnexpectedServerResponse", "/configmaps/default/b")


@pytest.mark.parametrize(
    "accept",
    [
        "application/vnd.kubernetes.protobuf",
        "application/yaml",
        "application/json;as=Table;g=meta.k8s.io;v=v1",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    ],
)
async def test_unreadable_object_fails_in_every_representation(started: Any, broken: Any, accept: str) -> None:
    async with started(ON) as api:
        for url in (CONFIGS, f"{CONFIGS}/b"):
            assert (await api.send("GET", url, accept=accept)).status == 500
        assert (await api.send("GET", f"{CONFIGS}/a", accept=accept)).status == 200


async def test_lists_without_the_object_succeed(started: Any, broken: Any) -> None:
    async with started(ON) as api:
        assert (await api.get(f"{CONFIGS}?fieldSelector=metadata.name=a")).status == 200
        assert (await api.get("/api/v1/namespaces/kube-system/configmaps")).status == 200
        assert (await api.get("/api/v1/namespaces")).status == 200


async def test_number_of_reported_objects_is_limited(started: Any, backend: MemoryBackend) -> None:
    async with started() as api:
        for number in range(103):
            await api.config(f"a{number:03}")
    for number in range(103):
        await corrupt(backend, f"a{number:03}")
    async with started(ON) as api:
        status = (await api.get(CONFIGS)).tree
    causes = status["details"]["causes"]
    assert len(causes) == 101
    assert causes[-1]["reason"] == "FieldValueTooMany"
    assert causes[-1]["message"].startswith("3 more")


@pytest.mark.virtual
async def test_watch_ends_with_an_error(started: Any, broken: Any) -> None:
    """The initial state cannot be complete; later events can."""
    async with started() as api:
        events = await api.watch("timeoutSeconds=1")
        assert [event["type"] for event in events] == ["ERROR"]
        assert "corrupt object" in events[0]["object"]["message"]
        version = api.server.store.revision
        await api.config("d")
        events = await api.watch(f"timeoutSeconds=1&resourceVersion={version}")
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "d")]


async def test_watch_from_before_the_corruption_is_expired(started: Any, broken: Any) -> None:
    """Watching, rule 4: lost events are a 410, which every client can handle."""
    async with started() as api:
        answer = await api.get(f"{CONFIGS}?watch=1&resourceVersion=1")
        assert (answer.status, answer.tree["reason"]) == (410, "Expired")


@pytest.mark.virtual
async def test_unsafe_delete_removes_the_object(started: Any, broken: Any, backend: MemoryBackend) -> None:
    """States and transitions, the corrupt resource: finalizers and everything else are ignored."""
    async with started(ON) as api:
        version = api.server.store.revision
        answer = await api.delete(f"{CONFIGS}/b", UNSAFE)
        assert (answer.status, answer.tree["status"], answer.tree["details"]["name"]) == (200, "Success", "b")
        assert (await api.get(f"{CONFIGS}/b")).status == 404
        assert [item["metadata"]["name"] for item in (await api.get(CONFIGS)).tree["items"]] == ["a", "c"]
        (event,) = await api.watch(f"timeoutSeconds=1&resourceVersion={version}")
        assert event["type"] == "DELETED"
        metadata = {"name": "b", "namespace": "default", "resourceVersion": str(version + 1)}
        assert event["object"] == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}
        await api.config("b")
    async with started() as api:
        assert len((await api.get(CONFIGS)).tree["items"]) == 3


@pytest.mark.virtual
async def test_selective_watches_end_when_object_is_removed(started: Any, broken: Any) -> None:
    """It is unknown whether it was selected: the error makes clients list again, which works now."""
    async with started(ON) as api:
        version = api.server.store.revision
        await api.delete(f"{CONFIGS}/b?ignoreStoreReadErrorWithClusterBreakingPotential=true")
        events = await api.watch(f"timeoutSeconds=1&resourceVersion={version}&labelSelector=x=y")
        assert [event["type"] for event in events] == ["ERROR"]
        assert (await api.get(f"{CONFIGS}?labelSelector=x=y")).status == 200


async def test_readable_metadata_is_in_the_deletion_event(started: Any, broken: Any, backend: MemoryBackend) -> None:
    data = json.dumps({"metadata": broken["metadata"]}).encode()
    await corrupt(backend, "b", data)
    async with started(ON) as api:
        store = api.server.store
        await api.delete(f"{CONFIGS}/b", UNSAFE)
        gone = store.history("configmaps").since(store.history("configmaps").end - 1)[0]
        assert json.loads(gone.row.data)["metadata"]["uid"] == broken["metadata"]["uid"]


async def test_unsafe_delete_needs_the_feature_gate(started: Any, broken: Any) -> None:
    """States and transitions, the corrupt resource: only with AllowUnsafeMalformedObjectDeletion."""
    async with started() as api:
        assert (await api.delete(f"{CONFIGS}/b", UNSAFE)).status == 500
        assert (await api.delete(f"{CONFIGS}/c", UNSAFE)).tree["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("url", "body"),
    [
        (f"{CONFIGS}/a", UNSAFE),
        (CONFIGS, UNSAFE),
        *(
            (f"{CONFIGS}/b", {**UNSAFE, **more})
            for more in (
                {"dryRun": ["All"]},
                {"gracePeriodSeconds": 0},
                {"orphanDependents": False},
                {"preconditions": {}},
                {"propagationPolicy": "Background"},
            )
        ),
        (f"{CONFIGS}/b?dryRun=All&ignoreStoreReadErrorWithClusterBreakingPotential=true", None),
        (f"{CONFIGS}/b?dryRun=All", UNSAFE),
        (f"{CONFIGS}/b?dryRun", {**UNSAFE, "dryRun": []}),
    ],
)
async def test_unsafe_delete_allows_no_other_options(started: Any, broken: Any, url: str, body: Any) -> None:
    """Delete options: with it, dryRun and the others must be unset."""
    async with started(ON) as api:
        revision = api.server.store.revision
        answer = await api.delete(url, body)
        assert (answer.status, answer.tree["reason"]) == (422, "Invalid")
        assert answer.tree["details"]["causes"][0]["field"] == "ignoreStoreReadErrorWithClusterBreakingPotential"
        assert api.server.store.revision == revision


async def test_collection_delete_skips_unreadable_object(started: Any, broken: Any) -> None:
    async with started(ON) as api:
        answer = await api.delete(CONFIGS, {})
        assert (answer.status, "default/b" in answer.tree["message"]) == (500, True)
        for name in "ac":
            assert (await api.get(f"{CONFIGS}/{name}")).tree["metadata"]["deletionTimestamp"]


@pytest.mark.virtual
async def test_namespace_deletion_continues_after_unsafe_delete() -> None:
    cluster = Cluster([ON])
    async with cluster:
        api = ApiClient(cluster.api)
        for name in ("n", "other"):
            await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
            for config in ("a", "b"):
                await api.post(f"/api/v1/namespaces/{name}/configmaps", {"metadata": {"name": config}})
        await cluster.stop_api()
        (record,) = [record for record in cluster.rows.at(cluster.rows.revision, "configmaps") if record.key == "n/b"]
        why = decode_error_of(b"{")
        cluster.rows.add(record._replace(revision=cluster.rows.revision + 1, data=b"{", decode_error=why))
        await cluster.start_api()
        await cluster.manage()
        api = ApiClient(cluster.api)
        await api.delete("/api/v1/namespaces/n")
        await api.delete("/api/v1/namespaces/other")
        await cluster.sleep(30)
        assert (await api.get("/api/v1/namespaces/other")).status == 404
        held = (await api.get("/api/v1/namespaces/n")).tree
        conditions = {one["type"]: one["status"] for one in held["status"]["conditions"]}
        assert conditions["NamespaceDeletionContentFailure"] == "True"
        assert (await api.delete("/api/v1/namespaces/n/configmaps/b", UNSAFE)).status == 200
        await cluster.sleep(600)
        assert (await api.get("/api/v1/namespaces/n")).status == 404


@pytest.mark.parametrize("value", ["'not json'", "x'00ff'", "7", '\'{"kind":"ConfigMap"}\''])
async def test_database_edited_by_hand_opens(tmp_path: Path, value: str) -> None:
    """The damage is found at the next start, in any form of data."""
    flags = FLAGS.parse((f"--data-dir={tmp_path}", "--advertise-address=192.0.2.1", ON))
    server = build(flags, Runtime("test"))
    await server.start()
    await ApiClient(server).config("b")
    await server.stop()
    with sqlite3.connect(tmp_path / "apiserver.db") as database:
        database.execute(f"UPDATE log SET data = {value} WHERE key = 'default/b'")
    database.close()
    server = build(flags, Runtime("test"))
    await server.start()
    api = ApiClient(server)
    assert (await api.get(f"{CONFIGS}/b")).status == 500
    assert (await api.delete(f"{CONFIGS}/b", UNSAFE)).status == 200
    assert (await api.get(f"{CONFIGS}/b")).status == 404
    await server.stop()


async def test_unsafe_delete_without_its_own_verb_is_forbidden(started: Any, broken: Any) -> None:
    """`delete` is not enough, because finalizers are skipped."""
    verbs = {"eve": ["delete"], "root": ["delete", "unsafe-delete-ignore-read-errors"]}
    async with started(ON, "--authorization-mode=RBAC") as api:
        admin = Caller(api.server, "admin", "system:masters")
        for user, allowed in verbs.items():
            rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": allowed}
            await admin.must("POST", CLUSTER_ROLES, {"metadata": {"name": user}, "rules": [rule]})
            await admin.must("POST", CLUSTER_BINDINGS, binding(user, user, user=user))
        answer = await Caller(api.server, "eve").delete(f"{CONFIGS}/b", UNSAFE)
        assert (answer.status, answer.tree["reason"], answer.tree["details"]["name"]) == (403, "Forbidden", "b")
        assert "unsafe-delete-ignore-read-errors" in answer.tree["message"]
        assert (await Caller(api.server, "root").delete(f"{CONFIGS}/b", UNSAFE)).status == 200


async def damage(backend: MemoryBackend, resource: str, key: str, change: Callable[[bytes], bytes]) -> None:
    """Change the last stored data of an object."""
    found = None
    async for records in backend.replay():
        found = next((each for each in reversed(records) if (each.resource, each.key) == (resource, key)), found)
    assert found is not None, (resource, key)
    backend.append([found._replace(data=change(found.data))], lambda _: None)


def without_start(data: bytes) -> bytes:
    return b"\x00" + data[1:]


def with_wrong_type(data: bytes) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(data), "rules": 7, "spec": 7, "subjects": 7})


RBAC, FLOWS = "rbac.authorization.k8s.io", "flowcontrol.apiserver.k8s.io"
BOOTSTRAP = {
    f"clusterroles.{RBAC}": "system:kube-scheduler",
    f"clusterrolebindings.{RBAC}": "cluster-admin",
    f"roles.{RBAC}": "kube-system/system:controller:token-cleaner",
    f"rolebindings.{RBAC}": "kube-system/system:controller:token-cleaner",
    f"prioritylevelconfigurations.{FLOWS}": "catch-all",
    f"flowschemas.{FLOWS}": "exempt",
    "namespaces": "kube-system",
    "services": "default/kubernetes",
    "endpoints": "default/kubernetes",
    "endpointslices.discovery.k8s.io": "default/kubernetes",
    "servicecidrs.networking.k8s.io": "kubernetes",
    "priorityclasses.scheduling.k8s.io": "system-node-critical",
    "configmaps": "kube-system/kube-apiserver-legacy-service-account-token-tracking",
}
TYPED = (f"clusterroles.{RBAC}", f"clusterrolebindings.{RBAC}", f"flowschemas.{FLOWS}")


@pytest.mark.parametrize(
    ("resource", "change"),
    [*((each, without_start) for each in BOOTSTRAP), *((each, with_wrong_type) for each in TYPED)],
)
async def test_unreadable_bootstrap_object_is_created_again(
    started: Any, backend: MemoryBackend, resource: str, change: Callable[[bytes], bytes]
) -> None:
    """One flipped bit must not prevent a start forever."""
    key = BOOTSTRAP[resource]
    async with started() as api:
        await api.config("a")
        before = msgspec.json.decode(api.server.store.get(resource, key).data)
    await damage(backend, resource, key, change)
    with structlog.testing.capture_logs() as lines:
        async with started() as api:
            after = msgspec.json.decode(api.server.store.get(resource, key).data)
            assert (await api.get(f"{CONFIGS}/a")).status == 200
    logged = [line for line in lines if line["event"] == "failed to decode stored object; creating it again"]
    assert [(line["resource"], line["key"]) for line in logged] == [(resource, key)]
    varying = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
    for tree in (before, after):
        tree.pop("status", None)
        tree["metadata"] = {name: value for name, value in tree["metadata"].items() if name not in varying}
    assert after == before


async def test_encrypted_bootstrap_object_without_its_key_is_preserved(started: Any, backend: MemoryBackend) -> None:
    """It can be read again once the server has the key."""
    resource, encrypted = f"clusterroles.{RBAC}", b"k8s:enc:aescbc:v1:key:\x00\x01"
    async with started():
        pass
    await damage(backend, resource, BOOTSTRAP[resource], lambda _: encrypted)
    with structlog.testing.capture_logs() as lines:
        async with started() as api:
            assert api.server.store.get(resource, BOOTSTRAP[resource]).is_encrypted
    assert "failed to decrypt stored object; skipping it" in [line["event"] for line in lines]
