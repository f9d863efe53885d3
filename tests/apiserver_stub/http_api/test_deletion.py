"""States and transitions: finalization and removal; delete options."""

import asyncio
from typing import Any

import pytest

STORAGES = ("memory", pytest.param("etcd", marks=pytest.mark.needs("etcd")))
CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
HOLD = "example.org/hold"
TYPE = b"\x0a\x02v1\x12\x0dDeleteOptions"
FOREGROUND = b"\x22\x0aForeground"
ENVELOPE = b"k8s\x00\x0a" + bytes([len(TYPE)]) + TYPE + b"\x12" + bytes([len(FOREGROUND)]) + FOREGROUND


async def create_with_finalizers(api: Any, *finalizers: str) -> Any:
    body = {"metadata": {"name": "a", "finalizers": list(finalizers)}}
    return (await api.post(CONFIGS, body)).tree


async def pod(api: Any, grace: int = 30, **metadata: Any) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n", "terminationGracePeriodSeconds": grace}
    made = await api.post(PODS, {"metadata": {"name": "p", **metadata}, "spec": spec})
    assert made.status == 201


async def test_object_without_finalizers_is_removed_at_once(api: Any) -> None:
    """Table of states: live, with nothing to wait for; the answer is a Status that names the object."""
    made = (await api.config("a")).tree
    answer = await api.delete(f"{CONFIGS}/a")
    assert (answer.status, answer.tree["kind"], answer.tree["status"]) == (200, "Status", "Success")
    assert answer.tree["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert (await api.get(f"{CONFIGS}/a")).status == 404


async def test_object_with_finalizers_is_removed_after_the_last(api: Any) -> None:
    """Table of states: live to finalizing to removed; rule 1: in any order."""
    await create_with_finalizers(api, "example.org/one", "example.org/two")
    marked = (await api.delete(f"{CONFIGS}/a")).tree
    assert marked["metadata"]["deletionTimestamp"]
    assert (await api.get(f"{CONFIGS}/a")).tree["metadata"] == marked["metadata"]
    again = (await api.delete(f"{CONFIGS}/a")).tree
    assert again["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    await api.patch(f"{CONFIGS}/a", {"metadata": {"finalizers": ["example.org/two"]}})
    assert (await api.get(f"{CONFIGS}/a")).status == 200
    last = await api.patch(f"{CONFIGS}/a", {"metadata": {"finalizers": None}})
    assert (last.status, (await api.get(f"{CONFIGS}/a")).status) == (200, 404)


async def test_finalizer_cannot_be_added_after_deletion(api: Any) -> None:
    """Finalizing: finalizers can only be removed."""
    await create_with_finalizers(api, HOLD)
    await api.delete(f"{CONFIGS}/a")
    refused = await api.patch(f"{CONFIGS}/a", {"metadata": {"finalizers": [HOLD, "example.org/late"]}})
    assert refused.status == 422
    assert (await api.patch(f"{CONFIGS}/a", {"metadata": {"labels": {"still": "changes"}}})).status == 200


async def test_deletion_timestamp_is_set_by_server_only(api: Any) -> None:
    """Object envelope: set by the server on the first delete request."""
    await create_with_finalizers(api, HOLD)
    moment = "2030-01-01T00:00:00Z"
    await api.patch(f"{CONFIGS}/a", {"metadata": {"deletionTimestamp": moment}})
    assert "deletionTimestamp" not in (await api.get(f"{CONFIGS}/a")).tree["metadata"]


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        ({}, None),
        ({"propagationPolicy": "Background"}, None),
        ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        ({"propagationPolicy": "Orphan"}, ["orphan"]),
        ({"orphanDependents": True}, ["orphan"]),
        ({"orphanDependents": False}, None),
    ],
)
@pytest.mark.parametrize("place", ["body", "query"])
async def test_propagation_policies_set_finalizers(api: Any, options: Any, finalizers: Any, place: str) -> None:
    """Delete options: propagationPolicy and orphanDependents, for the garbage collector to read."""
    await api.config("a")
    query = "&".join(
        f"{name}={str(value).lower() if value in (True, False) else value}" for name, value in options.items()
    )
    body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
    await (api.delete(f"{CONFIGS}/a", body) if place == "body" else api.delete(f"{CONFIGS}/a?{query}"))
    left = await api.get(f"{CONFIGS}/a")
    assert left.status == (404 if finalizers is None else 200)
    if finalizers:
        assert left.tree["metadata"]["finalizers"] == finalizers


@pytest.mark.parametrize(
    "options",
    [
        {"propagationPolicy": "Sideways"},
        {"propagationPolicy": "Orphan", "orphanDependents": True},
        {"gracePeriodSeconds": "soon"},
        {"preconditions": "none"},
        {"dryRun": ["Some"]},
        {"kind": "ConfigMap"},
    ],
)
async def test_invalid_options_are_rejected(api: Any, options: Any) -> None:
    """Delete options and Errors: a 4xx, and the object stays."""
    await api.config("a")
    body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
    assert (await api.delete(f"{CONFIGS}/a", body)).status in (400, 422)
    assert (await api.get(f"{CONFIGS}/a")).status == 200


