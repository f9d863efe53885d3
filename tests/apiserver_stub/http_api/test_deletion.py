"""States and transitions on each storage; delete options. verbs/ checks the other rules."""

from typing import Any

import pytest

STORAGES = ("memory", pytest.param("etcd", marks=pytest.mark.needs("etcd")))
CONFIGS = "/api/v1/namespaces/default/configmaps"
HOLD = "example.org/hold"
TYPE = b"\x0a\x02v1\x12\x0dDeleteOptions"
FOREGROUND = b"\x22\x0aForeground"
ENVELOPE = b"k8s\x00\x0a" + bytes([len(TYPE)]) + TYPE + b"\x12" + bytes([len(FOREGROUND)]) + FOREGROUND


async def create_with_finalizers(api: Any, *finalizers: str) -> Any:
    body = {"metadata": {"name": "a", "finalizers": list(finalizers)}}
    return (await api.post(CONFIGS, body)).tree


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


@pytest.mark.parametrize("what", ["uid", "resourceVersion"])
async def test_preconditions(api: Any, what: str) -> None:
    """Delete options: preconditions, 409 when they do not hold."""
    metadata = (await api.config("a")).tree["metadata"]
    wrong = {"preconditions": {what: "1"}}
    refused = await api.delete(f"{CONFIGS}/a", wrong)
    assert (refused.status, refused.tree["reason"]) == (409, "Conflict")
    assert (await api.delete(f"{CONFIGS}/a", {"preconditions": {what: metadata[what]}})).status == 200


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