@pytest.mark.parametrize("what", ["uid", "resourceVersion"])
async def test_preconditions(api: Any, what: str) -> None:
    """Delete options: preconditions, 409 when they do not hold."""
    metadata = (await api.config("a")).tree["metadata"]
    wrong = {"preconditions": {what: "1"}}
    refused = await api.delete(f"{CONFIGS}/a", wrong)
    assert (refused.status, refused.tree["reason"]) == (409, "Conflict")
    assert (await api.delete(f"{CONFIGS}/a", {"preconditions": {what: metadata[what]}})).status == 200


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("asked", "seconds"), [(None, 30), (5, 5), (0, None), (60, 60)], ids=["the pod's", "less", "none", "more"]
)
async def test_pod_gets_its_grace_period(api: Any, asked: int | None, seconds: int | None) -> None:
    """Delete options: gracePeriodSeconds; without, the Pod's own; 0 removes at once."""
    await pod(api)
    options = {} if asked is None else {"gracePeriodSeconds": asked}
    answer = (await api.delete(f"{PODS}/p", options)).tree
    assert answer["kind"] == "Pod"
    assert (await api.get(f"{PODS}/p")).status == (404 if seconds is None else 200)
    if seconds is not None:
        assert answer["metadata"]["deletionGracePeriodSeconds"] == seconds


@pytest.mark.virtual
async def test_grace_period_can_only_be_shortened(api: Any) -> None:
    """Delete options: a second request can shorten the grace period, but not extend it."""
    await pod(api, grace=100)
    first = (await api.delete(f"{PODS}/p")).tree["metadata"]
    await asyncio.sleep(10)
    longer = (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 500})).tree["metadata"]
    assert longer["deletionTimestamp"] == first["deletionTimestamp"]
    shorter = (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 5})).tree["metadata"]
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{PODS}/p")).status == 404


async def test_collection_is_deleted_by_selector(api: Any) -> None:
    """Verbs, rule 2: deletecollection takes selectors; objects with finalizers are only marked."""
    for name in ("b", "c"):
        await api.config(name)
    await create_with_finalizers(api, HOLD)
    assert (await api.delete(f"{CONFIGS}?labelSelector=of=b")).status == 200
    assert {"a", "c"} <= set((await api.get(CONFIGS)).names)
    assert "b" not in (await api.get(CONFIGS)).names
    assert (await api.delete(f"{CONFIGS}?fieldSelector=metadata.name!=c")).status == 200
    assert (await api.get(CONFIGS)).names == ["a", "c"]
    assert (await api.get(f"{CONFIGS}/a")).tree["metadata"]["deletionTimestamp"]


async def test_namespace_is_finalized_by_its_controller(api: Any) -> None:
    """Rule 2: the namespace is marked and waits until its content is deleted; nothing can be created in it."""
    await api.post("/api/v1/namespaces", {"metadata": {"name": "gone"}})
    assert (await api.delete("/api/v1/namespaces/gone")).tree["status"]["phase"] == "Terminating"
    refused = await api.post("/api/v1/namespaces/gone/configmaps", {"metadata": {"name": "late"}})
    assert (refused.status, refused.tree["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    left = (await api.get("/api/v1/namespaces/gone")).tree
    left["spec"]["finalizers"] = []
    assert (await api.put("/api/v1/namespaces/gone/finalize", left)).status == 200
    assert (await api.get("/api/v1/namespaces/gone")).status == 404


@pytest.mark.parametrize(
    "more",
    [
        {"dryRun": ["All"]},
        {"gracePeriodSeconds": 0},
        {"orphanDependents": True},
        {"preconditions": {"uid": "1"}},
        {"propagationPolicy": "Background"},
        {},
    ],
)
async def test_unsafe_delete_is_for_unreadable_objects_only(started: Any, more: Any) -> None:
    """Delete options: no other option may be set, and a readable object is never removed."""
    async with started("--feature-gates=AllowUnsafeMalformedObjectDeletion=true") as api:
        await api.config("a")
        options = {"ignoreStoreReadErrorWithClusterBreakingPotential": True, **more}
        assert 400 <= (await api.delete(f"{CONFIGS}/a", options)).status < 500
        assert (await api.get(f"{CONFIGS}/a")).status == 200


async def test_delete_of_system_priority_class_is_forbidden(api: Any) -> None:
    """The object stays, also in a dry run; classes of users can be deleted."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for query in ("", "?dryRun=All"):
        refused = await api.delete(f"{classes}/system-node-critical{query}")
        assert (refused.status, refused.tree["reason"]) == (403, "Forbidden")
    assert (await api.get(f"{classes}/system-node-critical")).status == 200
    await api.post(classes, {"metadata": {"name": "mine"}, "value": 1})
    assert (await api.delete(f"{classes}/mine")).status == 200


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/json", b'{"propagationPolicy":"Foreground"}'),
        ("application/json", b'{"propagationPolicy":"Foreground","unknown":{"a":1}}'),
        ("application/yaml", b"kind: DeleteOptions\npropagationPolicy: Foreground\n"),
        ("application/vnd.kubernetes.protobuf", ENVELOPE),
        ("application/cbor", b"\xa1\x71propagationPolicy\x6aForeground"),
    ],
)
async def test_delete_options_are_read_in_every_media_type(started: Any, media: str, body: bytes) -> None:
    flags = ("--feature-gates=CBORServingAndStorage=true",) if "cbor" in media else ()
    async with started(*flags) as api:
        await api.config("a")
        marked = await api.delete(f"{CONFIGS}/a", body, content_type=media)
        assert (marked.status, marked.tree["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
